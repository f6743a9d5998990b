"""Does the target still work when it is handed the source's mapped states? (Ren et al. 2023, table 5)"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from torch import Tensor

from layerscope.alignment import METHODS, Aligner
from layerscope.analysis.alignment import align_stored, usable
from layerscope.data import Examples, metrics
from layerscope.data import task as open_task
from layerscope.errors import InputError, ModelError, check_seed, choose
from layerscope.extract import Representations, extract
from layerscope.extract.exam import LONGEST, Exam
from layerscope.extract.run import check_limit
from layerscope.models import Model, Replay, load
from layerscope.models.anatomy import evaluating
from layerscope.store import digest
from layerscope.surgery.injection import check, logits, mapped
from layerscope.tuning.layer_heads import LayerHeads

if TYPE_CHECKING:
    import pandas

INJECTED = ("identity", "mean", "procrustes", "linear", "cca", "svcca", "mlp", "inn")
RANDOM_EMBEDDING, RANDOM_LABEL = "random embedding", "random label"
_DRAWS = 20  # of random labels
_ROWS = 20_000  # token states that an aligner learns from, at most
_TEXTS = 400  # whose tokens they are
Place = tuple[int, int]  # the target's layer that is replaced, the source's that stands in
Act = Callable[[Tensor, Replay, Mapping[str, Tensor]], Tensor]  # the source's states -> states for the target


def injection_study(
    source: Any,
    target: Any,
    task: Any,
    *,
    layers: Sequence[int] | str | None = None,
    methods: Sequence[str] | None = None,
    split: str | None = None,
    limit: int | None = None,
    train: int = 1600,
    max_length: int | None = None,
    seed: int = 0,
    options: Mapping[str, Mapping[str, Any]] | None = None,
) -> pandas.DataFrame:
    """The target's score on a split with one of its layers replaced by the source's, mapped by every method.

    `layers` are the target's (None: the last; "all": 0..L); the source's layer of the same number is taken, its last
    for the target's last. Aligners learn from `train` texts of the train split: from summary tokens where the head
    reads nothing else (the last layer), from all real tokens (of at most 400 of the texts) below it. Where that is the
    split to score on, at most half of it is learned from and the rest is scored. Floors: states drawn from a normal
    distribution with the target's means and deviations, and labels drawn at random.
    """
    import pandas

    check_seed(seed)
    one, two, data = load(source), load(target), open_task(task)
    for method in methods or ():
        choose("alignment method", method, tuple(METHODS))
    chosen = usable(INJECTED, one.width, two.width) if methods is None else methods
    places = _places(one, two, layers)
    check(one, two, places)
    check_limit(limit)
    check_limit(train, "train")
    held = max(0.5, 1 - train / len(data.split(split)))
    learned_from, examples = data.parted(held, split, (train, limit))
    _same_inputs(one, two, examples)
    exam = Exam(two, data, examples, _shorter(one, two, max_length))
    learned = _Learned(one, two, places, learned_from, exam.reading.max_length, seed)
    variants: list[tuple[int, int, str, Act]] = []
    for at, taken in places:
        sides = learned.sides(at, taken)
        for method in chosen:
            (aligner,) = align_stored([sides], method, seed, (options or {}).get(method, {}), two.device)
            variants.append((at, taken, method, _Mapped(aligner)))
        variants.append((at, taken, RANDOM_EMBEDDING, _Noise(sides[1], seed)))

    def act(inputs: dict[str, Tensor]) -> Tensor:
        with evaluating(one.network):
            given = Replay(one, {name: value.to(one.device) for name, value in inputs.items()})
        into = Replay(two, inputs)
        found = [logits(into, at, fit(given.states[taken], into, inputs)) for at, taken, _, fit in variants]
        return torch.stack(found)

    answers = exam.logits(act, title=f"{one.name} into {two.name} on {examples.task} ({examples.split})")
    source_exam = Exam(one, data, examples, exam.reading.max_length)
    own = {
        "source_score": source_exam.score(source_exam.logits()),
        "target_score": exam.score(exam.logits()),
        "majority": exam.majority,
        "metric": data.metric,
        "n": len(examples),
    }
    rows = [
        {"layer": at, "source_layer": taken, "method": name, "score": exam.score(found), **own}
        for (at, taken, name, _), found in zip(variants, answers, strict=True)
    ]
    guessed = random_labels(exam.labels, data.metric, seed, answers.shape[-1])
    rows += [
        {"layer": at, "source_layer": taken, "method": RANDOM_LABEL, "score": guessed, **own} for at, taken in places
    ]
    return pandas.DataFrame(rows)


def _same_inputs(one: Model, two: Model, examples: Examples) -> None:
    """Raise a sentence where one model tells the texts of a pair apart by token types and the other has none."""
    kinds = ["token_type_ids" in inspect.signature(m.network.base_model.forward).parameters for m in (one, two)]
    if examples.pairs is not None and kinds[0] != kinds[1]:
        raise ModelError(f"Of {one.name} and {two.name} only one reads token types, so pairs are not the same input.")


def _shorter(one: Model, two: Model, max_length: int | None) -> int | None:
    """The longest text that both models can read, where nothing else is asked for."""
    known = [model.positions for model in (one, two) if model.positions]
    return max_length if max_length is not None or not known else min(*known, LONGEST)


class _Learned:
    """The rows that aligners learn from: one pass a model for the summary token, one for all tokens."""

    def __init__(
        self, source: Model, target: Model, places: Sequence[Place], texts: Examples, max_length: int, seed: int
    ) -> None:
        self.models, self.places = (source, target), places
        self.texts, self.max_length, self.seed = texts, max_length, seed
        self._summary = reads_summary(target)
        self._passes: dict[bool, tuple[Representations, Representations]] = {}

    def sides(self, layer: int, source_layer: int) -> tuple[Tensor, Tensor]:
        one, two = self._pass(self._by_summary(layer))
        some = np.random.default_rng(self.seed).permutation(len(one))[:_ROWS]
        rows = torch.from_numpy(np.sort(some))
        return one[source_layer][rows], two[layer][rows]

    def _by_summary(self, layer: int) -> bool:
        return layer == self.models[1].depth and self._summary

    def _pass(self, summary: bool) -> tuple[Representations, Representations]:
        if summary not in self._passes:
            options: dict[str, Any] = {"max_length": self.max_length}
            options |= {"pool": "cls"} if summary else {"pool": "tokens", "special": True, "limit": _TEXTS}
            chosen = [(theirs, own) for own, theirs in self.places if self._by_summary(own) == summary]
            one, two = (
                extract(model, self.texts, layers=sorted(set(layers)), **options)
                for model, layers in zip(self.models, zip(*chosen, strict=True), strict=True)
            )
            if len(one) != len(two):
                raise InputError(
                    "The two models read different tokens of the same texts, so no row has its counterpart."
                )
            self._passes[summary] = one, two
        return self._passes[summary]


class _Mapped:
    """The source's states through an aligner."""

    def __init__(self, aligner: Aligner) -> None:
        self._aligner = aligner

    def __call__(self, state: Tensor, replay: Replay, inputs: Mapping[str, Tensor]) -> Tensor:
        return mapped(self._aligner, state, replay)


