"""A training as an artifact: everything that determines it, and how it is made, saved, compared and read again."""

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
from pydantic import ConfigDict, Field

from layerscope import metrics
from layerscope.cutting.cut import cut
from layerscope.cutting.plan import LayerPlan
from layerscope.cutting.save import describe
from layerscope.data import Examples, Task
from layerscope.distributed import Team
from layerscope.errors import ModelError, log
from layerscope.evaluation.classification import ClassificationEvaluator
from layerscope.evaluation.layer_heads import classifier_of
from layerscope.evaluation.score import UNKNOWN, Score
from layerscope.models import Model, load
from layerscope.models.extras import parameter_count
from layerscope.models.lineage import RECORD, Learned, inherit, learn, learned
from layerscope.models.load import separate
from layerscope.models.selfcheck import close
from layerscope.results import provenance_of
from layerscope.store import Artifact, Saved, discard, inside, read_json, write_json
from layerscope.tuning.frozen_cache import PrefixCache, PrefixedNetwork, prefix_cache
from layerscope.tuning.hyperparameters import Hyperparameters
from layerscope.tuning.method import ADAPTER, CHECKPOINT, Method, trainable_count
from layerscope.tuning.strategy import Strategy
from layerscope.tuning.trainer import EvalSpec, ItemRows, Outcome, TextRows, train
from layerscope.version import __version__

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
    """The contents of `training.json`."""

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


class SavedCard(Saved):
    """The size of a checkpoint, in the record beside its weights."""

    parameters: int | None = Field(None, ge=0)


def read_result(folder: Path) -> dict[str, Any]:
    """Return what a training has written of itself; raise ModelError where it is damaged."""
    how: Any = {"error": ModelError, "way_out": "tune again"}
    result = read_json(inside(folder, RESULT), TrainingCard, **how).model_dump()
    if (folder / CHECKPOINT / RECORD).is_file():
        # What 0.2 wrote counts LoRA's updates beside the weights that they are merged into; its checkpoints do not.
        saved = read_json(inside(folder / CHECKPOINT, RECORD), SavedCard, **how).parameters
        result["parameters"] = result["parameters"] if saved is None else saved
    return result


_COMPARED = 32  # validation texts on which the saved result must answer as the trained one
_CHECKPOINTS = "checkpoints"  # of a training that is under way

Caches = tuple[PrefixCache | None, PrefixCache | None]


@dataclass(eq=False)
class TrainingData:
    """A model, and the rows of a task that it learns from and is scored on. Many trainings may share one."""

    model: Model
    task: Task
    train: Examples
    validation: Examples

    @cached_property
    def spec(self) -> dict[str, Any]:
        """Everything that decides it, for keys of the store; the weights are read once for all trainings."""
        model, task = self.model.spec(), self.task.spec()
        return {"model": model, "task": task, "train": self.train.spec(), "validation": self.validation.spec()}

    @cached_property
    def described(self) -> dict[str, Any]:
        """The model, for the provenance of results."""
        return self.model.described()

    @property
    def labels(self) -> np.ndarray:
        """The labels of the rows that are scored."""
        assert self.validation.labels is not None
        return self.validation.labels


