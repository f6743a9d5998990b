"""Does the target still work when it is handed the source's mapped states? (Ren et al. 2023, table 5)"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from torch import Tensor

from layerscope.alignment import METHODS
from layerscope.analysis.alignment import align_stored
from layerscope.data import metrics
from layerscope.data import task as open_task
from layerscope.errors import InputError, ModelError, choose
from layerscope.extract import extract
from layerscope.extract.exam import Exam
from layerscope.models import Model, Replay, load
from layerscope.surgery.injection import check, logits, mapped
from layerscope.tuning.layer_heads import LayerHeads

if TYPE_CHECKING:
    import pandas

INJECTED = ("identity", "mean", "procrustes", "linear", "cca", "svcca", "mlp", "inn")
RANDOM_EMBEDDING, RANDOM_LABEL = "random embedding", "random label"
_DRAWS = 20  # of random labels
_ROWS = 20_000  # token states that an aligner learns from, at most


def injection_study(
    source: Any,
    target: Any,
    task: Any,
    *,
    layers: Sequence[int] | str | None = None,
    methods: Sequence[str] = INJECTED,
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
    reads nothing else (the last layer), from all real tokens below it. Floors: states drawn from a normal
    distribution with the target's means and deviations, and labels drawn at random.
    """
    import pandas

    for method in methods:
        choose("alignment method", method, tuple(METHODS))
    one, two, data = load(source), load(target), open_task(task)
    places = _places(one, two, layers)
    check(one, two, places)
    examples = data.split(split)
    examples = examples if limit is None else examples.take(slice(limit))
    exam = Exam(two, data, examples, max_length)
    learned = _Learned(one, two, data, train, exam.reading.max_length, seed)
    variants: list[tuple[int, int, str, Callable[[Tensor], Tensor]]] = []
    for chosen, theirs in places:
        sides = learned.sides(chosen, theirs)
        for method in methods:
            (aligner,) = align_stored([sides], method, seed, (options or {}).get(method, {}))
            variants.append((chosen, theirs, method, aligner))
        variants.append((chosen, theirs, RANDOM_EMBEDDING, _Noise(sides[1], seed)))

    def act(inputs: dict[str, Tensor]) -> Tensor:
        given, into = Replay(one, inputs), Replay(two, inputs)
        found = [logits(into, at, mapped(fit, given.states[taken], into)) for at, taken, _, fit in variants]
        return torch.stack(found)

    title = f"{one.name} into {two.name} on {examples.task} ({examples.split})"
    answers = exam.logits(act, title=title)
    source_exam = Exam(one, data, examples, max_length)
    own = {
        "source_score": source_exam.score(source_exam.logits()),
        "target_score": exam.score(exam.logits()),
        "majority": exam.majority,
        "metric": data.metric,
        "n": len(examples),
    }
    rows = [
        {"layer": chosen, "source_layer": theirs, "method": name, "score": exam.score(found), **own}
        for (chosen, theirs, name, _), found in zip(variants, answers, strict=True)
    ]
    guessed = random_labels(exam.labels, data.metric, seed)
    rows += [
        {"layer": chosen, "source_layer": theirs, "method": RANDOM_LABEL, "score": guessed, **own}
        for chosen, theirs in places
    ]
    return pandas.DataFrame(rows)


class _Learned:
    """The rows that aligners learn from."""

    def __init__(self, source: Model, target: Model, task: Any, train: int, max_length: int, seed: int) -> None:
        self.models, self.task, self.train = (source, target), task, train
        self.max_length, self.seed = max_length, seed
        self.split = task.resolve(None, learning=True)

    def sides(self, layer: int, source_layer: int) -> tuple[Tensor, Tensor]:
        source, target = self.models
        summary = layer == target.depth and reads_summary(target)
        found = []
        for model, chosen in ((source, source_layer), (target, layer)):
            reps = extract(
                model,
                self.task,
                split=self.split,
                pool="cls" if summary else "tokens",
                layers=[chosen],
                limit=self.train,
                max_length=self.max_length,
                special=not summary,
            )
            rows = np.random.default_rng(self.seed).permutation(len(reps))[:_ROWS]
            found.append(reps[chosen][torch.from_numpy(np.sort(rows))])
        if len(found[0]) != len(found[1]):
            raise InputError("The two models read different tokens of the same texts, so no row has its counterpart.")
        return found[0], found[1]


class _Noise:
    """States without anything of the text: normal, with each feature's mean and deviation."""

    def __init__(self, rows: Tensor, seed: int) -> None:
        self._mean, self._spread = rows.mean(dim=0), rows.std(dim=0)
        self._generator = torch.Generator().manual_seed(seed)

    def __call__(self, rows: Tensor) -> Tensor:
        noise = torch.randn(len(rows), len(self._mean), generator=self._generator)
        return (self._mean + self._spread * noise).to(rows)


def reads_summary(model: Model) -> bool:
    """Whether the head reads the summary token and nothing else."""
    try:
        LayerHeads(model, [model.depth])
    except ModelError:
        return False
    return True


def random_labels(labels: np.ndarray, metric: str, seed: int) -> float:
    """The mean score of guesses drawn at random: classes uniformly, numbers from the labels themselves."""
    generator = np.random.default_rng(seed)
    scores = []
    for _ in range(_DRAWS):
        if labels.dtype.kind == "f":
            guesses = generator.permutation(labels)
        else:
            guesses = generator.integers(0, int(labels.max()) + 1, len(labels))
        scores.append(metrics.score(metric, labels, guesses))
    return float(np.mean(scores))


def _places(source: Model, target: Model, layers: Sequence[int] | str | None) -> list[tuple[int, int]]:
    """(the target's layer, the source's) for each that is replaced."""
    if isinstance(layers, str) and layers != "all":
        raise InputError(f"layers is {layers!r}; give numbers, 'all', or nothing for the last layer.")
    chosen = [target.depth] if layers is None else range(target.depth + 1) if layers == "all" else layers
    return [(int(k), source.depth if int(k) == target.depth else int(k)) for k in chosen]
