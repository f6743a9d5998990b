"""Where names go in a picture, so that none covers a point or another name."""

from __future__ import annotations

from collections.abc import Sequence

Box = tuple[float, float, float, float]  # left, bottom, right, top


def shared(one: Box, other: Box) -> float:
    """The area that two boxes share."""
    wide = min(one[2], other[2]) - max(one[0], other[0])
    high = min(one[3], other[3]) - max(one[1], other[1])
    return wide * high if wide > 0 and high > 0 else 0.0


def boxes_around(x: float, y: float, width: float, height: float, gap: float) -> list[Box]:
    """Places for a name of that size around a point: beside, above and below it, and then farther away."""
    places: list[Box] = []
    for far in (1.0, 2.0, 3.5, 5.0):
        d = gap * far
        for left, bottom in (
            (x + d, y + d / 2),
            (x - d - width, y + d / 2),
            (x + d, y - d / 2 - height),
            (x - d - width, y - d / 2 - height),
            (x - width / 2, y + d),
            (x - width / 2, y - d - height),
        ):
            places.append((left, bottom, left + width, bottom + height))
    return places


def place(places: Sequence[Box], taken: Sequence[Box], inside: Box) -> Box:
    """The first place that covers nothing and is inside; else the one that covers least."""

    def fault(box: Box) -> float:
        area = (box[2] - box[0]) * (box[3] - box[1])
        return sum(shared(box, other) for other in taken) + 2 * (area - shared(box, inside))

    return min(places, key=fault)  # the first of equals


def apart(centres: Sequence[float], gap: float, low: float, high: float) -> list[float]:
    """Places along a line, each as near to its own as a distance of `gap` between neighbours and the ends allow."""
    order = sorted(range(len(centres)), key=lambda k: centres[k])
    spread = [min(max(centres[k], low), high) for k in order]
    for k in range(1, len(spread)):
        spread[k] = max(spread[k], spread[k - 1] + gap)
    limit = max(high, low + gap * (len(spread) - 1))
    for k in range(len(spread) - 1, -1, -1):
        spread[k] = min(spread[k], limit)
        limit = spread[k] - gap
    placed = [0.0] * len(centres)
    for k, value in zip(order, spread, strict=True):
        placed[k] = value
    return placed
