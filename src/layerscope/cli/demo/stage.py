"""What the steps of `layerscope demo` share: how much is looked at, the models, the texts, and what comes of a step."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

import layerscope as ls
from layerscope.drawing.captions import listed
from layerscope.extraction.extract import examples_of
from layerscope.store import digest

if TYPE_CHECKING:
    from layerscope.data import Examples
    from layerscope.drawing.figure import Figure
    from layerscope.results import Result

VERSION = 4  # raise it when a step computes something else under the same settings
CHECKPOINT = "checkpoint"  # of a training


@dataclass(frozen=True)
class Settings:
    """What the demo looks at, and how much of it: a few minutes on two cores."""

    model: str = "demo:minilm"
    task: str = "pydocs"
    seeds: tuple[int, ...] = (1, 2)
    steps: int = 100
    batch: int = 16
    learning_rate: float = 3e-4
    max_length: int = 24  # tokens that are read of a text; most of pydocs are shorter
    texts: int = 400  # of the validation split: everything is scored and compared on these
    learned: int = 800  # training texts for what learns from stored rows: heads, probes, maps
    attended: int = 300  # texts whose attention is compared
    map_steps: int = 150  # of the invertible network, which starts from the linear map
    map_width: int = 128  # of its hidden layers
    longest_span: int = 3  # blocks that advice leaves out in a row
    searched: int = 12  # further cuts that advice tries
    tolerance: float = 0.02  # accuracy that the smaller model may lose
    language_model: str = "demo:smollm2"
    language_tokens: int = 1470  # of its texts, at most: 23 windows, of which half choose
    window: int = 64  # tokens that it reads at once
    language_sizes: tuple[int, ...] = (1, 3)  # blocks that plans leave out
    device: str | None = None  # where models run; the first GPU where there is one
    dtype: str = "float32"  # that they are opened in
    lost: str = "25%"  # of its perplexity, which the smaller one may have more


@dataclass(frozen=True)
class Outcome:
    """What came out of a step: sentences with its numbers, results, and the figures that are shown of them."""

    said: Sequence[str]
    results: Mapping[str, Result]
    own: str  # the command that does this to one's own model
    figures: Sequence[Figure] | None = None  # all of the results' if not given
    settings: Mapping[str, Any] = field(default_factory=dict)


class Stage:
    """What the steps share. Everything expensive is an artifact of the store, so that asking again costs little."""

    def __init__(self, settings: Settings, out: Path) -> None:
        self.settings, self.out = settings, out
        self.task = ls.task(settings.task)
        self.base = self.open(settings.model)

    def open(self, source: str | Path) -> ls.Model:
        """A model on the device and in the float type that were asked for."""
        return ls.load(source, device=self.settings.device, dtype=self.settings.dtype)

    @cached_property
    def key(self) -> str:
        """What the steps' results depend on; a result under another key is made anew."""
        from layerscope.version import __version__

        settings = {"version": VERSION, "layerscope": __version__, **asdict(self.settings)}
        return digest(str(settings), str(self.base.spec()), str(self.texts.spec()), str(self.task.spec()))

    @cached_property
    def texts(self) -> Examples:
        """The validation texts that everything is measured on."""
        return examples_of(self.task, None, self.settings.texts)

    @cached_property
    def trainings(self) -> ls.Trainings:
        s = self.settings
        options: dict[str, Any] = {"max_steps": s.steps, "batch": s.batch, "learning_rate": s.learning_rate}
        options |= {"max_length": s.max_length, "validation_limit": s.texts}
        return ls.tune(self.base, self.task, seeds=list(s.seeds), **options)

    @cached_property
    def tuned(self) -> list[ls.Model]:
        """The tuned classifiers, opened from their checkpoints."""
        models = [self.open(training.path / CHECKPOINT) for training in self.trainings.trainings]
        for model, seed in zip(models, self.settings.seeds, strict=True):
            model.name = f"tuned (seed {seed})"
        return models

    @cached_property
    def about(self) -> str:
        """What is looked at, and how much of it."""
        s, data = self.settings, self.task
        train, validation = (len(data.split(data.resolve(None, learning=learning))) for learning in (True, False))
        return (
            f"{s.model} has {self.base.depth} blocks of width {self.base.width}. {s.task} has {train:,} texts to learn "
            f"from, in {len(data.label_names or ())} classes ({listed(data.label_names or ())}). To fit a few minutes "
            f"on two cores, everything is measured on {len(self.texts):,} of its {validation:,} validation texts, "
            f"heads, probes and maps learn from {min(s.learned, train):,} training texts, and {s.max_length} tokens of "
            "a text are read: more of them give other figures."
        )

    @property
    def scored(self) -> dict[str, Any]:
        """How models are scored and compared: on the first texts of the validation split."""
        return {"limit": self.settings.texts, "max_length": self.settings.max_length}
