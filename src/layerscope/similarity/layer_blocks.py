"""Is a similarity matrix block-diagonal? The best split into contiguous blocks, its strength, and its p-value.

The p-value asks whether the steps at the cuts of a split are out of line with gradual change along the layers. A step
is the distance between neighbouring layers. Where change is gradual, the logs of the steps lie at random around a trend
(a parabola, or a line where there are few); at the boundary of two blocks is a step too large for that. The statistic
of a split is the least of its cuts' externally studentised residuals: every cut has to stand out, and trend and spread
are estimated without any of them, so that several boundaries do not hide one another. The split was chosen among many,
so the statistic is compared with the largest one over all splits into as many blocks. For normal logs that has a
distribution that depends on neither the trend nor the spread, and is drawn. The first and the last step make no block
of two layers, so that a first layer unlike all others, as embeddings are, is not a boundary.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import lru_cache
from itertools import combinations, pairwise
from math import comb, nan
from typing import TYPE_CHECKING, Any

import numpy as np

from layerscope.errors import InputError, check_count, check_level, check_seed
from layerscope.resampling import jackknifed
from layerscope.results import Finding, Result
from layerscope.results.finding import ANSWER, SIGNIFICANT
from layerscope.similarity.result import Similarity

if TYPE_CHECKING:
    import pandas

    from layerscope.drawing.figure import Figure


def strength_of(values: np.ndarray, cuts: Sequence[int]) -> np.ndarray:
    """Mean similarity within blocks minus that between them, of each matrix (.., n, n).

    `cuts` are the places at which blocks begin, after the first. The pairs of different layers count that have a value
    in every matrix.
    """
    n = values.shape[-1]
    block = np.searchsorted(cuts, np.arange(n), side="right")
    defined = np.triu(~np.isnan(values).any(axis=tuple(range(values.ndim - 2))), 1)
    same = np.equal.outer(block, block)
    return values[..., defined & same].mean(axis=-1) - values[..., defined & ~same].mean(axis=-1)


def best_splits(values: np.ndarray, most: int) -> dict[int, list[int]]:
    """For k = 2..most the cuts of the strongest split of a symmetric matrix into k blocks of two layers or more.

    Dynamic programming over (blocks, layers, pairs within blocks): for a given number of pairs within, the largest sum
    within is also the largest mean within minus mean between.
    """
    n = len(values)
    defined = ~np.isnan(values)
    filled = np.where(defined, values, 0.0)
    sums, pairs = np.zeros((n + 1, n + 1)), np.zeros((n + 1, n + 1), dtype=int)
    for a in range(n):
        for b in range(a + 2, n + 1):  # pairs i < j of layers a..b-1
            sums[a, b] = sums[a, b - 1] + filled[a : b - 1, b - 1].sum()
            pairs[a, b] = pairs[a, b - 1] + defined[a : b - 1, b - 1].sum()
    total, cells = sums[0, n], pairs[0, n]
    # best[b][c]: the largest sum over c pairs within blocks that end before layer b
    best = {}
    for b in range(2, n + 1):
        best[b] = np.full(cells + 1, -np.inf)
        best[b][pairs[0, b]] = sums[0, b]
    came: list[dict[int, np.ndarray]] = []
    splits = {}
    for k in range(2, most + 1):
        longer, origin = {}, {}
        for b in range(2 * k, n + 1):
            longer[b], origin[b] = np.full(cells + 1, -np.inf), np.zeros(cells + 1, dtype=int)
            for a in range(2 * (k - 1), b - 1):
                inside = pairs[a, b]
                candidate = np.full(cells + 1, -np.inf)
                candidate[inside:] = best[a][: cells + 1 - inside] + sums[a, b]
                better = candidate > longer[b]
                longer[b][better] = candidate[better]
                origin[b][better] = a
        best = longer
        came.append(origin)
        within = np.arange(cells + 1)
        with np.errstate(divide="ignore", invalid="ignore"):
            strength = best[n] / within - (total - best[n]) / (cells - within)
        strength[[0, cells]] = -np.inf
        splits[k] = _trace(came, pairs, int(np.argmax(strength)), n)
    return splits


def _trace(came: list[dict[int, np.ndarray]], pairs: np.ndarray, within: int, end: int) -> list[int]:
    """The cuts of the best split, traced back from the number of pairs `within` its blocks.

    `came` has, for each number of blocks, where the last block of the best split begins.
    """
    cuts = []
    for origin in reversed(came):
        start = int(origin[end][within])
        within -= int(pairs[start, end])
        end = start
        cuts.append(start)
    return cuts[::-1]


_LEAST_STEP = 1e-6  # of similarity: below that is rounding
_LEAST_SPREAD = 0.01  # of a log: steps within 1 % of the trend lie on it
_MOST_SPLITS = 10_000  # with one number of cuts, to compare with
_SPARE = 2  # degrees of freedom that a spread needs
_AT_ONCE = 4_000_000  # numbers held in memory
_BENT = 10  # from so many steps on the trend is a parabola


@dataclass(frozen=True)
class Verdict:
    """The p-value of a split against gradual change, its number of blocks, and the reason where there is no p-value."""

    p_value: float
    blocks: int
    reason: str = ""


def log_steps(values: np.ndarray, layers: Sequence[int], top: float = 1.0) -> np.ndarray:
    """(n - 1,) log(top - s) of neighbouring layers, NaN where s has no value.

    It is NaN too where more layers than usual lie between the two, since such a step is not like the others.
    """
    gaps = np.abs(np.diff(layers))
    steps = np.log(np.maximum(top - np.diagonal(values, 1), _LEAST_STEP))
    return np.where((gaps == np.bincount(gaps).argmax()) & np.isfinite(steps), steps, np.nan)


def against_gradual_change(
    steps: np.ndarray, splits: Mapping[int, Sequence[int]], rounds: int = 1999, seed: int = 0
) -> Verdict:
    """Choose the number of blocks whose cuts stand out most, and give its p-value; `splits` has the cuts by number.

    The least p-value over the numbers of blocks is compared with the least one in each round, so that the p-value
    allows for the choice of the number. Where none is below 0.05, nothing speaks for more blocks than the fewest.
    """
    defined = ~np.isnan(steps)
    reasons = {k: _reason(defined, splits[k]) for k in splits}
    usable = [k for k in splits if not reasons[k]]
    if not usable:
        return Verdict(nan, min(splits), reasons[min(splits)])
    largest = _by_chance(tuple(defined), tuple(k - 1 for k in usable), rounds, seed)  # (numbers, rounds)
    standing = np.array([_standing_out(steps, splits[k], defined) for k in usable])
    alone = (1 + (largest >= standing[:, None] - 1e-9).sum(axis=1)) / (rounds + 1)
    # In each round, the share of rounds that are as large or larger: the p-value that it would get.
    by_round = (1 + rounds - largest.argsort(axis=1).argsort(axis=1)) / (rounds + 1)
    best = int(np.lexsort((-standing, alone))[0])
    p_value = (1 + int((by_round.min(axis=0) <= alone[best]).sum())) / (rounds + 1)
    return Verdict(p_value, usable[best] if alone[best] < SIGNIFICANT else min(usable))


def _reason(defined: np.ndarray, cuts: Sequence[int]) -> str:
    """Why a split cannot be judged; empty where it can."""
    count, needed = len(cuts), _terms(defined) + len(cuts) + _SPARE
    if defined.sum() < needed:
        return (
            f"{count + 1} blocks need {needed} known steps between neighbouring layers, and there are {defined.sum()}"
        )
    if not defined[np.asarray(cuts) - 1].all():
        return "a step at a boundary is unknown: a layer beside it has no value, or layers between were left out"
    if comb(len(defined) - count - 1, count) > _MOST_SPLITS:
        return f"there are too many splits of {len(defined) + 1} layers into {count + 1} blocks to compare with"
    return ""


def _terms(defined: np.ndarray) -> int:
    """The number of terms of the trend: a constant, a slope and, where there are many steps, a bend."""
    return 3 if defined.sum() >= _BENT else 2


@lru_cache(maxsize=64)
def _by_chance(defined: tuple[bool, ...], counts: tuple[int, ...], rounds: int, seed: int) -> np.ndarray:
    """(counts, rounds) The largest statistic over all splits, by number of cuts, of steps whose logs are normal."""
    kept = np.asarray(defined)
    normal = np.random.default_rng(seed).normal(size=(rounds, int(kept.sum())))
    return np.stack([_largest(normal, kept, count) for count in counts])


def _largest(normal: np.ndarray, defined: np.ndarray, count: int) -> np.ndarray:
    """(rounds,) The largest statistic over all splits with `count` cuts, of lists of normal logs."""
    place = np.cumsum(defined) - 1  # of each step among the defined ones
    inner = [int(step) for step in np.flatnonzero(defined) if 0 < step < len(defined) - 1]
    chosen = [s for s in combinations(inner, count) if all(b - a > 1 for a, b in pairwise(s))]
    sets = place[np.asarray(chosen, dtype=int).reshape(-1, count)]
    residual_maker = _residual_maker(defined)
    portion = max(1, _AT_ONCE // (len(normal) * count))
    best = np.full(len(normal), -np.inf)
    for start in range(0, len(sets), portion):
        part = studentised(normal, sets[start : start + portion], residual_maker)
        best = np.maximum(best, part.min(axis=2).max(axis=1))
    return best


def _standing_out(steps: np.ndarray, cuts: Sequence[int], defined: np.ndarray) -> float:
    """The least studentised residual at the cuts of one split."""
    sets = (np.cumsum(defined) - 1)[np.asarray(cuts) - 1][None]
    return float(studentised(steps[defined][None], sets, _residual_maker(defined), _LEAST_SPREAD).min())


def _residual_maker(defined: np.ndarray) -> np.ndarray:
    """I - H, with H the hat matrix of the trend through the defined steps."""
    places = np.flatnonzero(defined)
    trend = np.vander((places - places.mean()) / len(defined), _terms(defined))
    return np.eye(len(places)) - trend @ np.linalg.pinv(trend)


def studentised(logs: np.ndarray, sets: np.ndarray, residual_maker: np.ndarray, least: float = 0.0) -> np.ndarray:
    """(r, s, j) How far each step of each set (s, j) is above the trend of all steps outside the set, in units of
    the standard error of that difference; of r lists of logs (r, m).

    With M = I - H and residuals e = M y, the differences are u = M_SS^-1 e_S, their variances those of M_SS^-1, and the
    squares that remain around the trend are |e|^2 - e_S' u (Cook and Weisberg 1982).
    """
    residuals = logs @ residual_maker
    inverse = np.linalg.inv(residual_maker[sets[:, :, None], sets[:, None, :]])  # (s, j, j)
    at_set = residuals[:, sets]  # (r, s, j)
    above = np.einsum("sij,rsj->rsi", inverse, at_set)
    rest = (residuals**2).sum(axis=1)[:, None] - (above * at_set).sum(axis=2)
    free = np.trace(residual_maker) - sets.shape[1]
    spread = np.sqrt(np.maximum(rest, 0.0) / free)
    spread = np.maximum(spread, max(least, 1e-12))
    return above / (spread[:, :, None] * np.sqrt(np.einsum("sii->si", inverse)))


_MOST_BLOCKS = 6
_ROUNDS = 1999


@dataclass(repr=False)
class Blocks(Result):
    """`boundaries[m]` is the first layer of block m + 2; `strength` is mean similarity within minus between blocks.

    Of a distance, such as `angular`, `strength` is the mean between minus within blocks.

    `p_value` is against gradual change: how often steps between neighbouring layers that vary around a trend would
    have steps as far out of line as those at the boundaries.

    Attributes:
        similarity: The matrix that was split.
        boundaries: The names of the layers at which blocks 2, 3, .. begin.
        positions: The same as places along the axis.
        strength: Mean similarity within blocks minus that between them.
        p_value: Against gradual change.
        k: How many blocks there are.
        low: The lower end of an interval of the strength over texts, for these boundaries.
        high: The upper end.
        level: The level of that interval.
        reasons: Why there is no interval, or no p-value: `reasons["interval"]`, `reasons["p_value"]`.

    Example:
        >>> import numpy as np, layerscope as ls
        >>> draw = np.random.default_rng(0).normal
        >>> low, high = draw(size=(200, 4)), draw(size=(200, 4))
        >>> split = ls.layer_blocks(ls.compare([low, 2 * low, high, 3 * high]), k=2)
        >>> split.positions, split.reasons["p_value"]
        ([2], '2 blocks need 5 known steps between neighbouring layers, and there are 3')
    """

    name = "blocks"

    similarity: Similarity
    boundaries: list[str]
    positions: list[int]  # the same as places along the axis
    strength: float
    p_value: float
    k: int
    low: float = math.nan
    high: float = math.nan
    level: float = 0.95
    reasons: dict[str, str] = field(default_factory=dict)

    @property
    def provenance(self) -> Mapping[str, Any]:  # type: ignore[override]
        return self.similarity.provenance

    @property
    def frame(self) -> pandas.DataFrame:
        """One row per block: block, first_layer, last_layer, strength, low, high, p_value, reason."""
        import pandas

        names = self.similarity.row_axis.names
        starts, ends = [0, *self.positions], [*self.positions, len(names)]
        return pandas.DataFrame(
            {
                "block": range(1, self.k + 1),
                "first_layer": [names[start] for start in starts],
                "last_layer": [names[end - 1] for end in ends],
                "strength": self.strength,
                "low": self.low,
                "high": self.high,
                "p_value": self.p_value,
                "reason": "; ".join(f"no {_NAMES[what]}: {reason}" for what, reason in self.reasons.items()),
            }
        )

    @property
    def significant(self) -> bool:
        """Whether the steps at the boundaries are out of line with gradual change, at 5 %."""
        return self.p_value < SIGNIFICANT

    def figures(self) -> list[Figure]:
        """The heat map with lines at the boundaries."""
        drawn = self.similarity.heatmap()
        reading = f"{drawn.reading} Dashed lines: the best split into {self.k} blocks. {self._said}"
        title = f"{drawn.title}: {self.k} blocks, strength {self.strength:.2f}, {self._p}"
        return [replace(drawn, title=title, reading=reading, cuts=tuple(self.positions))]

    def findings(self) -> list[Finding]:
        """Where the layers are cut, and whether the steps there are larger than gradual change explains."""
        text = f"{self.k} blocks, cut before layer {' and '.join(self.boundaries)}. {self._said}"
        return [Finding(text, "", None if math.isnan(self.p_value) else bool(self.significant), ANSWER)]

    @property
    def _p(self) -> str:
        """The p-value in words."""
        return "no p-value" if math.isnan(self.p_value) else f"p = {self.p_value:.3g}"

    @property
    def _said(self) -> str:
        """A sentence with the strength and the p-value."""
        interval = "" if math.isnan(self.low) else f" ({self.level:.0%} interval {self.low:.2f} to {self.high:.2f})"
        strength = f"Strength {self.strength:.2f}{interval}, {self._p}"
        if math.isnan(self.p_value):
            return f"{strength}: {self.reasons['p_value']}."
        if self.significant:
            return f"{strength}: the steps there are out of line with gradual change."
        return f"{strength}: no more than gradual change along the layers gives."

    def __repr__(self) -> str:
        return f"Blocks({self.findings()[0]})"


_NAMES = {"interval": "interval", "p_value": "p-value"}


def layer_blocks(
    similarity: Similarity, k: int | None = None, *, ci: float = 0.95, rounds: int = _ROUNDS, seed: int = 0
) -> Blocks:
    """Split the layers of one model into contiguous blocks of two layers or more.

    Similarity falls with the distance between layers even where there are no blocks, and then every split has some
    strength. So `p_value` asks whether the steps between neighbouring layers at the boundaries are too large for
    gradual change, that is for steps that vary smoothly or at random: whose logs lie around a trend. It needs 6 layers.

    Args:
        similarity: A model compared with itself. With `ls.compare(.., ci=..)` the strength has an interval over texts.
        k: How many blocks; not given, the number whose boundaries stand out most, or 2 where none do.
        ci: The level of the strength's interval.
        rounds: How many draws of gradual change the p-value rests on.
        seed: Decides the draws.

    Returns:
        The best split, as `Blocks`.

    Example:
        >>> import numpy as np, layerscope as ls
        >>> draw = np.random.default_rng(0).normal
        >>> early, late = draw(size=(100, 8)), draw(size=(100, 8))
        >>> layers = [(early if k < 4 else late) + 0.1 * draw(size=(100, 8)) for k in range(8)]
        >>> split = ls.layer_blocks(ls.compare(layers, measure="cka_debiased", ci=0.95))
        >>> split.boundaries, split.low < split.strength < split.high, split.p_value < 0.05
        (['4'], True, True)
    """
    check_level(ci)
    check_seed(seed)
    check_count(k, "k")
    check_count(rounds, "rounds")
    values, kept = _usable(similarity)
    most = len(values) // 2
    if k is not None and not 2 <= k <= most:
        raise InputError(f"{len(values)} layers can be split into 2..{most} blocks; k = {k} was asked for.")
    if most < 2:
        raise InputError(f"{len(values)} layers with values are too few to be split into blocks; 4 are needed.")
    splits = best_splits(values, k or min(most, _MOST_BLOCKS))
    splits = {count: cuts for count, cuts in splits.items() if k in {None, count}}
    layers = [similarity.row_axis.layers[place] for place in kept]
    top = -similarity.bounds[0] if similarity.distance else similarity.bounds[1]
    verdict = against_gradual_change(log_steps(values, layers, top), splits, rounds, seed)
    cuts = splits[verdict.blocks]
    positions = [kept[cut] for cut in cuts]
    low, high, unsure = _interval(similarity, kept, cuts, ci)
    return Blocks(
        similarity,
        [similarity.row_axis.names[place] for place in positions],
        positions,
        float(strength_of(values, cuts)),
        verdict.p_value,
        verdict.blocks,
        low,
        high,
        ci,
        {what: reason for what, reason in (("interval", unsure), ("p_value", verdict.reason)) if reason},
    )


def _usable(similarity: Similarity) -> tuple[np.ndarray, list[int]]:
    """The symmetric matrix of one model's layers, without layers that have no value with any other."""
    values = similarity.values
    if values.shape[0] != values.shape[1] or similarity.row_axis != similarity.column_axis:
        raise InputError("Blocks are of one list of layers: compare a model with itself (its rows are its columns).")
    models = dict.fromkeys(similarity.row_axis.models)
    if len(models) > 1:
        raise InputError(f"Blocks are of one model's layers, and these are of {len(models)}: {', '.join(models)}.")
    off = _alike(similarity, values)
    kept = [i for i in range(len(off)) if not np.isnan(off[i]).all()]
    if kept and not similarity.distance and np.mean(np.diagonal(values)[kept]) < np.nanmean(off):
        raise InputError(
            f"Blocks need a measure that is higher where layers are more alike, and {similarity.measure} is lower."
        )
    return off[np.ix_(kept, kept)], kept


def _alike(similarity: Similarity, values: np.ndarray) -> np.ndarray:
    """The mean of both directions of each pair (.., n, n), higher where layers are more alike; the diagonal is NaN."""
    both = (values + values.swapaxes(-1, -2)) / (-2 if similarity.distance else 2)
    both[..., np.eye(both.shape[-1], dtype=bool)] = np.nan
    return both


def _interval(similarity: Similarity, kept: Sequence[int], cuts: Sequence[int], ci: float) -> tuple[float, float, str]:
    """The interval of the strength over texts for given cuts, and the reason where there is none."""
    if similarity.left_out is None:
        return math.nan, math.nan, "the similarity was measured without groups of texts; compare with ci=0.95"
    matrices = _alike(similarity, similarity.left_out)[:, kept][:, :, kept]
    whole = _alike(similarity, similarity.values)[np.ix_(kept, kept)]
    if (np.isnan(matrices) & ~np.isnan(whole)).any():
        return math.nan, math.nan, "without one of the groups of texts some similarities are undefined"
    strengths = strength_of(np.concatenate([whole[None], matrices]), cuts)
    half = float(jackknifed(strengths[1:], ci))
    return float(strengths[0]) - half, float(strengths[0]) + half, ""
