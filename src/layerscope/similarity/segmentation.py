"""Is a similarity matrix block-diagonal? The best contiguous split, its strength, and how likely it is by chance."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

import numpy as np

from layerscope.data.resampling import jackknifed
from layerscope.errors import InputError, check_count, check_level, check_seed
from layerscope.results import Result
from layerscope.similarity.similarity import Similarity
from layerscope.similarity.splitting import best_splits, strength_of
from layerscope.similarity.steps import against_gradual_change, log_steps

if TYPE_CHECKING:
    import pandas

    from layerscope.drawing.figure import Figure

_MOST_BLOCKS = 6
_ROUNDS = 1999
_SIGNIFICANT = 0.05


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
        >>> split = ls.blocks(ls.compare([low, 2 * low, high, 3 * high]), k=2)
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
        return self.p_value < _SIGNIFICANT

    def figures(self) -> list[Figure]:
        """The heat map with lines at the boundaries."""
        drawn = self.similarity.heatmap()
        reading = f"{drawn.reading} Dashed lines: the best split into {self.k} blocks. {self._said}"
        title = f"{drawn.title}: {self.k} blocks, strength {self.strength:.2f}, {self._p}"
        return [replace(drawn, title=title, reading=reading, cuts=tuple(self.positions))]

    def findings(self) -> list[str]:
        return [f"{self.k} blocks, cut before layer {' and '.join(self.boundaries)}. {self._said}"]

    @property
    def _p(self) -> str:
        return "no p-value" if math.isnan(self.p_value) else f"p = {self.p_value:.3g}"

    @property
    def _said(self) -> str:
        """Strength and p-value in a sentence."""
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


def blocks(
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
        >>> split = ls.blocks(ls.compare(layers, measure="cka_debiased", ci=0.95))
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
    """The mean of both directions of each pair (.., n, n), higher where more alike; no layer with itself."""
    both = (values + values.swapaxes(-1, -2)) / (-2 if similarity.distance else 2)
    both[..., np.eye(both.shape[-1], dtype=bool)] = np.nan
    return both


def _interval(similarity: Similarity, kept: Sequence[int], cuts: Sequence[int], ci: float) -> tuple[float, float, str]:
    """The strength's interval over texts, for given cuts; or why there is none."""
    if similarity.left_out is None:
        return math.nan, math.nan, "the similarity was measured without groups of texts; compare with ci=0.95"
    matrices = _alike(similarity, similarity.left_out)[:, kept][:, :, kept]
    whole = _alike(similarity, similarity.values)[np.ix_(kept, kept)]
    if (np.isnan(matrices) & ~np.isnan(whole)).any():
        return math.nan, math.nan, "without one of the groups of texts some similarities are undefined"
    strengths = strength_of(np.concatenate([whole[None], matrices]), cuts)
    half = float(jackknifed(strengths[1:], ci))
    return float(strengths[0]) - half, float(strengths[0]) + half, ""
