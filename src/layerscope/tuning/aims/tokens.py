"""Heads that answer token by token, healed on running text (its next tokens, or masked ones) or on tags."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
import torch
from torch import Tensor

from layerscope.evaluation.score import Score
from layerscope.evaluation.tokens import COUNT, LOSS, TokenHead, TokenSitting, counted
from layerscope.extraction.forward import padded
from layerscope.extraction.items import Item, Items
from layerscope.models import Model
from layerscope.models.anatomy import accepted_inputs
from layerscope.models.replay import caches_off
from layerscope.tuning.aims.aim import Aim, Part, Teacher, Teaching
from layerscope.tuning.freezing import Prefixed
from layerscope.tuning.gains import Gain, gain_between
from layerscope.tuning.kept_answers import KeptAnswers, LikeliestAnswers, error_of
from layerscope.tuning.losses import Ask, Likeliest, head_loss, portions
from layerscope.tuning.method import head_parameters
from layerscope.tuning.rows import ItemRows

PLACES, TARGETS, OUTPUTS, LOGS = "places", "targets", "likeliest", "likeliest_logs"


class TokenAim(Aim):
    """The exam of running text, of masked tokens or of tags, learned from and held out."""

    one_length = True

    def __init__(self, learned: TokenSitting, scored: TokenSitting, teaching: Teaching) -> None:
        super().__init__(learned.model, _part(learned), _part(scored), teaching)
        self.sitting, self._learned = scored, learned
        self.rows_are = scored.rows_are  # type: ignore[misc]

    @property
    def metric(self) -> str:
        return self.sitting.metric

    @property
    def majority(self) -> float:
        return self.sitting.majority

    def settings(self) -> dict[str, Any]:
        return {"learned": _exam_spec(self._learned), "scored": _exam_spec(self.sitting)}

    @cached_property
    def kept(self) -> KeptAnswers | None:
        """The teacher's likeliest outputs at every place that is learned from, where they are to be kept."""
        teaching = self.teaching
        if teaching.teacher is None or teaching.kept is None:
            return None
        return LikeliestAnswers(teaching.teacher, self._learned, teaching.kept).open()

    def told(self) -> dict[str, Any]:
        teaching = self.teaching
        if teaching.teacher is None or teaching.kept is None:
            return {}
        return {"kept": error_of(self.model, teaching.teacher, self.sitting, teaching.kept)}

    def module(self, tuned: Model, frozen: int, trains_embeddings: bool) -> Prefixed:
        teacher = self.teaching.teacher if self.kept is None else None
        return TokenHealing(tuned, frozen, trains_embeddings, teacher, self.teaching.mix)

    def collate(self, tuned: Model) -> Callable[[Sequence[dict[str, Any]]], dict[str, Tensor]]:
        return TokenCollate(tuned, self.learned.items, self.kept)

    def metrics(self, prediction: Any) -> dict[str, float]:
        sums = np.asarray(prediction.predictions)
        if np.isnan(sums).any():
            return {"score": float("nan"), "held_out": float("nan")}
        total = sums.astype(float).sum(axis=0)
        return {"score": self.sitting.value(sums), "held_out": float(total[LOSS] / max(total[COUNT], 1))}

    def answers(self, model: Model, count: int | None = None) -> np.ndarray:
        sitting = self.sitting if count is None else self.sitting.taken(slice(count))
        return sitting.of(model).logits(note=False)

    def score(self, model: Model, answers: np.ndarray) -> Score:
        return self.sitting.of(model).score(answers)

    def gain(self, before: np.ndarray, after: np.ndarray) -> Gain:
        return gain_between(self.sitting, before, after)


def _part(sitting: TokenSitting) -> Part:
    return Part(sitting.examples, sitting.encoder, sitting.reading, sitting.encoded())


def _exam_spec(sitting: TokenSitting) -> dict[str, Any]:
    """How texts become items and targets; the model and the rows are said elsewhere."""
    whole = sitting.spec()
    return {name: value for name, value in whole.items() if name != "model"}


