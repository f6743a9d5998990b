"""A teacher's likeliest outputs at every place that is learned from, run once and kept, and what that leaves out."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any, TypeVar

import numpy as np
import torch
from safetensors import safe_open
from safetensors.torch import save_file
from torch import Tensor

from layerscope.errors import InputError, log
from layerscope.evaluation.tokens import TokenHead, TokenSitting
from layerscope.extraction.forward import Runner
from layerscope.extraction.items import Item, Items
from layerscope.extraction.loop import Loop, Window
from layerscope.models import Model
from layerscope.models.selfcheck import of_base
from layerscope.progress import progress
from layerscope.store import Artifact, is_sealed, seal, whole_file
from layerscope.tuning.losses import Likeliest, divergence, portions

T = TypeVar("T")
_SHARD_ROWS = 512
_GIB = 1 << 30
_ROWS = 32  # held-out rows on which the error of what is kept is measured


class KeptAnswers:
    """The likeliest outputs of every row, memory-mapped."""

    def __init__(self, files: Sequence[Any], counts: np.ndarray) -> None:
        self._files, self._counts = files, counts
        self._open: dict[int, Likeliest] = {}
        shard = np.arange(len(counts)) // _SHARD_ROWS
        starts = np.cumsum(counts) - counts
        self._start = starts - starts[shard * _SHARD_ROWS]

    def __len__(self) -> int:
        return len(self._counts)

    def item(self, place: int) -> Likeliest:
        """Those of one row."""
        shard, start = place // _SHARD_ROWS, int(self._start[place])
        if shard not in self._open:
            file = self._files[shard]
            self._open[shard] = Likeliest(file.get_tensor("outputs"), file.get_tensor("logs"))
        part = self._open[shard][slice(start, start + int(self._counts[place]))]
        return Likeliest(part.outputs.long(), part.logs)


@dataclass(eq=False)
class LikeliestAnswers(Artifact):
    """A teacher's likeliest outputs at the places that an exam asks for."""

    kind = "teacher"
    version = 1

    teacher: Model
    sitting: TokenSitting
    k: int

    def __post_init__(self) -> None:
        outputs = TokenHead(self.teacher).outputs
        if not 1 <= self.k <= outputs:
            raise InputError(f"{self.k} of the teacher's outputs were to be kept; it has {outputs}, so 1..{outputs}.")
        self._loop = Loop.over_tokens([self.teacher], self.sitting.reading, encoder=self.sitting.encoder)

    def spec(self) -> dict[str, Any]:
        asked = {name: value for name, value in self.sitting.spec().items() if name != "model"}
        return {"teacher": self.teacher.spec(), **asked, "k": self.k}

    @cached_property
    def _items(self) -> Items:
        return self._loop.items(self.sitting.examples)[0]

    @cached_property
    def _counts(self) -> np.ndarray:
        return np.asarray([len(item.take) for item in self._items])

    @property
    def size(self) -> float:
        """GiB on the disk."""
        return int(self._counts.sum()) * self.k * 8 / _GIB

    def build(self, folder: Path) -> None:
        """Shards that an earlier try left are kept."""
        ask = _Asking(self.teacher, self.sitting)
        examples = self.sitting.examples

        def run(window: Window, places: np.ndarray) -> list[Likeliest]:
            items = window.chosen(places)[0]
            likeliest = ask(items, lambda logits: Likeliest.of(logits, self.k))
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
        """The answers, from the store, where they are made if they are not there."""
        log.warning(
            "The %d likeliest outputs of %s at %s places take %.2f GiB; they are computed once and kept in the store.",
            *(self.k, self.teacher.name, f"{int(self._counts.sum()):,}", self.size),
        )
        folder = self.produce()
        shards = range((len(self._items) + _SHARD_ROWS - 1) // _SHARD_ROWS)
        return KeptAnswers([safe_open(folder / _shard_name(k), framework="pt") for k in shards], self._counts)


def _shard_name(shard: int) -> str:
    return f"shard-{shard:05d}.safetensors"


class _Asking:
    """A language model asked at the places of items, a portion of them at a time."""

    def __init__(self, model: Model, sitting: TokenSitting) -> None:
        self._head = TokenHead(model)
        self._runner = Runner(of_base(model), [0], sitting.reading)
        self._base = model.network.base_model

    def __call__(self, items: Items | Sequence[Item], read: Callable[[Tensor], T]) -> list[T]:
        """What is read of the logits (some places, outputs), one portion after the other."""
        inputs = self._runner.inputs(items)
        longest = inputs["input_ids"].shape[1]
        at = np.concatenate([k * longest + item.take for k, item in enumerate(items)])
        with self._runner.ready():
            output = self._base(**inputs)
            states = output.last_hidden_state.flatten(0, 1)[torch.from_numpy(at).to(inputs["input_ids"].device)]
            parts = portions(len(states), self._head.outputs, states.device)
            return [read(self._head.logits(output, states[part])) for part in parts]


def error_of(student: Model, teacher: Model, sitting: TokenSitting, k: int) -> dict[str, float]:
    """What keeping only the likeliest outputs leaves out, on some held-out rows before anything is trained.

    Returns:
        `k`; `left_out`, the mean probability of all other outputs; `divergence` of the student from the teacher in
        nats, and `kept_divergence`, as much of it as the kept outputs show; `rows`, how many were looked at.
    """
    items = sitting.taken(slice(_ROWS)).encoded()
    ask_student, ask_teacher = (_Asking(model, sitting) for model in (student, teacher))
    sums, count = np.zeros(3), 0
    for item in items:
        own = ask_student([item], lambda logits: logits.float().log_softmax(dim=-1))
        for logs, logits in zip(own, ask_teacher([item], torch.clone), strict=True):
            some = Likeliest.of(logits, k)
            parts = (some.rest, divergence(logs, logits)[0], divergence(logs, some)[0])
            sums += [float(part.sum()) for part in parts]
            count += len(logs)
    left, full, kept = sums / max(count, 1)
    return {"k": k, "left_out": left, "divergence": full, "kept_divergence": kept, "rows": len(items)}
