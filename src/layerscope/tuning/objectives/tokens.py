"""Objective of heads that answer token by token: running text (its next tokens, or masked ones) or tags.

A teacher's likeliest outputs at every place that is learned from can be computed once and stored; what that leaves out
is measured.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any, ClassVar, TypeVar

import numpy as np
import torch
from safetensors import safe_open
from safetensors.torch import save_file
from torch import Tensor

from layerscope.errors import InputError, log
from layerscope.evaluation.score import Score
from layerscope.evaluation.token_evaluator import COUNT, LOSS, TokenEvaluator, TokenHead, counted
from layerscope.extraction.forward import Runner, padded
from layerscope.extraction.items import Item, Items
from layerscope.extraction.loop import Loop, Window
from layerscope.models import Model
from layerscope.models.architecture import accepted_inputs
from layerscope.models.heads import HEADS
from layerscope.models.replay import caches_off
from layerscope.models.selfcheck import without_head
from layerscope.progress import progress
from layerscope.store import Artifact, is_sealed, seal, whole_file
from layerscope.tuning.frozen_cache import PrefixedNetwork
from layerscope.tuning.method import head_parameters
from layerscope.tuning.objectives.base import Distillation, Gain, Objective, Part, Teacher, gain_between
from layerscope.tuning.objectives.losses import Ask, Likeliest, divergence, head_loss, portions
from layerscope.tuning.trainer import ItemRows

T = TypeVar("T")
_SHARD_ROWS = 512
_GIB = 1 << 30
_ROWS = 32  # held-out rows on which the error of what is kept is measured


class KeptAnswers:
    """The teacher's likeliest outputs of every row, memory-mapped."""

    def __init__(self, files: Sequence[Any], counts: np.ndarray) -> None:
        self._files, self._counts = files, counts
        self._open: dict[int, Likeliest] = {}
        shard = np.arange(len(counts)) // _SHARD_ROWS
        starts = np.cumsum(counts) - counts
        self._start = starts - starts[shard * _SHARD_ROWS]

    def __len__(self) -> int:
        return len(self._counts)

    def item(self, place: int) -> Likeliest:
        """Return the likeliest outputs of one row."""
        shard, start = place // _SHARD_ROWS, int(self._start[place])
        if shard not in self._open:
            file = self._files[shard]
            self._open[shard] = Likeliest(file.get_tensor("outputs"), file.get_tensor("logs"))
        part = self._open[shard][slice(start, start + int(self._counts[place]))]
        return Likeliest(part.outputs.long(), part.logs)


