"""Targets of a smaller model: limits on blocks, parameters or latency, and how much of a score may be lost."""

from __future__ import annotations

import math
import re
import sys
from dataclasses import dataclass
from typing import Any

from layerscope import metrics
from layerscope.cutting.costs import Costs
from layerscope.cutting.plan import LayerPlan
from layerscope.errors import InputError, whole

_THOUSANDS = {"": 1, "k": 10**3, "m": 10**6, "b": 10**9, "g": 10**9}
_MORE = 2  # sizes beyond the largest that meets a target, which are tried too


@dataclass(frozen=True)
class Bound:
    """An upper limit, absolute or as a fraction of the full model."""

    amount: float
    share: bool
    written: str

    def most(self, whole: float) -> float:
        """Return the limit for a full model of this size."""
        return self.amount * whole if self.share else self.amount


_NUMBER = re.compile(r"([0-9]*\.?[0-9]+(?:[eE][+-]?[0-9]+)?)\s*(%|[a-zA-Z]*)")


def _bound(name: str, value: float | str, units: dict[str, float], example: str) -> Bound:
    """Return the limit that `80%`, or a number with one of some units, stands for; raise InputError otherwise.

    A number without a unit is a fraction where the units name no unit for it.
    """
    match = _NUMBER.fullmatch(str(value).strip().replace(",", "").replace("_", ""))
    number, unit = (float(match[1]), match[2].lower()) if match else (math.nan, "")
    if unit == "%":
        bound = Bound(number / 100, True, f"{number:g} %")
    elif unit == "" and unit not in units:
        bound = Bound(number, True, f"{100 * number:g} %")
    else:
        bound = Bound(number * units.get(unit, math.nan), False, str(value).strip())
    if not 0 < bound.amount <= (1 if bound.share else sys.float_info.max):
        raise InputError(f"{name} is {value}; give {example}.")
    return bound


@dataclass(frozen=True)
class Target:
    """Limits that a plan must meet; the one with the best score of those that do is chosen.

    An empty target means no constraint.
    """

    blocks: int | None = None
    parameters: Bound | None = None
    latency: Bound | None = None

    @staticmethod
    def parse(blocks: int | None, parameters: float | str | None, latency: float | str | None) -> Target:
        """Return the target of `blocks` that stay, `100M` or `80%` parameters, `80%` or `40ms` of latency."""
        most = None if parameters is None else _bound("parameters", parameters, dict(_THOUSANDS), "100M, say, or 80%")
        if blocks is not None and not whole(blocks):
            raise InputError(f"blocks is {blocks}; the whole number of blocks that stay is needed.")
        time = None if latency is None else _bound("latency", latency, {"ms": 1.0, "s": 1000.0}, "80%, say, or 40ms")
        return Target(None if blocks is None else int(blocks), most, time)

    def __bool__(self) -> bool:
        return any(part is not None for part in (self.blocks, self.parameters, self.latency))

    def __str__(self) -> str:
        parts = []
        if self.blocks is not None:
            parts.append(f"keep {self.blocks} block{'s' * (self.blocks > 1)}")
        if self.parameters is not None:
            parts.append(f"have at most {self.parameters.written} {'of the ' * self.parameters.share}parameters")
        if self.latency is not None:
            parts.append(f"take at most {self.latency.written} {'of the time ' * self.latency.share}for one text")
        return " and ".join(parts)

    def sizes(self, costs: Costs) -> tuple[int, ...]:
        """Return how many blocks have to go, and a few more; raise InputError where no number would do."""
        depth = costs.model.depth
        if self.blocks is not None:
            if not 1 <= self.blocks < depth:
                raise InputError(
                    f"blocks is {self.blocks}; {costs.model.name} has {depth} blocks, so a smaller model keeps "
                    f"1..{depth - 1} of them."
                )
            return (depth - self.blocks,)
        fewest = max(self._fewest(costs, *each) for each in self._asked(costs))
        return tuple(range(fewest, min(fewest + _MORE, depth - 1) + 1))

    def _asked(self, costs: Costs) -> list[tuple[Bound, Any, str]]:
        """Return for each limit the limit, the cost by how many blocks go, and its unit."""
        asked: list[tuple[Bound, Any, str]] = []
        if self.parameters is not None:
            asked.append((self.parameters, costs.least_parameters, "parameters"))
        if self.latency is not None:
            depth = costs.model.depth
            asked.append(
                (self.latency, lambda size: 1000 * costs.latency(LayerPlan.truncated(depth, depth - size), 1), "ms")
            )
        return asked

    def _fewest(self, costs: Costs, bound: Bound, cost: Any, unit: str) -> int:
        """Return the fewest blocks that have to go, by bisection: the more go, the less the rest costs."""
        name, depth, whole = costs.model.name, costs.model.depth, cost(0)
        most = bound.most(whole)
        if whole <= most:
            raise InputError(
                f"The whole of {name} has {_shown(whole, unit)}, which is no more than {_shown(most, unit)}: nothing "
                "has to go. Ask for less."
            )
        if depth < 2 or cost(depth - 1) > most:
            least = cost(max(depth - 1, 0))
            raise InputError(
                f"At most {_shown(most, unit)} were asked for, and {name} has {_shown(least, unit)} with one block "
                f"left of {depth} ({100 * least / whole:.0f} % of the whole model's {_shown(whole, unit)}); ask for "
                "more."
            )
        low, high = 1, depth - 1
        while low < high:
            middle = (low + high) // 2
            low, high = (low, middle) if cost(middle) <= most else (middle + 1, high)
        return high

    def meets(self, blocks: int, row: Any, whole: Any) -> bool:
        """Return whether a candidate with this many blocks, a row of the table, meets every limit."""
        return (
            (self.blocks is None or blocks == self.blocks)
            and (self.parameters is None or row["parameters"] <= self.parameters.most(whole["parameters"]))
            and (self.latency is None or row["latency_1_ms"] <= self.latency.most(whole["latency_1_ms"]))
        )


def _shown(value: float, unit: str) -> str:
    """Return a cost as messages show it."""
    return f"{value:,.0f} parameters" if unit == "parameters" else f"{value:.2f} ms for a text"


@dataclass(frozen=True)
class Tolerance:
    """How much of a score may be lost: an amount of the metric, or a share of the whole model's score."""

    amount: float
    relative: bool = False

    @staticmethod
    def parse(value: float | str, metric: str) -> Tolerance:
        """Return the tolerance that `0.01`, or `5%` of the whole model's score, stands for.

        Of a loss or a perplexity every tolerance is a share.
        """
        text = str(value).strip()
        share = text.endswith("%")
        try:
            amount = float(text.removesuffix("%")) / (100 if share else 1)
        except ValueError:
            amount = math.nan
        if not 0 <= amount < math.inf:
            raise InputError(f"tolerance is {value}; it must be 0 or more, such as 0.01, or a share, such as 5%.")
        return Tolerance(amount, share or metric in metrics.LOSSES)

    def allowed(self, whole: float) -> float:
        """Return how much worse than the whole model's score a score may be."""
        return self.amount * abs(whole) if self.relative else self.amount

    def holds(self, metric: str, whole: float, score: float) -> bool:
        """Return whether a score is within the tolerance of the whole model's."""
        return metrics.upward(metric, score) >= metrics.upward(metric, whole) - self.allowed(whole)

    def __str__(self) -> str:
        return f"{100 * self.amount:g} %" if self.relative else f"{self.amount:g}"
