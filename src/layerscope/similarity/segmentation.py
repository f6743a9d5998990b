"""Is a similarity matrix block-diagonal? The best contiguous split, its strength, and how likely it is by chance."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import numpy as np

from layerscope.errors import InputError
from layerscope.results import Result
from layerscope.similarity.similarity import Similarity

if TYPE_CHECKING:
    import pandas

    from layerscope.drawing.figure import Figure

_MOST_BLOCKS = 6
_ROUNDS = 999


@dataclass(repr=False)
class Blocks(Result):
    """`boundaries[m]` is the first layer of block m + 2; `strength` is mean similarity within minus between blocks.

    `p_value` is how often a matrix with the same fall-off with distance, but no blocks, splits so strongly.

    Attributes:
        similarity: The matrix that was split.
        boundaries: The names of the layers at which blocks 2, 3, .. begin.
        positions: The same as places along the axis.
        strength: Mean similarity within blocks minus that between them.
        p_value: Against gradual change.
        k: How many blocks there are.

    Example:
        >>> import numpy as np, layerscope as ls
        >>> draw = np.random.default_rng(0).normal
        >>> low, high = draw(size=(200, 4)), draw(size=(200, 4))
        >>> split = ls.blocks(ls.compare([low, 2 * low, high, 3 * high]), k=2)
        >>> split.positions
        [2]
    """

    name = "blocks"

    similarity: Similarity
    boundaries: list[str]
    positions: list[int]  # the same as places along the axis
    strength: float
    p_value: float
    k: int

    @property
    def provenance(self) -> Mapping[str, Any]:  # type: ignore[override]
        return self.similarity.provenance

    @property
    def frame(self) -> pandas.DataFrame:
        """One row per block: block, first_layer, last_layer, strength, p_value."""
        import pandas

        names = self.similarity.row_axis.names
        starts, ends = [0, *self.positions], [*self.positions, len(names)]
        return pandas.DataFrame(
            {
                "block": range(1, self.k + 1),
                "first_layer": [names[start] for start in starts],
                "last_layer": [names[end - 1] for end in ends],
                "strength": self.strength,
                "p_value": self.p_value,
            }
        )

    def figures(self) -> list[Figure]:
        """The heat map with lines at the boundaries."""
        drawn = self.similarity.heatmap()
        reading = (
            f"{drawn.reading} Dashed lines: the best split into {self.k} blocks, strength {self.strength:.2f}, p = "
            f"{self.p_value:.3g} against the same fall-off with distance but no blocks."
        )
        title = f"{drawn.title}: {self.k} blocks, strength {self.strength:.2f}, p = {self.p_value:.3g}"
        return [replace(drawn, title=title, reading=reading, cuts=tuple(self.positions))]

    def findings(self) -> list[str]:
        return [
            f"{self.k} blocks, cut before layer {' and '.join(self.boundaries)}: strength {self.strength:.2f}, "
            f"p = {self.p_value:.3f}."
        ]

    def __repr__(self) -> str:
        return f"Blocks({self.findings()[0]})"


def blocks(similarity: Similarity, k: int | None = None, *, rounds: int = _ROUNDS, seed: int = 0) -> Blocks:
    """Split the layers of one model into contiguous blocks.

    Similarity falls with the distance between layers even where there are no blocks, and then every split has some
    strength. The baseline keeps each diagonal's values and shuffles them along it: the same fall-off, no blocks.

    Args:
        similarity: A model compared with itself.
        k: How many blocks; not given, the number that is least likely by chance.
        rounds: How many shuffled matrices there are in the baseline.
        seed: Decides the shuffles.

    Returns:
        The best split, as `Blocks`.

    Example:
        >>> import numpy as np, layerscope as ls
        >>> draw = np.random.default_rng(0).normal
        >>> early, late = draw(size=(100, 8)), draw(size=(100, 8))
        >>> layers = [(early if k < 4 else late) + 0.1 * draw(size=(100, 8)) for k in range(8)]
        >>> ls.blocks(ls.compare(layers)).boundaries
        ['4']
    """
    values, kept = _usable(similarity)
    most = len(values) // 2
    if k is not None and not 2 <= k <= most:
        raise InputError(f"{len(values)} layers can be split into 2..{most} blocks; k = {k} was asked for.")
    if most < 2:
        raise InputError(f"{len(values)} layers with values are too few to be split into blocks; 4 are needed.")
    candidates = [k] if k else list(range(2, min(most, _MOST_BLOCKS) + 1))
    generator = np.random.default_rng(seed)
    stack = np.stack([values, *(_shuffled(values, generator) for _ in range(rounds))])
    splits = best_splits(stack, max(candidates))
    strengths = np.stack([splits[count][1] for count in candidates], axis=1)  # (1 + rounds, candidates)
    centre, spread = strengths[1:].mean(axis=0), strengths[1:].std(axis=0)
    excess = (strengths - centre) / np.maximum(spread, 1e-9)
    chosen = int(np.argmax(excess[0]))
    # The largest excess over all k is compared with the largest of each shuffled matrix: choosing k is paid for.
    p_value = (1 + int((excess[1:].max(axis=1) >= excess[0, chosen] - 1e-9).sum())) / (rounds + 1)
    cuts = splits[candidates[chosen]][0]
    positions = [kept[cut] for cut in cuts]
    labels = [similarity.row_axis.names[place] for place in positions]
    return Blocks(similarity, labels, positions, float(strengths[0, chosen]), p_value, candidates[chosen])


def _usable(similarity: Similarity) -> tuple[np.ndarray, list[int]]:
    """The symmetric matrix of one model's layers, without layers that have no value with any other."""
    values = similarity.values
    if values.shape[0] != values.shape[1] or similarity.rows != similarity.columns:
        raise InputError("Blocks are of one list of layers: compare a model with itself (its rows are its columns).")
    off = (values + values.T) / 2
    np.fill_diagonal(off, np.nan)
    kept = [i for i in range(len(off)) if not np.isnan(off[i]).all()]
    return off[np.ix_(kept, kept)], kept


