"""A healing as an artifact: a cut model that is trained, merged, saved, reopened and compared."""

from __future__ import annotations

import gc
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch

from layerscope.cutting.patch import Patch
from layerscope.cutting.save import describe
from layerscope.errors import ModelError, log
from layerscope.evaluation.score import Score
from layerscope.models import Model, load
from layerscope.models.devices import free_on
from layerscope.models.heads import HEADS
from layerscope.models.lineage import learn
from layerscope.models.load import carry, sharing_copy
from layerscope.store import discard
from layerscope.tuning.frozen_cache import KeptStates, PrefixedNetwork, prefix_cache
from layerscope.tuning.method import ADAPTER, CHECKPOINT, head_parameters
from layerscope.tuning.objectives.base import Objective, whole
from layerscope.tuning.objectives.classification import ClassificationObjective
from layerscope.tuning.trainer import EvalSpec, ItemRows, Outcome
from layerscope.tuning.training_job import Caches, TrainingJob

PATCHED = "patched"  # the kind of job that solves a patch, and trains nothing
_COMPARED = 8  # held-out rows to which the saved model must answer as the trained one does
_COPIES = 2.2  # of the weights: merged ones, those of a second opening, and some room
_PASSES = 2.0  # over the rows from which on the output of frozen blocks is worth keeping
_SAME = {torch.float32: 2e-3, torch.float64: 2e-3}  # of the largest answer; merging adds up in another order


@dataclass(frozen=True)
class PatchedStart:
    """Where a training begins that has a patch before it: the cut model without the patch, and the patch."""

    plain: Model
    patch: Patch