class _Noise:
    """States without anything of the text: normal, with each feature's mean and deviation.

    A text's tokens decide what is drawn for it, so that batches do not.
    """

    def __init__(self, rows: Tensor, seed: int) -> None:
        self._mean, self._spread, self._seed = rows.mean(dim=0), rows.std(dim=0), seed

    def __call__(self, state: Tensor, replay: Replay, inputs: Mapping[str, Tensor]) -> Tensor:
        mask, like = inputs["attention_mask"].flatten(0, -2).bool().cpu(), replay.states[-1]
        found = torch.zeros(*state.shape[:-1], len(self._mean))
        for k, ids in enumerate(inputs["input_ids"].flatten(0, -2).cpu()):
            own = int(digest(str(self._seed), str(ids[mask[k]].tolist()))[:12], 16)
            drawn = torch.randn(int(mask[k].sum()), len(self._mean), generator=torch.Generator().manual_seed(own))
            found[k, mask[k]] = self._mean + self._spread * drawn
        return found.to(like)


def reads_summary(model: Model) -> bool:
    """Whether the head reads the summary token and nothing else."""
    try:
        LayerHeads(model, [model.depth])
    except ModelError:
        return False
    return True


def random_labels(labels: np.ndarray, metric: str, seed: int, classes: int) -> float:
    """The mean score of guesses drawn at random: classes uniformly, numbers from the labels themselves."""
    generator = np.random.default_rng(seed)
    scores = []
    for _ in range(_DRAWS):
        numbers = labels.dtype.kind == "f"
        guesses = generator.permutation(labels) if numbers else generator.integers(0, classes, len(labels))
        scores.append(metrics.score(metric, labels, guesses))
    return float(np.mean(scores))


def _places(source: Model, target: Model, layers: Sequence[int] | str | None) -> list[Place]:
    if isinstance(layers, str) and layers != "all":
        raise InputError(f"layers is {layers!r}; give numbers, 'all', or nothing for the last layer.")
    chosen = [target.depth] if layers is None else range(target.depth + 1) if layers == "all" else layers
    return [(int(k), source.depth if int(k) == target.depth else int(k)) for k in chosen]