def _shuffled(values: np.ndarray, generator: np.random.Generator) -> np.ndarray:
    """Each diagonal's known values in another order: the same fall-off with distance, no blocks."""
    shuffled = np.full_like(values, np.nan)
    for distance in range(1, len(values)):
        diagonal = np.diagonal(values, distance).copy()
        known = ~np.isnan(diagonal)
        diagonal[known] = generator.permutation(diagonal[known])
        rows = np.arange(len(diagonal))
        shuffled[rows, rows + distance] = shuffled[rows + distance, rows] = diagonal
    return shuffled


def best_splits(stack: np.ndarray, most: int) -> dict[int, tuple[list[int], np.ndarray]]:
    """For k = 2..most the strongest split of each matrix (r, n, n): the first matrix's cuts, every one's strength.

    All matrices have the same undefined cells. Dynamic programming over (blocks, layers, pairs within blocks): for a
    given number of pairs within, the largest sum within is also the largest mean within minus mean between.
    """
    count, n = len(stack), stack.shape[1]
    known = ~np.isnan(stack[0])
    filled = np.where(known, stack, 0.0)
    sums, pairs = np.zeros((count, n + 1, n + 1)), np.zeros((n + 1, n + 1), dtype=int)
    for a in range(n):
        for b in range(a + 2, n + 1):  # pairs i < j of layers a..b-1
            sums[:, a, b] = sums[:, a, b - 1] + filled[:, a : b - 1, b - 1].sum(axis=1)
            pairs[a, b] = pairs[a, b - 1] + known[a : b - 1, b - 1].sum()
    total, cells = sums[:, 0, n], pairs[0, n]
    # best[b][:, c]: the largest sum over c pairs within blocks that end before layer b
    best = {b: _at(sums[:, 0, b], pairs[0, b], cells) for b in range(2, n + 1)}
    came: list[dict[int, np.ndarray]] = []
    splits = {}
    for k in range(2, most + 1):
        longer, origin = {}, {}
        for b in range(2 * k, n + 1):
            longer[b], origin[b] = np.full((count, cells + 1), -np.inf), np.zeros(cells + 1, dtype=int)
            for a in range(2 * (k - 1), b - 1):
                inside = pairs[a, b]
                candidate = np.full((count, cells + 1), -np.inf)
                candidate[:, inside:] = best[a][:, : cells + 1 - inside] + sums[:, a, b][:, None]
                better = candidate > longer[b]
                longer[b][better] = candidate[better]
                origin[b][better[0]] = a
        best = longer
        came.append(origin)
        within = np.arange(cells + 1)
        with np.errstate(divide="ignore", invalid="ignore"):
            strength = best[n] / within - (total[:, None] - best[n]) / (cells - within)
        strength[:, [0, cells]] = -np.inf
        chosen = int(np.argmax(strength[0]))
        splits[k] = _trace(came, pairs, chosen, n), strength.max(axis=1)
    return splits


def _at(values: np.ndarray, place: int, cells: int) -> np.ndarray:
    table = np.full((len(values), cells + 1), -np.inf)
    table[:, place] = values
    return table


def _trace(came: list[dict[int, np.ndarray]], pairs: np.ndarray, within: int, end: int) -> list[int]:
    """The cuts that led to the best entry of the first matrix."""
    cuts = []
    for origin in reversed(came):
        start = int(origin[end][within])
        within -= int(pairs[start, end])
        end = start
        cuts.append(start)
    return cuts[::-1]
