"""The measures of attention, called on two lists of arrays (attention heads, t, t), one per sentence.

By head: every head of one layer against every head of the other; a layer's value is the max over the second's heads and
the mean over the first's. As wholes: rows are pairs of words, columns attention heads, as for hidden states.
"""

from __future__ import annotations

import math
import warnings
from abc import abstractmethod
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor

from layerscope.errors import InputError, LayerscopeWarning
from layerscope.similarity.attention.head_pairs import JENSEN_SHANNON, NORM, PEARSON, HeadMeasure, Mask, best
from layerscope.similarity.layer_statistics import RANK_TOLERANCE, LayerStatistics, pair_of
from layerscope.similarity.measures import linear
from layerscope.similarity.registry import Measure, Undefined, register, require_rows

_STACK = 1 << 24  # weights of one side in a stack
_WU = "Wu et al. 2020"


@dataclass(frozen=True)
class AttentionMeasure(Measure):
    """A measure of two lists of attention weights. Called, it gives a float; NaN, with a warning, if undefined."""

    def __call__(self, x: Any, y: Any, **options: Any) -> float:
        """The measure of two layers: lists of (attention heads, t, t), the same sentences in both."""
        self.check_options(options)
        sides = checked(x, y)
        try:
            return self.of_layers(*sides, **options)
        except Undefined as reason:
            warnings.warn(f"{self.name} is undefined: {reason}.", LayerscopeWarning, stacklevel=2)
            return math.nan

    @abstractmethod
    def of_layers(self, a: list[Tensor], b: list[Tensor], *, causal: bool = False, **options: Any) -> float:
        """The measure of two layers whose weights have been checked; raises Undefined with the reason."""

    def heads(self, x: Any, y: Any, **options: Any) -> np.ndarray:
        """(heads, heads') the measure of every head of one layer with every head of the other."""
        raise InputError(f"{self.name} compares layers as wholes, not attention heads one by one.")

    def options(self) -> list[str]:
        return [*super().options(), "causal"]


@dataclass(frozen=True)
class HeadwiseMeasure(AttentionMeasure):
    """Head against head: the best of the second layer's heads for each of the first's, then the mean."""

    head: HeadMeasure = NORM

    @property
    def by_head(self) -> bool:
        return True

    def of_layers(self, a: list[Tensor], b: list[Tensor], *, causal: bool = False, **options: Any) -> float:
        return best(self._pairs(a, b, causal), self.head.nothing)

    def heads(self, x: Any, y: Any, **options: Any) -> np.ndarray:
        self.check_options(options)
        return self._pairs(*checked(x, y), **options).cpu().numpy()

    def _pairs(self, a: list[Tensor], b: list[Tensor], causal: bool = False) -> Tensor:
        """(heads, heads') the measure of every head of one layer with every head of the other."""
        sums: Any = torch.zeros(2, len(a[0]), len(b[0]), dtype=torch.float64, device=a[0].device)
        for left, right in stacks(a, b):
            mask = Mask.from_sides([left, right], causal)
            sums += self.head.update(self.head.prepare(left, mask), self.head.prepare(right, mask))
        return self.head.similarities(sums)


@dataclass(frozen=True)
class WholeMeasure(AttentionMeasure):
    """Layer against layer: rows are pairs of words, columns attention heads."""

    def options(self) -> list[str]:
        return [*super().options(), "standardize"]

    def of_layers(self, a: list[Tensor], b: list[Tensor], *, causal: bool = False, **options: Any) -> float:
        parts: list[tuple[Tensor, Tensor]] = []
        for left, right in stacks(a, b):
            mask = Mask.from_sides([left, right], causal)
            parts.append((mask.entries(left), mask.entries(right)))
        x, y = (torch.cat([part[side] for part in parts], dim=1).T for side in range(2))
        require_rows(len(x))
        x_side, y_side, cross = pair_of(x, y, self.cross, options.pop("standardize", False))
        return self.of_pair(x_side, y_side, cross, **options)


def checked(x: Any, y: Any) -> tuple[list[Tensor], list[Tensor]]:
    """Two arguments as lists of float64 arrays (attention heads, t, t) on one device; raises InputError otherwise."""
    first, second = (_side(name, value) for name, value in (("first", x), ("second", y)))
    if len(first) != len(second):
        raise InputError(
            f"The arguments have {len(first)} and {len(second)} sentences; sentence i must be the same in both."
        )
    for i, (left, right) in enumerate(zip(first, second, strict=True)):
        if left.shape[1:] != right.shape[1:]:
            raise InputError(
                f"Sentence {i} has {left.shape[1]} words in the first argument and {right.shape[1]} in the second; "
                "compare attention between words, not between the tokens of different tokenizers."
            )
    return first, [array.to(first[0].device) for array in second]


