"""Which pairs of layers are worked on together, so that no more than a budget of memory is used at a time."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from layerscope.measures.moments import Pair

GIB = 1 << 30
MEMORY = 4.0  # GiB, for cross products or factored layers


def tiles(pairs: Sequence[Pair], cost: Callable[[Sequence[Pair]], int], budget: float) -> list[list[Pair]]:
    """The pairs in as few tiles as fit: the views in g groups of neighbours, a tile for every two groups.

    A tile of one pair is the smallest there is, even if that is above the budget.
    """
    views = sorted({view for pair in pairs for view in pair})
    count = 0
    found: list[list[Pair]] = [[]]
    while count < len(views):
        count += 1
        group = {view: k * count // len(views) for k, view in enumerate(views)}
        parts: dict[Pair, list[Pair]] = {}
        for i, j in pairs:
            a, b = sorted((group[i], group[j]))
            parts.setdefault((a, b), []).append((i, j))
        found = [parts[key] for key in sorted(parts)]
        if max(map(cost, found)) <= budget:
            break
    return found


def views_of(pairs: Sequence[Pair]) -> list[int]:
    return sorted({view for pair in pairs for view in pair})
