"""Claims of the papers as data, and the verdict on each: a statistic with its interval against a threshold."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cache
from importlib.resources import files
from typing import Any, Literal

import yaml
from pydantic import BaseModel, ConfigDict, Field, model_validator

Verdict = Literal["holds", "does not hold", "undecided", "not testable"]


class Claim(BaseModel):
    """A statement of a paper, in our words, and how it is put to the test."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    name: str
    paper: str
    experiment: str
    where: str
    says: str
    number: str = ""  # the paper's own, where it gives one
    about: str  # the call whose figure it is about
    statistic: str  # a function of `statistics`
    options: dict[str, Any] = Field(default_factory=dict)
    above: float | None = None
    below: float | None = None
    refuted: str  # what would refute it
    over: tuple[str, str] | None = None  # two models of the profile: the statistic of the first minus the second's

    @model_validator(mode="after")
    def _has_one_threshold(self) -> Claim:
        if (self.above is None) == (self.below is None):
            raise ValueError(f"{self.name}: a claim has a threshold, `above` or `below`")
        return self

    @property
    def threshold(self) -> str:
        """The threshold in words."""
        return f"above {self.above:g}" if self.above is not None else f"below {self.below:g}"


@dataclass(frozen=True)
class Statistic:
    """A number with its interval over texts (NaN where there is none), or the reason why there is no number."""

    value: float
    low: float = math.nan
    high: float = math.nan
    reason: str = ""
    n: int = 0
    note: str = ""  # what stands beside the number

    @staticmethod
    def missing(reason: str) -> Statistic:
        return Statistic(math.nan, reason=reason)

    def noted(self, note: str) -> Statistic:
        """Return the statistic with a note beside the number."""
        return replace(self, note=note)

    def within(self, least: float, most: float) -> Statistic:
        """Return the statistic with its interval limited to the values that there can be."""
        return replace(self, low=max(self.low, least), high=min(self.high, most))

    def minus(self, other: Statistic) -> Statistic:
        """Return the difference of two statistics; half-widths add as for independent errors.

        Statistics of the same texts mostly err the same way, and then the interval is too wide, never too narrow.
        """
        if self.reason or other.reason:
            return Statistic.missing(self.reason or other.reason)
        value = self.value - other.value
        below = math.hypot(self.value - self.low, other.high - other.value)
        above = math.hypot(self.high - self.value, other.value - other.low)
        return Statistic(value, value - below, value + above, n=min(self.n, other.n))


def verdict(claim: Claim, statistic: Statistic) -> Verdict:
    """Return whether a claim holds: its whole interval is on its side. It is undecided if that spans the threshold."""
    if statistic.reason or math.isnan(statistic.value):
        return "not testable"
    value, low, high = statistic.value, statistic.low, statistic.high
    threshold = claim.above if claim.above is not None else claim.below
    if claim.below is not None:
        value, low, high, threshold = -value, -high, -low, -claim.below
    assert threshold is not None
    if math.isnan(low) or math.isnan(high):  # without an interval a number decides nothing
        return "undecided"
    return "holds" if low > threshold else "does not hold" if high <= threshold else "undecided"


@cache
def claims() -> tuple[Claim, ...]:
    """Return every claim of every paper."""
    text = files("layerscope.recipes").joinpath("claims.yaml").read_text(encoding="utf-8")
    return tuple(Claim.model_validate(entry) for entry in yaml.safe_load(text))


def claims_of(paper: str, experiments: Sequence[str]) -> list[Claim]:
    """Return the claims that some experiments of a paper decide."""
    return [claim for claim in claims() if claim.paper == paper and claim.experiment in experiments]
