"""What a training writes of itself, as it is read again."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from pydantic import ConfigDict, Field

from layerscope.errors import ModelError
from layerscope.models.lineage import Learned
from layerscope.store import Saved, inside, read_json

RESULT = "training.json"


class HeadCard(Saved):
    """The head that a training gave its model."""

    name: str
    kind: str
    label_names: list[str] | None
    regression: bool


class MethodCard(Saved):
    """A method and its size."""

    name: str
    size: int | None = None


class BaseCard(Saved):
    """The model that was tuned."""

    name: str
    weights: str


class EpochCard(Saved):
    """What was measured after an epoch."""

    epoch: float
    score: float
    loss: float


class TrainingCard(Saved):
    """`training.json`."""

    model_config = ConfigDict(extra="allow")
    base: BaseCard | None = None  # 0.1 did not note it
    head: HeadCard | None = None
    learned: list[Learned] = Field(default_factory=list)
    strategy: str
    method: MethodCard
    seed: int = Field(ge=0, lt=1 << 32)
    score: float
    best_epoch: float
    epochs: list[EpochCard]
    metric: str
    majority: float
    seconds: float
    seconds_per_epoch: float
    cached: bool
    parameters: int = Field(ge=0)
    trainable: int = Field(ge=0)


def read_result(folder: Path) -> dict[str, Any]:
    """What a training has written of itself."""
    return read_json(inside(folder, RESULT), TrainingCard, error=ModelError, way_out="tune again").model_dump()
