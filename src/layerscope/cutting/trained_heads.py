"""Truncation curves with trained heads, TUNED and TUNEDORIG, one on every layer (Phang et al. 2021, figure 3)."""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch

from layerscope.cutting.selection_test import differences
from layerscope.data import Examples, Task
from layerscope.distributed import Team
from layerscope.errors import InputError
from layerscope.evaluation.classification import ClassificationEvaluator
from layerscope.evaluation.evaluator import without_groups
from layerscope.evaluation.layer_heads import LayerHeads, classifier_of, held_out
from layerscope.extraction.extract import examples_of, extract
from layerscope.models import Model
from layerscope.store import Artifact, write_json


@dataclass(frozen=True)
class HeadTraining:
    """Hyperparameters of the training of heads; Xie et al. (2022, table 3) train them at 1e-3.

    `max_steps` takes the place of `epochs`; over the first `warmup` steps the learning rate rises.
    """

    learning_rate: float = 1e-3
    epochs: int = 10
    batch: int = 32
    seed: int = 0
    max_steps: int | None = None
    warmup: int = 0

    @staticmethod
    def read(options: dict[str, Any]) -> HeadTraining:
        """Return the hyperparameters of a call's options; raise InputError about an option that there is not."""
        allowed = HeadTraining.__dataclass_fields__
        for name in options:
            if name not in allowed:
                names = ", ".join([*allowed, "train_limit"])
                raise InputError(f"There is no option {name!r} here; heads are trained with {names}.")
        if "epochs" in options and "max_steps" in options:
            raise InputError("Both epochs and max_steps were given, which say the same thing twice; give one of them.")
        for name in ("max_steps", "warmup"):
            if name in options and options[name] < (least := int(name == "max_steps")):
                raise InputError(f"{name} is {options[name]}; it must be at least {least}.")
        return HeadTraining(**options)

    def spec(self) -> dict[str, Any]:
        """Return what decides the heads, for keys of the store; steps and warm-up only where they are used."""
        values = asdict(self)
        return {name: value for name, value in values.items() if name not in ("max_steps", "warmup") or value}


class TrainedHeads(Artifact):
    """The validation score of a head on every layer 0..L, all trained side by side on one stored pass.

    A tenth of the training texts is not learned from: it chooses the epoch of every head, so that no epoch is chosen on
    the rows that are scored.
    """

    kind = "heads"
    version = 6

    def __init__(
        self,
        model: Model,
        task: Task,
        validation: Examples,
        *,
        new_head: bool,
        max_length: int,
        train_limit: int | None,
        training: HeadTraining,
    ) -> None:
        model.require_precision("training heads")
        self.model, self.task, self.validation, self.new_head = model, task, validation, new_head
        self.max_length, self.training = max_length, training
        self.train = examples_of(task, None, train_limit, learning=True)
        if self.train.split == validation.split:
            raise InputError(
                f"Heads are trained on one split of {task.name} and scored on another, and {validation.split} was to "
                "serve for both; give a task with the splits train and validation, and no split= that is learned from."
            )

    def spec(self) -> dict[str, Any]:
        return {
            "model": self.model.spec(),
            "task": self.task.spec(),
            "train": self.train.spec(),
            "validation": self.validation.spec(),
            "new_head": self.new_head,
            "max_length": self.max_length,
            "training": self.training.spec(),
        }

    def build(self, folder: Path) -> None:
        tuned = classifier_of(self.model, self.task, self.training.seed, new_head=self.new_head)
        heads = LayerHeads(tuned, range(self.model.depth + 1))
        assert self.train.labels is not None
        texts, choices = np.arange(len(self.train)), _choices(self.train)
        choosing = held_out(texts, self.train.labels, self.training.seed)
        train, rows = self._states(self.train), torch.from_numpy(np.repeat(choosing, choices)).to(self.model.device)
        history = heads.fit(
            train[:, ~rows],
            self.train.labels[~choosing],
            train[:, rows],
            ClassificationEvaluator(tuned, self.task, self.train.take(choosing)).value,
            groups=(choices, choices),
            title=f"heads on {self.model.name}",
            **asdict(self.training),
        )
        evaluator = ClassificationEvaluator(tuned, self.task, self.validation)
        answers = heads.outputs(self._states(self.validation), _choices(self.validation))
        scores = [evaluator.value(part) for part in answers]
        parts = {
            "scores": scores,
            "bounds": [
                (np.nan,) * 2 if np.isnan(v) else evaluator.interval(a) for a, v in zip(answers, scores, strict=True)
            ],
            "differences": differences(evaluator, answers[:-1], answers[-1]).tolist(),
            "left_out": without_groups(evaluator, answers).tolist(),
            "history": history.tolist(),
        }
        if Team.current().is_main:
            write_json(folder / "heads.json", parts)

    def scores(self) -> np.ndarray:
        """Return (layers,) the score of every layer's head."""
        return self._read("scores")

    def bounds(self) -> np.ndarray:
        """Return (layers, 2) an interval over texts for each score."""
        return self._read("bounds")

    def left_out(self) -> np.ndarray:
        """Return (groups, layers) the scores without each group of texts."""
        return self._read("left_out")

    def differences(self) -> np.ndarray:
        """Return (layers - 1, 3) how much better every head scores than that of the last layer, and its interval."""
        return self._read("differences")

    def _read(self, part: str) -> np.ndarray:
        path = self.produce(Team.current()) / "heads.json"
        return np.asarray(json.loads(path.read_text(encoding="utf-8"))[part], dtype=float)

    def _states(self, part: Examples) -> torch.Tensor:
        """Return (layers, rows, width) states of the summary token, on the model's device."""
        reps = extract(self.model, part, pool="cls", max_length=self.max_length)
        return torch.stack([reps[layer] for layer in reps.layers]).to(self.model.device)


def _choices(part: Examples) -> int:
    """Return how many rows make up a text; raise InputError where texts have different numbers of choices."""
    if part.choices is None:
        return 1
    counts = {len(c) for c in part.choices}
    if len(counts) > 1:
        raise InputError(
            f"{part.task} has from {min(counts)} to {max(counts)} choices per text; heads are trained on stored rows "
            "only where every text has as many."
        )
    return counts.pop()


def check_same(tuned: Model, base: Model) -> None:
    """Raise InputError unless the base has the architecture of the tuned model, as TUNEDORIG needs."""
    if (tuned.architecture.family, tuned.depth, tuned.width) != (base.architecture.family, base.depth, base.width):
        raise InputError(f"base={base.name} is not the untuned {tuned.name}: its family, depth or width differ.")
