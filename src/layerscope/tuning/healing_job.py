"""One healing as an artifact: a cut model that is trained, merged, saved, reopened and compared."""

from __future__ import annotations

import copy
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch

from layerscope.cutting.saving import describe
from layerscope.errors import ModelError, log
from layerscope.evaluation.score import Score
from layerscope.models import Model, load
from layerscope.models.heads import VOCABULARY
from layerscope.models.lineage import learn
from layerscope.models.load import carry
from layerscope.store import discard
from layerscope.tuning.aims.aim import Aim, whole
from layerscope.tuning.aims.classes import ClassAim
from layerscope.tuning.freezing import Prefixed
from layerscope.tuning.job import Caches, TrainingJob
from layerscope.tuning.kept_states import KeptStates
from layerscope.tuning.method import ADAPTER, CHECKPOINT, head_parameters
from layerscope.tuning.prefix import prefix_cache
from layerscope.tuning.rows import ItemRows
from layerscope.tuning.trainer import Marking, Outcome

_COMPARED = 8  # held-out rows to which the saved model must answer as the trained one does
_PASSES = 2.0  # over the rows from which on the output of frozen blocks is worth keeping
_SAME = {torch.float32: 2e-3, torch.float64: 2e-3}  # of the largest answer; merging adds up in another order


