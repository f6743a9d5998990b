"""One training as an artifact: everything that determines it, and how it is made, saved and compared."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import torch

from layerscope.cutting.cutting import cut
from layerscope.cutting.plan import LayerPlan
from layerscope.cutting.saving import describe
from layerscope.data import Examples, Task, metrics
from layerscope.errors import ModelError, log
from layerscope.evaluation.exam import KINDS, Exam
from layerscope.evaluation.heads import classifier_of
from layerscope.evaluation.score import UNKNOWN, Score
from layerscope.models import Model, load
from layerscope.models.lineage import inherit, learn, learned
from layerscope.models.selfcheck import close
from layerscope.results import provenance_of
from layerscope.store import Artifact, discard, write_json
from layerscope.team import Team
from layerscope.tuning.cards import RESULT
from layerscope.tuning.freezing import Prefixed
from layerscope.tuning.hyperparameters import Hyperparameters
from layerscope.tuning.method import ADAPTER, CHECKPOINT, Method, counts
from layerscope.tuning.prefix import PrefixCache, prefix_cache
from layerscope.tuning.rows import ItemRows, TextRows
from layerscope.tuning.strategy import Strategy
from layerscope.tuning.trainer import Marking, Outcome, train
from layerscope.version import __version__

_COMPARED = 32  # validation texts on which the saved result must answer as the trained one
_CHECKPOINTS = "checkpoints"  # of a training that is under way

Caches = tuple[PrefixCache | None, PrefixCache | None]


@dataclass(eq=False)
class Lesson:
    """A model, and the rows of a task that it learns from and is scored on. Many trainings may share one."""

    model: Model
    task: Task
    train: Examples
    validation: Examples

    @cached_property
    def spec(self) -> dict[str, Any]:
        """What decides it, for keys of the store; the weights are read once for all trainings."""
        model, task = self.model.spec(), self.task.spec()
        return {"model": model, "task": task, "train": self.train.spec(), "validation": self.validation.spec()}

    @cached_property
    def described(self) -> dict[str, Any]:
        """The model, for the provenance of results."""
        return self.model.described()

    @property
    def labels(self) -> np.ndarray:
        """Of the rows that are scored."""
        assert self.validation.labels is not None
        return self.validation.labels


@dataclass(eq=False)
class TrainingJob(Artifact):
    """One training: a lesson, a strategy in numbers, a method, hyperparameters with one learning rate, a seed."""

    kind = "training"
    version = 5

    lesson: Lesson
    strategy: Strategy
    method: Method
    hyperparameters: Hyperparameters
    seed: int

    def spec(self) -> dict[str, Any]:
        parts = {"strategy": self.strategy.spec(), "method": self.method.spec()}
        return {**self.lesson.spec, **parts, "hyperparameters": self.hyperparameters.spec(), "seed": self.seed}

    def build(self, folder: Path) -> None:
        """Train, save and compare; in a folder with what an earlier try left, go on from there."""
        tuned, trained, outcome, about = self.train(folder)
        started = time.perf_counter()
        if Team.current().is_main:
            self._save(tuned, trained, folder, outcome)
            write_json(folder / RESULT, self._result(outcome, *about))
            discard(folder / _CHECKPOINTS)
        log.info("Saved, opened again and compared in %.1f s.", time.perf_counter() - started)

    def train(self, folder: Path) -> tuple[Model, Any, Outcome, tuple[tuple[int, int], bool, Sequence[ItemRows]]]:
        """The trained model, the module that was trained, what came out, and parameters, caching and rows."""
        lesson, method = self.lesson, self.method
        method.check(lesson.model, self.strategy)
        tuned = self.prepared()
        caches = self._caches()
        trained = method.apply(tuned, self.strategy, self._embeddings, self.seed)
        wrapped = self._wrapped(tuned, trained if method.stands_for_network else None)
        parameters = counts(wrapped.network)
        rows = self._rows(wrapped, tuned, caches)
        outcome = train(
            wrapped,
            tuned,
            self._marking(tuned),
            rows,
            self.hyperparameters,
            seed=self.seed,
            folder=folder / _CHECKPOINTS,
            title=f"{lesson.model.name} on {lesson.task.name}, {self.strategy}, {method.name}",
        )
        if np.isnan(outcome.logits).any():
            raise ModelError(
                f"The training of {lesson.model.name} diverged: its answers are no longer numbers. Take a learning "
                f"rate below {self.hyperparameters.rates[0]:g}."
            )
        log.info("%d steps took %.1f s.", outcome.steps, outcome.seconds)
        return tuned, trained, outcome, (parameters, caches[0] is not None, rows)

    def _wrapped(self, tuned: Model, network: Any) -> Prefixed:
        return Prefixed(tuned, self._frozen, self._embeddings, network)

    def _marking(self, tuned: Model) -> Marking:
        return Marking.of(tuned, self.lesson.task)

    def prepared(self) -> Model:
        """A classifier for the task, cut at the strategy's head, that will have learned from the lesson's rows."""
        tuned = prepared(self.lesson.model, self.lesson.task, self.strategy, self.seed)
        learn(tuned.network, self.lesson.train)
        return tuned

    def reopened(self, folder: Path) -> Model:
        """The saved result as a model: a standard checkpoint, or the base model with what was added to it."""
        base = self.lesson.model if self.method.standard else self.prepared()
        opened = self.method.reopen(base, folder)
        opened.name = opened.network.name_or_path = f"{self.lesson.model.name}, tuned"
        return opened

    @property
    def _embeddings(self) -> bool:
        return self.strategy.trains_embeddings(self.lesson.model.depth)

    @property
    def _frozen(self) -> int:
        """The highest layer that no training can change."""
        if self._embeddings or not self.method.freezes_below:
            return 0
        return int(self.strategy.head) if not self.strategy.blocks else self.strategy.blocks[0] - 1

    def _caches(self) -> Caches:
        h, lesson = self.hyperparameters, self.lesson
        if not (self._frozen and h.cache) or lesson.model.anatomy.marks_summary:  # then a head changes the blocks' work
            return None, None
        learned, scored = (
            prefix_cache(lesson.model, part, self._frozen, h.max_length, h.cache_dtype, h.cache_limit)
            for part in (lesson.train, lesson.validation)
        )
        return (learned, scored) if learned is not None and scored is not None else (None, None)

    def _rows(self, wrapped: Prefixed, tuned: Model, caches: Caches) -> tuple[ItemRows, ItemRows]:
        length, lesson = self.hyperparameters.max_length, self.lesson
        starts = self._hold(wrapped, caches, tuned.device)
        learned, scored = (
            TextRows(tuned, part, length, cache, start)
            for part, cache, start in zip((lesson.train, lesson.validation), caches, starts, strict=True)
        )
        return learned, scored

    def _hold(self, wrapped: Prefixed, caches: Caches, device: torch.device) -> tuple[int | None, int | None]:
        """Cached states onto the GPU where they fit into half of what is free; where each split's begin there."""
        learned, scored = caches
        if device.type != "cuda" or learned is None or scored is None:
            return None, None
        each = 4 if self.hyperparameters.cache_dtype == "float32" else 2
        size = (learned.tokens + scored.tokens + 2) * self.lesson.model.width * each
        if size > torch.cuda.mem_get_info(device)[0] / 2:
            return None, None
        wrapped.table = torch.cat([learned.table(device), scored.table(device)])
        return 0, learned.tokens + 1

    def _save(self, tuned: Model, trained: Any, folder: Path, outcome: Outcome) -> None:
        """Write the result, open it again, and compare its answers with those of the trained network."""
        for name in (CHECKPOINT, ADAPTER):
            discard(folder / name)
        part = self.lesson.validation.take(slice(_COMPARED))
        # The Trainer's answers are rounded to bfloat16 on their way where that was asked for; then the trained network
        # answers again as the saved one will, so that one bound holds for every training.
        expected = outcome.logits[: len(part)]
        if not self._is_exact:
            expected = self._answers(self.method.plain(tuned, trained), part)
        self.method.save(tuned, trained, folder, self.strategy)
        opened = self.reopened(folder)
        if not same_answers(self._answers(opened, part), expected, tuned.network.dtype):
            raise ModelError(
                f"What was saved of {self.lesson.model.name} answers unlike what was trained, so the training does not "
                "count."
            )
        if self.method.standard:
            describe(opened, folder / CHECKPOINT, self._scores(opened, outcome), self._told(outcome))

    def _told(self, outcome: Outcome) -> dict[str, Any]:
        """The training, for the checkpoint's card: how, on what, and with which settings."""
        h, train = self.hyperparameters, self.lesson.train
        about = {"method": self.method.name, "strategy": str(self.strategy), "size": self.method.size}
        rows = {"task": train.task, "split": train.split, "n": len(train), "data": train.fingerprint}
        settings = {"learning_rate": h.rates[0], "batch": h.batch, "steps": outcome.steps, "max_length": h.max_length}
        told = {**about, **rows, **settings, "best_epoch": outcome.best["epoch"], "seed": self.seed}
        return {name: value for name, value in told.items() if value is not None}

    def _scores(self, opened: Model, outcome: Outcome) -> list[Score]:
        """The score that was measured of the epoch that is kept, for the checkpoint's card."""
        value, task, rows = outcome.best["score"], self.lesson.task, self.lesson.validation
        if np.isnan(value):
            return []
        majority = metrics.majority(task.metric, self.lesson.labels, task.classes)
        settings = {"metric": task.metric, "max_length": self.hyperparameters.max_length}
        score = Score(
            value,
            metric=task.metric,
            metrics={task.metric: value},
            n=len(rows),
            majority=majority,
            provenance=provenance_of([opened], rows, settings),
            interval=self._interval(outcome),
            kind=KINDS["Exam"],
            note=f"not learned from; of {len(outcome.epochs)} epochs the best on these rows was kept",
        )
        return [score]

    def _interval(self, outcome: Outcome) -> tuple[float, float]:
        """Of the score, by the bootstrap over the rows that were scored."""
        task, labels = self.lesson.task, self.lesson.labels
        predictions = outcome.logits[..., 0] if task.regression else outcome.logits.argmax(axis=-1)
        return metrics.bootstrap(task.metric, labels, predictions, task.classes) if len(labels) > 1 else UNKNOWN

    @property
    def _is_exact(self) -> bool:
        return not self.hyperparameters.bf16 and self.hyperparameters.cache_dtype == "float32"

    def _answers(self, model: Model, part: Examples) -> np.ndarray:
        return Exam(model, self.lesson.task, part, self.hyperparameters.max_length).logits(note=False)

    def _result(
        self, outcome: Outcome, parameters: tuple[int, int], cached: bool, rows: Sequence[ItemRows]
    ) -> dict[str, Any]:
        lesson, network = self.lesson, SimpleNamespace()
        metric, majority = self._measured()
        inherit(network, lesson.model.network)
        learn(network, lesson.train)
        return {
            "model": lesson.model.name,
            "base": {
                "name": place_of(lesson.model.name),
                "weights": lesson.described["weights"],
                "dtype": str(lesson.model.network.dtype),
            },
            "head": {
                "name": lesson.task.name,
                "kind": lesson.task.kind,
                "label_names": lesson.task.label_names,
                "regression": lesson.task.regression,
            },
            "learned": learned(network),
            "task": lesson.task.name,
            "strategy": str(self.strategy),
            "embeddings": self._embeddings,
            "method": self.method.spec(),
            "hyperparameters": self.hyperparameters.model_dump(mode="json"),
            "seed": self.seed,
            "layerscope": __version__,
            "score": outcome.best["score"],
            "best_epoch": outcome.best["epoch"],
            "epochs": outcome.epochs,
            "metric": metric,
            "majority": majority,
            "seconds": outcome.seconds,
            "epoch_seconds": outcome.epoch_seconds,
            "seconds_per_epoch": float(np.mean(outcome.epoch_seconds[1:] or outcome.epoch_seconds or [np.nan])),
            "cached": cached,
            "parameters": parameters[0],
            "trainable": parameters[1],
            "steps": outcome.steps,
            "rows": {"learned": len(lesson.train), "scored": len(lesson.validation)},
            "cut_off": self._cut_off(rows),
        }

    def _measured(self) -> tuple[str, float]:
        """The metric, and the score of always giving the most frequent class."""
        task = self.lesson.task
        return task.metric, metrics.majority(task.metric, self.lesson.labels, task.classes)

    def _cut_off(self, rows: Sequence[Any]) -> dict[str, int]:
        """How many of the texts are cut off."""
        return {"learned": rows[0].cut_off, "scored": rows[1].cut_off}


def place_of(name: str) -> str:
    """A model's name, which leads to it from other folders too where it is a folder."""
    path = Path(name).expanduser()
    return str(path.resolve()) if path.is_dir() else name


def prepared(model: Model, task: Task, strategy: Strategy, seed: int = 0) -> Model:
    """A copy of a model as a classifier for a task, cut at the head of a strategy in numbers."""
    tuned = classifier_of(model, task, seed)
    if int(strategy.head) == tuned.depth:
        return tuned
    shorter = load(cut(tuned, LayerPlan.truncated(tuned.depth, int(strategy.head))))
    shorter.name = tuned.name
    return shorter


def same_answers(got: np.ndarray, expected: np.ndarray, dtype: torch.dtype) -> bool:
    """Whether logits are equal to the rounding of a network of this float type, choices that a text lacks left out."""
    width = min(got.shape[-1], expected.shape[-1])  # texts with fewer choices have fewer answers
    got, expected = got[..., :width], expected[..., :width]
    finite = np.isfinite(expected) & np.isfinite(got)
    return close(torch.from_numpy(got[finite]).to(dtype), torch.from_numpy(expected[finite]).to(dtype))