@dataclass(eq=False)
class TrainingJob(Artifact):
    """One training: model and rows, a strategy in numbers, a method, hyperparameters with one learning rate, a seed."""

    kind = "training"
    version = 5

    training_data: TrainingData
    strategy: Strategy
    method: Method
    hyperparameters: Hyperparameters
    seed: int

    def spec(self) -> dict[str, Any]:
        parts = {"strategy": self.strategy.spec(), "method": self.method.spec()}
        return {**self.training_data.spec, **parts, "hyperparameters": self.hyperparameters.spec(), "seed": self.seed}

    def build(self, folder: Path) -> None:
        """Train, save and compare; in a folder with what an earlier try left, go on from there."""
        tuned, trained, outcome, facts = self.train(folder)
        started = time.perf_counter()
        if Team.current().is_main:
            saved = self._save(tuned, trained, folder, outcome)
            parameters = parameter_count(saved.network)
            write_json(folder / RESULT, {**self._result(outcome, *facts), "parameters": parameters})
            discard(folder / _CHECKPOINTS)
        log.info("Saved, opened again and compared in %.1f s.", time.perf_counter() - started)

    def train(self, folder: Path) -> tuple[Model, Any, Outcome, tuple[int, bool, Sequence[ItemRows]]]:
        """Return the trained model, the trained module, the outcome, and its trainable parameters, caching and rows."""
        training_data, method = self.training_data, self.method
        method.check(training_data.model, self.strategy)
        tuned = self.prepared()
        caches = self._caches()
        trained = method.apply(tuned, self.strategy, self._embeddings, self.seed)
        separate(tuned.network, training_data.model.network)
        wrapped = self._wrapped(tuned, trained if method.stands_for_network else None)
        trainable = trainable_count(wrapped.network)
        rows = self._rows(wrapped, tuned, caches)
        outcome = train(
            wrapped,
            tuned,
            self._eval_spec(tuned),
            rows,
            self.hyperparameters,
            seed=self.seed,
            folder=folder / _CHECKPOINTS,
            title=f"{training_data.model.name} on {training_data.task.name}, {self.strategy}, {method.name}",
        )
        if np.isnan(outcome.logits).any():
            raise ModelError(
                f"The training of {training_data.model.name} diverged: its answers are no longer numbers. Take a "
                f"learning rate below {self.hyperparameters.rates[0]:g}."
            )
        log.info("%d steps took %.1f s.", outcome.steps, outcome.seconds)
        return tuned, trained, outcome, (trainable, caches[0] is not None, rows)

    def _wrapped(self, tuned: Model, network: Any) -> PrefixedNetwork:
        return PrefixedNetwork(tuned, self._frozen, self._embeddings, network)

    def _eval_spec(self, tuned: Model) -> EvalSpec:
        return EvalSpec.from_task(tuned, self.training_data.task)

    def prepared(self) -> Model:
        """Return a classifier for the task, cut at the strategy's head, that names the training rows as learned."""
        tuned = prepared(self.training_data.model, self.training_data.task, self.strategy, self.seed)
        learn(tuned.network, self.training_data.train)
        return tuned

    def reopened(self, folder: Path) -> Model:
        """Return the saved result as a model: a standard checkpoint, or the base model with what was added to it."""
        base = self.training_data.model if self.method.standard else self.prepared()
        opened = self.method.reopen(base, folder)
        opened.name = opened.network.name_or_path = f"{self.training_data.model.name}, tuned"
        return opened

    @property
    def _embeddings(self) -> bool:
        return self.strategy.trains_embeddings(self.training_data.model.depth)

    @property
    def _frozen(self) -> int:
        """The highest layer that no training can change."""
        if self._embeddings or not self.method.freezes_below:
            return 0
        return int(self.strategy.head) if not self.strategy.blocks else self.strategy.blocks[0] - 1

    def _caches(self) -> Caches:
        h, training_data = self.hyperparameters, self.training_data
        # Where the summary token is marked, the head changes what the blocks compute, so that nothing stays the same.
        if not (self._frozen and h.cache) or training_data.model.architecture.marks_summary:
            return None, None
        learned, scored = (
            prefix_cache(training_data.model, part, self._frozen, h.max_length, h.cache_dtype, h.cache_limit)
            for part in (training_data.train, training_data.validation)
        )
        return (learned, scored) if learned is not None and scored is not None else (None, None)

    def _rows(self, wrapped: PrefixedNetwork, tuned: Model, caches: Caches) -> tuple[ItemRows, ItemRows]:
        length, training_data = self.hyperparameters.max_length, self.training_data
        starts = self._hold(wrapped, caches, tuned.device)
        learned, scored = (
            TextRows(tuned, part, length, cache, start)
            for part, cache, start in zip((training_data.train, training_data.validation), caches, starts, strict=True)
        )
        return learned, scored

    def _hold(self, wrapped: PrefixedNetwork, caches: Caches, device: torch.device) -> tuple[int | None, int | None]:
        """Put cached states onto the GPU where they fit into half of its free memory.

        Return where the states of each split begin there; None where they stay on the host.
        """
        learned, scored = caches
        if device.type != "cuda" or learned is None or scored is None:
            return None, None
        each = 4 if self.hyperparameters.cache_dtype == "float32" else 2
        size = (learned.tokens + scored.tokens + 2) * self.training_data.model.width * each
        if size > torch.cuda.mem_get_info(device)[0] / 2:
            return None, None
        wrapped.table = torch.cat([learned.table(device), scored.table(device)])
        return 0, learned.tokens + 1

    def _save(self, tuned: Model, trained: Any, folder: Path, outcome: Outcome) -> Model:
        """Write the result, reopen it, compare its answers with those of the trained network, and return it."""
        for name in (CHECKPOINT, ADAPTER):
            discard(folder / name)
        part = self.training_data.validation.take(slice(_COMPARED))
        # The Trainer's answers are rounded to bfloat16 on their way where that was asked for; then the trained network
        # answers again as the saved one will, so that one bound holds for every training.
        expected = outcome.logits[: len(part)]
        if self.hyperparameters.bf16 or self.hyperparameters.cache_dtype != "float32":
            expected = self._answers(self.method.plain(tuned, trained), part)
        self.method.save(tuned, trained, folder, self.strategy)
        opened = self.reopened(folder)
        if not same_answers(self._answers(opened, part), expected, tuned.network.dtype):
            raise ModelError(
                f"What was saved of {self.training_data.model.name} answers unlike what was trained, so the training "
                "does not count."
            )
        if self.method.standard:
            describe(opened, folder / CHECKPOINT, self._scores(opened, outcome), self._training_entry(outcome))
        return opened

    def _training_entry(self, outcome: Outcome) -> dict[str, Any]:
        """Return the training for the checkpoint's card: how, on what, and with which settings."""
        h, train = self.hyperparameters, self.training_data.train
        entry = {
            "method": self.method.name,
            "strategy": str(self.strategy),
            "size": self.method.size,
            "task": train.task,
            "split": train.split,
            "n": len(train),
            "data": train.fingerprint,
            "learning_rate": h.rates[0],
            "batch": h.batch,
            "steps": outcome.steps,
            "max_length": h.max_length,
            "best_epoch": outcome.best["epoch"],
            "seed": self.seed,
        }
        return {name: value for name, value in entry.items() if value is not None}

    def _scores(self, opened: Model, outcome: Outcome) -> list[Score]:
        """Return the score of the epoch that is kept, for the checkpoint's card; nothing where it is undefined."""
        value, task, rows = outcome.best["score"], self.training_data.task, self.training_data.validation
        if np.isnan(value):
            return []
        majority = metrics.majority(task.metric, self.training_data.labels, task.classes)
        settings = {"metric": task.metric, "max_length": self.hyperparameters.max_length}
        score = Score(
            value,
            metric=task.metric,
            metrics={task.metric: value},
            n=len(rows),
            majority=majority,
            provenance=provenance_of([opened], rows, settings),
            interval=self._interval(outcome),
            interval_note="one text alone cannot be resampled" if len(rows) < 2 else "",
            kind=ClassificationEvaluator.score_kind,
            note=f"not learned from; of {len(outcome.epochs)} epochs the best on these rows was kept",
        )
        return [score]

    def _interval(self, outcome: Outcome) -> tuple[float, float]:
        """Return the interval of the score, by the bootstrap over the rows that were scored."""
        task, labels = self.training_data.task, self.training_data.labels
        predictions = outcome.logits[..., 0] if task.regression else outcome.logits.argmax(axis=-1)
        return metrics.bootstrap(task.metric, labels, predictions, task.classes) if len(labels) > 1 else UNKNOWN

    def _answers(self, model: Model, part: Examples) -> np.ndarray:
        return ClassificationEvaluator(model, self.training_data.task, part, self.hyperparameters.max_length).logits(
            note=False
        )

    def _result(self, outcome: Outcome, trainable: int, cached: bool, rows: Sequence[ItemRows]) -> dict[str, Any]:
        """Return what the training writes of itself into `training.json`."""
        training_data, network = self.training_data, SimpleNamespace()
        metric, majority = self._measured()
        inherit(network, training_data.model.network)
        learn(network, training_data.train)
        return {
            "model": training_data.model.name,
            "base": {
                "name": place_of(training_data.model.name),
                "weights": training_data.described["weights"],
                "dtype": str(training_data.model.network.dtype),
            },
            "head": {
                "name": training_data.task.name,
                "kind": training_data.task.kind,
                "label_names": training_data.task.label_names,
                "regression": training_data.task.regression,
            },
            "learned": learned(network),
            "task": training_data.task.name,
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
            "trainable": trainable,
            "steps": outcome.steps,
            "rows": {"learned": len(training_data.train), "scored": len(training_data.validation)},
            "cut_off": self._cut_off(rows),
        }

    def _measured(self) -> tuple[str, float]:
        """Return the metric, and the score of always giving the most frequent class."""
        task = self.training_data.task
        return task.metric, metrics.majority(task.metric, self.training_data.labels, task.classes)

    def _cut_off(self, rows: Sequence[Any]) -> dict[str, int]:
        """Return how many of the texts are cut off."""
        return {"learned": rows[0].cut_off, "scored": rows[1].cut_off}


def place_of(name: str) -> str:
    """Return a model's name; of a folder its absolute path, which leads to it from other folders too."""
    path = Path(name).expanduser()
    return str(path.resolve()) if path.is_dir() else name


def prepared(model: Model, task: Task, strategy: Strategy, seed: int = 0) -> Model:
    """Return a copy of a model as a classifier for a task, cut at the head of a strategy in numbers."""
    tuned = classifier_of(model, task, seed)
    if int(strategy.head) == tuned.depth:
        return tuned
    shorter = load(cut(tuned, LayerPlan.truncated(tuned.depth, int(strategy.head))))
    shorter.name = tuned.name
    return shorter


def same_answers(got: np.ndarray, expected: np.ndarray, dtype: torch.dtype) -> bool:
    """Return whether logits are equal up to the rounding of this float type, without choices that a text lacks."""
    width = min(got.shape[-1], expected.shape[-1])  # texts with fewer choices have fewer answers
    got, expected = got[..., :width], expected[..., :width]
    finite = np.isfinite(expected) & np.isfinite(got)
    return close(torch.from_numpy(got[finite]).to(dtype), torch.from_numpy(expected[finite]).to(dtype))