def _side(name: str, value: Any) -> list[Tensor]:
    """One argument as a list of float64 arrays (attention heads, t, t); raises InputError where it is not one."""
    if not isinstance(value, (Sequence, np.ndarray, Tensor)) or isinstance(value, str):
        raise InputError(
            f"The {name} argument is a {type(value).__name__}; a list of (attention heads, t, t) is needed."
        )
    sentences: list[Tensor] = []
    for i, array in enumerate(value):
        weights = array.detach() if isinstance(array, Tensor) else torch.as_tensor(array)
        if weights.ndim != 3 or weights.shape[1] != weights.shape[2] or not weights.shape[0]:
            raise InputError(
                f"Sentence {i} of the {name} argument has shape {tuple(weights.shape)}; (attention heads, t, t) is "
                "needed."
            )
        if sentences and len(weights) != len(sentences[0]):
            raise InputError(
                f"Sentence {i} of the {name} argument has {len(weights)} attention heads and sentence 0 has "
                f"{len(sentences[0])}; a layer has the same for every sentence."
            )
        weights = weights.to(torch.float64)
        if not bool(torch.isfinite(weights).all()) or bool((weights < 0).any()):
            raise InputError(
                f"Sentence {i} of the {name} argument has a weight that is below 0, a NaN or an infinity; attention "
                "weights are after the softmax."
            )
        sentences.append(weights)
    if not sentences:
        raise InputError(f"The {name} argument has no sentences.")
    return sentences


def stacks(a: Sequence[Tensor], b: Sequence[Tensor]) -> Iterator[tuple[Tensor, Tensor]]:
    """The sentences of both sides in stacks (heads, sentences, t, t) of equal length."""
    lengths = np.asarray([array.shape[-1] for array in a])
    for length in np.unique(lengths[lengths > 0]):
        places = np.flatnonzero(lengths == length)
        size = max(1, _STACK // (max(len(a[0]), len(b[0])) * int(length) ** 2))
        for start in range(0, len(places), size):
            chosen = places[start : start + size]
            yield torch.stack([a[i] for i in chosen], dim=1), torch.stack([b[i] for i in chosen], dim=1)


def _by_head(name: str, low: float, head: HeadMeasure, doc: str) -> None:
    """Register a measure of single attention heads."""

    def compute(heads: Tensor) -> float:
        return best(heads, head.nothing)

    compute.__doc__ = doc
    register(
        name,
        family="attention",
        symmetric=False,
        bounds=(low, 1.0),
        invariances=(),
        needs="attention",
        source=_WU,
        kind=HeadwiseMeasure,
        head=head,
    )(compute)


_by_head(
    "attention_norm",
    -math.inf,
    NORM,
    "1 less the mean distance of two heads' matrices over sentences; the best head of Y for each of X, mean.",
)
_by_head(
    "attention_pearson",
    -1.0,
    PEARSON,
    "Mean over words of the correlation of two heads' rows; best of Y, mean over X.",
)
_by_head(
    "attention_js",
    1 - math.log(2),
    JENSEN_SHANNON,
    "1 - mean over words of the Jensen-Shannon divergence of two heads' rows; best of Y, mean over X.",
)


def _as_whole(name: str, *, symmetric: bool, exact: bool, source: str) -> Callable[..., Any]:
    """A decorator that registers a measure of whole layers."""
    return register(
        name,
        family="attention",
        symmetric=symmetric,
        bounds=(0.0, 1.0),
        invariances=("orthogonal", "scaling", "translation") if symmetric else ("scaling", "translation"),
        needs="attention",
        source=source,
        exact=exact,
        kind=WholeMeasure,
    )


@_as_whole("attention_cka", symmetric=True, exact=False, source=_WU)
def attention_cka(x: LayerStatistics, y: LayerStatistics, cross: Tensor) -> float:
    """`cka` of pairs of words x attention heads."""
    return linear.cka(x, y, cross)


@_as_whole("attention_svcca", symmetric=True, exact=True, source=_WU)
def attention_svcca(
    x: LayerStatistics,
    y: LayerStatistics,
    cross: Tensor,
    *,
    keep: float = 0.99,
    rank_tolerance: float = RANK_TOLERANCE,
    allow_trivial: bool = False,
) -> float:
    """`svcca` of pairs of words x attention heads."""
    return linear.svcca(x, y, cross, keep=keep, rank_tolerance=rank_tolerance, allow_trivial=allow_trivial)


@_as_whole("attention_pwcca", symmetric=False, exact=True, source=_WU)
def attention_pwcca(
    x: LayerStatistics,
    y: LayerStatistics,
    cross: Tensor,
    *,
    keep: float = 0.99,
    weights: str = "x",
    rank_tolerance: float = RANK_TOLERANCE,
    allow_trivial: bool = False,
) -> float:
    """`pwcca` of pairs of words x attention heads."""
    options: dict[str, Any] = {"keep": keep, "rank_tolerance": rank_tolerance, "allow_trivial": allow_trivial}
    return linear.pwcca(x, y, cross, weights=weights, **options)