@dataclass(eq=False)
class HealingJob(TrainingJob):
    """A cut model, what it is healed by, and how. The lesson's model is the cut one."""

    kind = "healing"
    version = 2

    aim: Aim
    uncut: Model | None = None  # only for its score beside the others

    def __post_init__(self) -> None:
        self._kept: KeptStates | None = None

    def spec(self) -> dict[str, Any]:
        before = {} if self.uncut is None else {"uncut": self.uncut.spec()}
        return {**super().spec(), "aim": self.aim.spec(), **before}

    def prepared(self) -> Model:
        """A copy of the cut model, which will have learned from the lesson's rows."""
        before = self.lesson.model
        network = copy.deepcopy(before.network)
        carry(network, before.tokenizer)
        tuned = load(network)
        tuned.name = before.name
        learn(network, self.lesson.train)
        return tuned

    def reopened(self, folder: Path) -> Model:
        opened = self.method.reopen(self.lesson.model, folder)
        opened.name = opened.network.name_or_path = f"{self.lesson.model.name}, healed"
        return opened

    @property
    def passes(self) -> float:
        """How often each row is learned from."""
        h = self.hyperparameters
        if h.max_steps is None:
            return h.epochs
        return h.max_steps * h.batch * h.accumulate / max(len(self.aim.learned.items), 1)

    @property
    def _frozen(self) -> int:
        return 0 if self._trains_tied_head else super()._frozen

    @property
    def _trains_tied_head(self) -> bool:
        """Whether the head that is trained is the embeddings too, so that no layer stays as it is."""
        model = self.lesson.model
        if model.head not in VOCABULARY or self.method.size_is:  # methods with a size add to the blocks only
            return False
        tied = {id(parameter) for parameter in model.network.get_input_embeddings().parameters()}
        return any(id(parameter) in tied for parameter in head_parameters(model))

    def _caches(self) -> Caches:
        h, lesson = self.hyperparameters, self.lesson
        if not (self._frozen and h.cache) or lesson.model.anatomy.marks_summary:
            return None, None
        if self.passes < _PASSES:
            log.info("Every row is learned from about once, so the output of the frozen blocks is not kept.")
            return None, None
        self._kept = self._table()
        if self._kept is not None:
            return None, None
        learned, scored = (
            prefix_cache(
                *(lesson.model, part.examples, self._frozen, part.reading.max_length, h.cache_dtype, h.cache_limit),
                encoder=part.encoder if isinstance(self.aim, ClassAim) else whole(part),
                asked={} if isinstance(self.aim, ClassAim) else {"asked": self.aim.settings()},
            )
            for part in (self.aim.learned, self.aim.scored)
        )
        return (learned, scored) if learned is not None and scored is not None else (None, None)

    def _table(self) -> KeptStates | None:
        """Room for the output of the frozen blocks, which is kept as the training goes."""
        aim, model = self.aim, self.lesson.model
        if not aim.one_length or model.anatomy.time_first or self.hyperparameters.cache_dtype != "float32":
            return None
        like = next(model.network.parameters())
        return KeptStates.fitting([*aim.learned.items, *aim.scored.items], model.width, like)

    def _wrapped(self, tuned: Model, network: Any) -> Prefixed:
        wrapped = self.aim.module(tuned, self._frozen, self._embeddings)
        wrapped.kept = self._kept
        return wrapped

    def _marking(self, tuned: Model) -> Marking:
        return Marking(self.aim.collate(tuned), self.aim.metrics, "loss")

    def _rows(self, wrapped: Prefixed, tuned: Model, caches: Caches) -> tuple[ItemRows, ItemRows]:
        parts = (self.aim.learned, self.aim.scored)
        if self._kept is not None:
            firsts = (0, len(self.aim.learned.items))
            learned, scored = (self.aim.rows(part, first_kept=k) for part, k in zip(parts, firsts, strict=True))
            return learned, scored
        starts = self._hold(wrapped, caches, tuned.device)
        learned, scored = (
            self.aim.rows(part, cache=cache, first_row=start)
            for part, cache, start in zip(parts, caches, starts, strict=True)
        )
        return learned, scored

    def _save(self, tuned: Model, trained: Any, folder: Path, outcome: Outcome) -> None:
        """Merge, write, open again, and compare answers with those of the trained network."""
        for name in (CHECKPOINT, ADAPTER):
            discard(folder / name)
        expected = self.aim.answers(self.method.plain(tuned, trained), _COMPARED)
        self.method.save(tuned, trained, folder, self.strategy)
        opened = self.reopened(folder)
        got = self.aim.answers(opened, _COMPARED)
        if not _alike(got, expected, tuned.network.dtype):
            raise ModelError(
                f"What was saved of {self.lesson.model.name} answers unlike what was trained, so the healing does not "
                "count."
            )
        self._healed_answers = self.aim.answers(opened)
        self._healed = self._noted(self.aim.score(opened, self._healed_answers), outcome)
        scores = [] if np.isnan(self._healed) else [self._healed]
        describe(opened, folder / CHECKPOINT, scores, self._told(outcome))

    def _noted(self, score: Score, outcome: Outcome) -> Score:
        looks = len(outcome.epochs)
        said = f"not learned from; of {looks} looks the one with the least loss on these {self.aim.rows_are} was kept"
        score.note = "; ".join(part for part in (score.note, said) if part)
        return score

    def _result(self, outcome: Outcome, parameters: tuple[int, int], cached: bool, rows: Any) -> dict[str, Any]:
        before: dict[str, Any] = {"uncut": self.uncut, "cut": self.lesson.model}
        answers = {name: self.aim.answers(model) for name, model in before.items() if model is not None}
        scores = {name: float(self.aim.score(before[name], own)) for name, own in answers.items()}
        gains = {name: self.aim.gain(own, self._healed_answers).spec() for name, own in answers.items()}
        scores["healed"] = float(self._healed)
        teacher = self.aim.teaching.teacher
        h, items = self.hyperparameters, self.aim.learned.items
        taken = min(outcome.steps * h.batch * h.accumulate, round(self.passes * len(items)))
        tokens = round(float(np.mean([len(item) for item in items])) * taken)
        told = {
            **super()._result(outcome, parameters, cached, rows),
            "cached": cached or self._kept is not None,
            "score": scores["healed"],
            "scores": scores,
            "gains": gains,
            "metric": self.aim.metric,
            "majority": self.aim.majority,
            "rows": {"learned": len(items), "scored": len(self.aim.scored.items), "are": self.aim.rows_are},
            "tokens": tokens,
            "teacher": None if teacher is None else teacher.name,
            "mix": None if teacher is None else self.aim.teaching.mix,
            "loss": outcome.best["loss"],
            **self.aim.told(),
        }
        return told

    def _measured(self) -> tuple[str, float]:
        return self.aim.metric, self.aim.majority

    def _cut_off(self, rows: Any) -> dict[str, int]:
        learned, scored = (sum(item.truncated for item in part.items) for part in (self.aim.learned, self.aim.scored))
        return {"learned": learned, "scored": scored}


def _alike(got: np.ndarray, expected: np.ndarray, dtype: torch.dtype) -> bool:
    """Whether answers are equal except for the rounding of merged weights; choices that a text lacks are -inf."""
    if got.shape != expected.shape or not np.array_equal(np.isneginf(got), np.isneginf(expected)):
        return False
    there = ~np.isneginf(got)
    got, expected = got[there], expected[there]
    if not np.isfinite(got).all():
        return False
    scale = max(float(np.abs(expected).max()), 1e-6)
    return float(np.abs(got - expected).max()) <= _SAME.get(dtype, 3e-2) * scale