@dataclass
class TokenCollate:
    """Rows -> tokens, the places that count as positions among all of them, and what is right there."""

    model: Model
    learned: Items  # the items that the kept answers are of
    kept: KeptAnswers | None = None

    def __post_init__(self) -> None:
        self._accepted = accepted_inputs(self.model.network.base_model)

    def __call__(self, entries: Sequence[dict[str, Any]]) -> dict[str, Tensor]:
        rows: ItemRows = entries[0]["rows"]
        places = [place for entry in entries for place in entry["items"]]
        items: list[Item] = [rows.items[place] for place in places]
        batch = {k: v for k, v in padded(items, self.model.pad_token).items() if k in self._accepted}
        longest = batch["input_ids"].shape[1]
        if self.model.head == "next" and all(len(item) == longest for item in items):
            batch.pop("attention_mask", None)  # nothing is padded, and attention is faster without a mask
        batch |= rows.states(places)
        batch[PLACES] = torch.from_numpy(np.concatenate([k * longest + item.take for k, item in enumerate(items)]))
        batch[TARGETS] = torch.from_numpy(np.concatenate([item.targets for item in items]))
        if self.kept is not None and rows.items is self.learned:
            likeliest = [self.kept.item(place) for place in places]
            batch[OUTPUTS] = torch.cat([each.outputs for each in likeliest])
            batch[LOGS] = torch.cat([each.logs for each in likeliest])
        batch["labels"] = torch.tensor([int(entry["label"]) for entry in entries])
        return batch


class TokenHealing(Prefixed):
    """The network; it gives the loss at the places that count while it is trained, else what an exam keeps of rows."""

    def __init__(
        self, model: Model, frozen: int, trains_embeddings: bool, teacher: Model | None = None, mix: float = 0.0
    ) -> None:
        super().__init__(model, frozen, trains_embeddings)
        self._head = TokenHead(model)
        self._trained = [parameter for parameter in head_parameters(model) if parameter.requires_grad]
        self._teacher = None if teacher is None else Teacher(teacher)
        self._teachers_head = None if teacher is None else TokenHead(teacher)
        self._mix = mix

    def forward(self, **inputs: Any) -> dict[str, Tensor]:
        places, targets, labels = (inputs.pop(name) for name in (PLACES, TARGETS, "labels"))
        outputs, logs = (inputs.pop(name, None) for name in (OUTPUTS, LOGS))
        given = self.given(inputs)
        teacher: Ask | None = None
        if self.training and outputs is not None:
            kept = Likeliest(outputs, logs)
            teacher = kept.__getitem__
        elif self.training and self._teacher is not None:
            teacher = self._ask(inputs, places)
        with caches_off(self.network):
            with given:
                output = self.network.base_model(**inputs)
            states = output.last_hidden_state.flatten(0, 1).index_select(0, places)

            def head(some: Tensor) -> Tensor:
                return self._head.logits(output, some)

            if not self.training:
                return self._marked(head, states, targets, places, len(labels), inputs["input_ids"].shape[1])
            options: dict[str, Any] = {"parameters": self._trained, "teacher": teacher, "mix": self._mix}
            return {"loss": head_loss(head, states, targets, outputs=self._head.outputs, **options)}

    def _ask(self, inputs: dict[str, Tensor], places: Tensor) -> Ask:
        """What the teacher says of the places of a batch; its head is run when a portion is asked for."""
        assert self._teacher is not None
        assert self._teachers_head is not None
        teacher, head = self._teacher, self._teachers_head
        output = teacher(lambda network: network.base_model(**inputs))
        states = output.last_hidden_state.flatten(0, 1).index_select(0, places)
        return lambda part: teacher(lambda _: head.logits(output, states[part]))

    def _marked(
        self, head: Any, states: Tensor, targets: Tensor, places: Tensor, rows: int, longest: int
    ) -> dict[str, Tensor]:
        """(rows, 3) what a TokenSitting keeps of each row."""
        sums = torch.zeros(rows, 3, device=states.device)
        for part in portions(len(states), self._head.outputs, states.device):
            sums.index_add_(0, places[part] // longest, counted(head(states[part]), targets[part]))
        return {"loss": sums[:, LOSS].sum() / sums[:, COUNT].sum().clamp(min=1), "logits": sums}