@dataclass(eq=False)
class LikeliestAnswers(Artifact):
    """A teacher's likeliest outputs at the places that an evaluator scores."""

    kind = "teacher"
    version = 1

    teacher: Model
    evaluator: TokenEvaluator
    k: int

    def __post_init__(self) -> None:
        outputs = TokenHead(self.teacher).outputs
        if not 1 <= self.k <= outputs:
            raise InputError(f"{self.k} of the teacher's outputs were to be kept; it has {outputs}, so 1..{outputs}.")
        self._loop = Loop.over_tokens([self.teacher], self.evaluator.reading, encoder=self.evaluator.encoder)

    def spec(self) -> dict[str, Any]:
        asked = {name: value for name, value in self.evaluator.spec().items() if name != "model"}
        return {"teacher": self.teacher.spec(), **asked, "k": self.k}

    @cached_property
    def _items(self) -> Items:
        return self._loop.items(self.evaluator.examples)[0]

    @cached_property
    def _counts(self) -> np.ndarray:
        return np.asarray([len(item.take) for item in self._items])

    @property
    def size(self) -> float:
        """The size on the disk in GiB."""
        return int(self._counts.sum()) * self.k * 8 / _GIB

    def build(self, folder: Path) -> None:
        """Run the teacher over the examples and write the shards; those that an earlier try left are kept."""
        ask = _PlaceLogits(self.teacher, self.evaluator)
        examples = self.evaluator.examples

        def run(window: Window, places: np.ndarray) -> list[Likeliest]:
            items = window.chosen(places)[0]
            likeliest = ask(items, lambda logits: Likeliest.from_logits(logits, self.k))
            outputs, logs = (torch.cat([getattr(each, n) for each in likeliest]).cpu() for n in ("outputs", "logs"))
            sizes = [len(item.take) for item in items]
            return [Likeliest(*pair) for pair in zip(outputs.split(sizes), logs.split(sizes), strict=True)]

        with progress(f"{self.teacher.name}, its {self.k} likeliest outputs, once", len(examples)) as advance:
            for shard, start in enumerate(range(0, len(examples), _SHARD_ROWS)):
                path, rows = folder / _shard_name(shard), slice(start, start + _SHARD_ROWS)
                window = Window(examples.take(rows), [self._items[rows]])
                if is_sealed(path):
                    advance(len(window.examples))
                    continue
                answers: dict[int, Likeliest] = {}
                for places, likeliest in self._loop.through(window, run, advance=advance):
                    answers |= zip(places.tolist(), likeliest, strict=True)
                ordered = [answers[place] for place in range(len(window.examples))]
                with whole_file(path) as temporary:
                    outputs = torch.cat([each.outputs for each in ordered]).int()
                    save_file({"outputs": outputs, "logs": torch.cat([each.logs for each in ordered])}, temporary)
                seal(path)

    def open(self) -> KeptAnswers:
        """Return the answers, from the store, where they are made if they are not there."""
        log.warning(
            "The %d likeliest outputs of %s at %s places take %.2f GiB; they are computed once and kept in the store.",
            *(self.k, self.teacher.name, f"{int(self._counts.sum()):,}", self.size),
        )
        folder = self.produce()
        shards = range((len(self._items) + _SHARD_ROWS - 1) // _SHARD_ROWS)
        return KeptAnswers([safe_open(folder / _shard_name(k), framework="pt") for k in shards], self._counts)


def _shard_name(shard: int) -> str:
    return f"shard-{shard:05d}.safetensors"


class _PlaceLogits:
    """Computes a language model's logits at the places of items, a portion of them at a time."""

    def __init__(self, model: Model, evaluator: TokenEvaluator) -> None:
        self._head = TokenHead(model)
        self._runner = Runner(without_head(model), [0], evaluator.reading)
        self._base = model.network.base_model

    def __call__(self, items: Items | Sequence[Item], read: Callable[[Tensor], T]) -> list[T]:
        """Return what `read` makes of the logits (some places, outputs), one portion after the other."""
        inputs = self._runner.inputs(items)
        longest = inputs["input_ids"].shape[1]
        at = np.concatenate([k * longest + item.take for k, item in enumerate(items)])
        with self._runner.ready():
            output = self._base(**inputs)
            states = output.last_hidden_state.flatten(0, 1)[torch.from_numpy(at).to(inputs["input_ids"].device)]
            parts = portions(len(states), self._head.outputs, states.device)
            return [read(self._head.logits(output, states[part])) for part in parts]


def error_of(student: Model, teacher: Model, evaluator: TokenEvaluator, k: int) -> dict[str, float]:
    """Return what keeping only the likeliest outputs leaves out, on some held-out rows before anything is trained.

    Returns:
        `k`; `left_out`, the mean probability of all other outputs; `divergence` of the student from the teacher in
        nats, and `kept_divergence`, as much of it as the kept outputs show; `rows`, how many were looked at.
    """
    items = evaluator.subset(slice(_ROWS)).encoded()
    ask_student, ask_teacher = (_PlaceLogits(model, evaluator) for model in (student, teacher))
    sums, count = np.zeros(3), 0
    for item in items:
        student_logs = ask_student([item], lambda logits: logits.float().log_softmax(dim=-1))
        for logs, logits in zip(student_logs, ask_teacher([item], torch.clone), strict=True):
            some = Likeliest.from_logits(logits, k)
            parts = (some.rest, divergence(logs, logits)[0], divergence(logs, some)[0])
            sums += [float(part.sum()) for part in parts]
            count += len(logs)
    left, full, kept = sums / max(count, 1)
    return {"k": k, "left_out": left, "divergence": full, "kept_divergence": kept, "rows": len(items)}


PLACES, TARGETS, OUTPUTS, LOGS = "places", "targets", "likeliest", "likeliest_logs"


class TokenObjective(Objective):
    """Heals and scores on what two token evaluators ask: running text, masked tokens or tags."""

    key: ClassVar[str] = "TokenAim"
    by_token = True
    one_length = True

    def __init__(self, learned: TokenEvaluator, scored: TokenEvaluator, distillation: Distillation) -> None:
        super().__init__(learned.model, _part(learned), _part(scored), distillation)
        self.evaluator, self._learned = scored, learned
        self.rows_are = scored.rows_are  # type: ignore[misc]

    @property
    def metric(self) -> str:
        return self.evaluator.metric

    @property
    def majority(self) -> float:
        return self.evaluator.majority

    def settings(self) -> dict[str, Any]:
        units = {"units": version} if (version := self.evaluator.units_version) > 1 else {}  # the gains are kept, too
        return {"learned": _items_spec(self._learned), "scored": _items_spec(self.evaluator), **units}

    @cached_property
    def kept_answers(self) -> KeptAnswers | None:
        """The teacher's likeliest outputs at every place that is learned from, where they are to be kept."""
        distillation = self.distillation
        if distillation.teacher is None or distillation.keep is None:
            return None
        return LikeliestAnswers(distillation.teacher, self._learned, distillation.keep).open()

    def resampled(self) -> str:
        return self.evaluator.resampled()

    def extra_results(self) -> dict[str, Any]:
        distillation = self.distillation
        if distillation.teacher is None or distillation.keep is None:
            return {}
        return {"kept": error_of(self.model, distillation.teacher, self.evaluator, distillation.keep)}

    def module(self, tuned: Model, frozen: int, trains_embeddings: bool) -> PrefixedNetwork:
        teacher = self.distillation.teacher if self.kept_answers is None else None
        return TokenHealing(tuned, frozen, trains_embeddings, teacher, self.distillation.mix)

    def collate(self, tuned: Model) -> Callable[[Sequence[dict[str, Any]]], dict[str, Tensor]]:
        return TokenCollate(tuned, self.learned.items, self.kept_answers)

    def metrics(self, prediction: Any) -> dict[str, float]:
        sums = np.asarray(prediction.predictions)
        if np.isnan(sums).any():
            return {"score": float("nan"), "held_out": float("nan")}
        total = sums.astype(float).sum(axis=0)
        return {"score": self.evaluator.value(sums), "held_out": float(total[LOSS] / max(total[COUNT], 1))}

    def answers(self, model: Model, count: int | None = None) -> np.ndarray:
        evaluator = self.evaluator if count is None else self.evaluator.subset(slice(count))
        return evaluator.with_model(model).logits(note=False)

    def score(self, model: Model, answers: np.ndarray) -> Score:
        return self.evaluator.with_model(model).score(answers)

    def gain(self, before: np.ndarray, after: np.ndarray) -> Gain:
        return gain_between(self.evaluator, before, after)


def _part(evaluator: TokenEvaluator) -> Part:
    return Part(evaluator.examples, evaluator.encoder, evaluator.reading, evaluator.encoded())


def _items_spec(evaluator: TokenEvaluator) -> dict[str, Any]:
    """Return how texts become items and targets; the model and the rows are in the spec elsewhere."""
    whole = evaluator.spec()
    return {name: value for name, value in whole.items() if name != "model"}


@dataclass
class TokenCollate:
    """Rows -> tokens, the places that count as positions among all of them, and what is right there."""

    model: Model
    learned: Items  # the items that the kept answers are of
    kept_answers: KeptAnswers | None = None

    def __post_init__(self) -> None:
        self._accepted = accepted_inputs(self.model.network.base_model)

    def __call__(self, entries: Sequence[dict[str, Any]]) -> dict[str, Tensor]:
        rows: ItemRows = entries[0]["rows"]
        places = [place for entry in entries for place in entry["items"]]
        items: list[Item] = [rows.items[place] for place in places]
        batch = {k: v for k, v in padded(items, self.model.pad_token).items() if k in self._accepted}
        longest = batch["input_ids"].shape[1]
        if HEADS[self.model.head].causal and all(len(item) == longest for item in items):
            batch.pop("attention_mask", None)  # nothing is padded, and attention is faster without a mask
        batch |= rows.states(places)
        batch[PLACES] = torch.from_numpy(np.concatenate([k * longest + item.take for k, item in enumerate(items)]))
        batch[TARGETS] = torch.from_numpy(np.concatenate([item.targets for item in items]))
        if self.kept_answers is not None and rows.items is self.learned:
            likeliest = [self.kept_answers.item(place) for place in places]
            batch[OUTPUTS] = torch.cat([each.outputs for each in likeliest])
            batch[LOGS] = torch.cat([each.logs for each in likeliest])
        batch["labels"] = torch.tensor([int(entry["label"]) for entry in entries])
        return batch


class TokenHealing(PrefixedNetwork):
    """A network that gives the loss at the places that count in training, else the sums of a `TokenEvaluator`."""

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
        given = self.answering_prefix(inputs)
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
                return self._row_sums(head, states, targets, places, len(labels), inputs["input_ids"].shape[1])
            options: dict[str, Any] = {"parameters": self._trained, "teacher": teacher, "mix": self._mix}
            return {"loss": head_loss(head, states, targets, outputs=self._head.outputs, **options)}

    def _ask(self, inputs: dict[str, Tensor], places: Tensor) -> Ask:
        """Return a function that gives the teacher's logits at some places of a batch; its head runs when asked."""
        assert self._teacher is not None
        assert self._teachers_head is not None
        teacher, head = self._teacher, self._teachers_head
        output = teacher(lambda network: network.base_model(**inputs))
        states = output.last_hidden_state.flatten(0, 1).index_select(0, places)
        return lambda part: teacher(lambda _: head.logits(output, states[part]))

    def _row_sums(
        self, head: Any, states: Tensor, targets: Tensor, places: Tensor, rows: int, longest: int
    ) -> dict[str, Tensor]:
        """Return the loss, and (rows, 3) sums of each row as a `TokenEvaluator` keeps them."""
        sums = torch.zeros(rows, 3, device=states.device)
        for part in portions(len(states), self._head.outputs, states.device):
            sums.index_add_(0, places[part] // longest, counted(head(states[part]), targets[part]))
        return {"loss": sums[:, LOSS].sum() / sums[:, COUNT].sum().clamp(min=1), "logits": sums}