@dataclass(eq=False)
class HealingJob(TrainingJob):
    """A cut model, the objective that heals it, and how it is trained. The model of `training_data` is the cut one."""

    kind = "healing"
    version = 2

    objective: Objective
    uncut: Model | None = None  # only for its score beside the others
    begun: PatchedStart | None = None  # the patch that is in the cut model, where there is one

    def __post_init__(self) -> None:
        self._kept: KeptStates | None = None

    def spec(self) -> dict[str, Any]:
        before: dict[str, Any] = {} if self.uncut is None else {"uncut": self.uncut.spec()}
        if self.begun is not None:  # it is scored, and what is said of the patch is kept
            before |= {"plain": self.begun.plain.spec(), "patch": self.begun.patch.sentences()}
        return {**super().spec(), "aim": self.objective.spec(), **before}

    def prepared(self) -> Model:
        """Return the cut model once more, in the same memory, marked as having learned from the training rows."""
        before = self.training_data.model
        network = sharing_copy(before.network)
        carry(network, before.tokenizer)
        tuned = load(network)
        tuned.name = before.name
        learn(network, self.training_data.train)
        return tuned

    def reopened(self, folder: Path) -> Model:
        opened = self.method.reopen(self.training_data.model, folder)
        opened.name = opened.network.name_or_path = f"{self.training_data.model.name}, healed"
        return opened

    @property
    def passes(self) -> float:
        """How often each row is learned from."""
        h = self.hyperparameters
        if h.max_steps is None:
            return h.epochs
        return h.max_steps * h.batch * h.accumulate / max(len(self.objective.learned.items), 1)

    @property
    def _frozen(self) -> int:
        return 0 if self._trains_tied_head else super()._frozen

    @property
    def _trains_tied_head(self) -> bool:
        """Whether the head that is trained is the embeddings too, so that no layer stays as it is."""
        model = self.training_data.model
        # Methods with a size add to the blocks only.
        if HEADS[model.head].outputs != "vocabulary" or self.method.size_is:
            return False
        tied = {id(parameter) for parameter in model.network.get_input_embeddings().parameters()}
        return any(id(parameter) in tied for parameter in head_parameters(model))

    def _caches(self) -> Caches:
        h, training_data = self.hyperparameters, self.training_data
        if not (self._frozen and h.cache) or training_data.model.architecture.marks_summary:
            return None, None
        if self.passes < _PASSES:  # the pass that fills a cache would cost as much as it saves
            log.info("Every row is learned from about once, so the output of the frozen blocks is not kept.")
            return None, None
        self._kept = self._table()
        if self._kept is not None:
            return None, None
        learned, scored = (
            prefix_cache(
                *(
                    training_data.model,
                    part.examples,
                    self._frozen,
                    part.reading.max_length,
                    h.cache_dtype,
                    h.cache_limit,
                ),
                encoder=part.encoder if isinstance(self.objective, ClassificationObjective) else whole(part),
                asked={}
                if isinstance(self.objective, ClassificationObjective)
                else {"asked": self.objective.settings()},
            )
            for part in (self.objective.learned, self.objective.scored)
        )
        return (learned, scored) if learned is not None and scored is not None else (None, None)

    def _table(self) -> KeptStates | None:
        """Return a table for the output of the frozen blocks, filled as the training goes, or None where none fits."""
        objective, model = self.objective, self.training_data.model
        if not objective.one_length or model.architecture.time_first or self.hyperparameters.cache_dtype != "float32":
            return None
        like = next(model.network.parameters())
        return KeptStates.fitting([*objective.learned.items, *objective.scored.items], model.width, like)

    def _wrapped(self, tuned: Model, network: Any) -> PrefixedNetwork:
        wrapped = self.objective.module(tuned, self._frozen, self._embeddings)
        wrapped.kept_states = self._kept
        return wrapped

    def _eval_spec(self, tuned: Model) -> EvalSpec:
        return EvalSpec(self.objective.collate(tuned), self.objective.metrics, "loss")

    def _rows(self, wrapped: PrefixedNetwork, tuned: Model, caches: Caches) -> tuple[ItemRows, ItemRows]:
        parts = (self.objective.learned, self.objective.scored)
        if self._kept is not None:
            firsts = (0, len(self.objective.learned.items))
            learned, scored = (self.objective.rows(part, first_kept=k) for part, k in zip(parts, firsts, strict=True))
            return learned, scored
        starts = self._hold(wrapped, caches, tuned.device)
        learned, scored = (
            self.objective.rows(part, cache=cache, first_row=start)
            for part, cache, start in zip(parts, caches, starts, strict=True)
        )
        return learned, scored

    def _save(self, tuned: Model, trained: Any, folder: Path, outcome: Outcome) -> Model:
        """Merge, write, reopen, compare answers with those of the trained network, and return what was saved."""
        for name in (CHECKPOINT, ADAPTER):
            discard(folder / name)
        expected = self.objective.answers(self.method.plain(tuned, trained), _COMPARED)
        make_room(tuned, trained)
        self.method.save(tuned, trained, folder, self.strategy)
        opened = self.reopened(folder)
        got = self.objective.answers(opened, _COMPARED)
        if not _alike(got, expected, tuned.network.dtype):
            raise ModelError(
                f"What was saved of {self.training_data.model.name} answers unlike what was trained, so the healing "
                "does not count."
            )
        self._healed_answers = self.objective.answers(opened)
        self._healed = self._noted(self.objective.score(opened, self._healed_answers), outcome)
        scores = [] if np.isnan(self._healed) else [self._healed]
        describe(opened, folder / CHECKPOINT, scores, self._training_entry(outcome))
        return opened

    def _noted(self, score: Score, outcome: Outcome) -> Score:
        looks = len(outcome.epochs)
        rows = self.objective.rows_are
        note = f"not learned from; of {looks} looks the one with the least loss on these {rows} was kept"
        score.note = "; ".join(part for part in (score.note, note) if part)
        return score

    def _result(self, outcome: Outcome, trainable: int, cached: bool, rows: Any) -> dict[str, Any]:
        before: dict[str, Any] = {"uncut": self.uncut, "cut": self.training_data.model}
        if self.begun is not None:
            # Gains over the cut are over the plain one, so that a patch and a training of the same cut can be compared.
            before["cut"] = self.begun.plain
            before |= {"patched": self.training_data.model} if self.begun.patch.applied else {}
        answers = {name: self.objective.answers(model) for name, model in before.items() if model is not None}
        scores = {name: float(self.objective.score(before[name], given)) for name, given in answers.items()}
        gains = {name: self.objective.gain(given, self._healed_answers).spec() for name, given in answers.items()}
        scores["healed"] = float(self._healed)
        teacher = self.objective.distillation.teacher
        h, items = self.hyperparameters, self.objective.learned.items
        taken = min(outcome.steps * h.batch * h.accumulate, round(self.passes * len(items)))
        tokens = round(float(np.mean([len(item) for item in items])) * taken)
        result = {
            **super()._result(outcome, trainable, cached, rows),
            "cached": cached or self._kept is not None,
            "score": scores["healed"],
            "scores": scores,
            "gains": gains,
            "metric": self.objective.metric,
            "majority": self.objective.majority,
            "rows": {"learned": len(items), "scored": len(self.objective.scored.items), "are": self.objective.rows_are},
            "intervals": self.objective.resampled(),
            "tokens": tokens,
            "teacher": None if teacher is None else teacher.name,
            "mix": None if teacher is None else self.objective.distillation.mix,
            "loss": outcome.best["loss"],
            **({} if self.begun is None else {"patch": described(self.begun.patch)}),
            **self.objective.extra_results(),
        }
        return result

    def _measured(self) -> tuple[str, float]:
        return self.objective.metric, self.objective.majority

    def _cut_off(self, rows: Any) -> dict[str, int]:
        learned, scored = (
            sum(item.truncated for item in part.items) for part in (self.objective.learned, self.objective.scored)
        )
        return {"learned": learned, "scored": scored}


def described(found: Patch) -> dict[str, Any]:
    """Return a patch as `training.json` keeps it: what was solved, what it is worth, and what was not done."""
    return {
        "applied": found.applied,
        "said": found.sentences(),
        # What is not folded in was only tried.
        "solved" if found.applied else "tried": list(found.tried),
        "domains": [{**asdict(domain), "regained": domain.regained} for domain in found.domains],
    }


def make_room(tuned: Model, trained: Any) -> None:
    """Bring a trained network to the host where its GPU has no room for what merging and comparing make of it.

    The models that it shares memory with stay where they are.
    """
    if tuned.device.type != "cuda":
        return
    gc.collect()  # of the training that is over, above all the optimizer's state
    size = sum(parameter.nbytes for parameter in tuned.network.parameters())
    if free_on(tuned.device) < _COPIES * size:
        log.info("The GPU has no room for merged weights beside the others, so they are merged on the host.")
        trained.to("cpu")
        torch.cuda.empty_cache()


def _alike(got: np.ndarray, expected: np.ndarray, dtype: torch.dtype) -> bool:
    """Return whether answers are equal up to the rounding of merged weights; choices that a text lacks are -inf."""
    if got.shape != expected.shape or not np.array_equal(np.isneginf(got), np.isneginf(expected)):
        return False
    there = ~np.isneginf(got)
    got, expected = got[there], expected[there]
    if not np.isfinite(got).all():
        return False
    scale = max(float(np.abs(expected).max()), 1e-6)
    return float(np.abs(got - expected).max()) <= _SAME.get(dtype, 3e-2) * scale
