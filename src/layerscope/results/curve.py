"""`Curve`: one number for each layer."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np

from layerscope.drawing.figures.curve import CurveFigure, Series
from layerscope.results.finding import ANSWER, NO_INTERVAL, Finding, apart, extreme, interval, number, rows
from layerscope.results.result import Result

if TYPE_CHECKING:
    import pandas

    from layerscope.drawing.figure import Figure

PERMUTED = "permuted labels (median, and nine tenths of them)"
_EXTRAS = ("low", "high", "wins", "null", "ratio", "p")


@dataclass(repr=False)
class Curve(Result):
    """`values[i]` belongs to layer `layers[i]` (a whole number) of `models[i]`; NaN where undefined.

    Attributes:
        name: What is measured.
        models: The model of each value.
        layers: The layer of each value.
        values: The values.
        provenance: What they rest on.
        best: The layer that the curve points to, where it points to one.
        low: The lower end of an interval, where there is one.
        high: The upper end.
        wins: How often each layer came out best over subsamples.
        null: The median value with permuted labels, where labels were permuted.
        ratio: The value over `null`.
        p: The share of labellings, the true one among them, with a value as good in that layer.
        p_best: The same for the best layer, after allowing for the choice among layers.
        permuted: (permutations, layers) the values with permuted labels.
        left_out: (groups, layers) the values without each of some groups of texts, where those were measured.
        draws: (resamples, layers) the values of halves of the texts, where those were measured.
        words: Title, shows, reading and caveat of its figure; `x_name` where its layers are called something else.

    Example:
        >>> import numpy as np, layerscope as ls
        >>> curve = ls.Curve("nu", ["model"] * 3, [0, 1, 2], np.array([3.0, 1.0, 2.0]), best=1)
        >>> curve.frame["nu"].tolist()
        [3.0, 1.0, 2.0]
    """

    name: str  # of what is measured
    models: list[str]
    layers: list[int]
    values: np.ndarray
    provenance: Mapping[str, Any] = field(default_factory=dict)
    best: int | None = None
    low: np.ndarray | None = None
    high: np.ndarray | None = None
    wins: np.ndarray | None = None
    null: np.ndarray | None = None
    ratio: np.ndarray | None = None
    p: np.ndarray | None = None
    p_best: float = math.nan
    permuted: np.ndarray | None = None
    left_out: np.ndarray | None = None
    draws: np.ndarray | None = None
    words: Mapping[str, str] = field(default_factory=dict)  # title, shows, reading and caveat of its figure

    @property
    def frame(self) -> pandas.DataFrame:
        """Columns: model, layer, the value under the curve's name; low, high, wins, null, ratio, p where known."""
        import pandas

        frame = pandas.DataFrame({"model": self.models, "layer": self.layers, self.name: self.values})
        for name in _EXTRAS:
            if (extra := getattr(self, name)) is not None:
                frame[name] = extra
        return frame

    @property
    def ties(self) -> list[int] | None:
        """The layers above 0 that are not told apart from the best one, and that one; None where nothing can tell."""
        frame = self.frame
        part = frame[(frame["layer"] >= 1) & frame[self.name].notna()]
        if self.best is None:
            return None
        others = apart(part, self.name, self.layers.index(self.best), self.left_out, self.draws)
        return None if others is None else [int(layer) for layer in part["layer"][~others]]

    def explain_gaps(self, reason: str) -> None:
        """Note why some layers have no value: in `provenance["undefined"]`, and under the figure."""
        gaps = [str(layer) for layer, value in zip(self.layers, self.values, strict=True) if math.isnan(value)]
        if not gaps:
            return
        sentence = f"{self.name} has no value in layer{'s' * (len(gaps) > 1)} {', '.join(gaps)}: {reason}."
        self.provenance = {**self.provenance, "undefined": sentence}
        self.words = {**self.words, "caveat": f"{sentence} {self.words.get('caveat', '')}".rstrip()}

    def figures(self) -> list[Figure]:
        series = [self._series(model) for model in dict.fromkeys(self.models)]
        if self.permuted is not None:
            series.append(self._permuted())
        marks = ((f"layer {self.best}", float(self.best)),) if self.best is not None else ()
        usual = {"title": f"{self.name} of every layer", "shows": f"{self.name} of every layer.", "reading": ""}
        words: dict[str, Any] = {**usual, **self.words}
        words.setdefault("x_name", "layer")
        return [CurveFigure(series=tuple(series), y_name=self.name, marks=marks, **words)]

    def findings(self) -> list[Finding]:
        """The lowest and the highest value of every model's curve."""
        frame, name = self.frame, self.name
        what, n = self.words.get("x_name", "layer"), self.provenance.get("data", {}).get("n")
        findings = []
        for model, part in frame[frame[name].notna()].groupby("model", sort=False):
            least, most = extreme(part, name, most=False), extreme(part, name, most=True)
            text = (
                f"{name} of {model} is lowest in {what} {int(least['layer'])} "
                f"({number(least[name])}) and highest in {what} {int(most['layer'])} ({number(most[name])})."
            )
            if "low" not in part:
                findings.append(Finding(text, NO_INTERVAL + rows(n), None, ANSWER))
                continue
            # The lowest is held against all others, and so is the highest, each with the differences' intervals.
            others = [apart(part, name, each.name, self.left_out, self.draws) for each in (least, most)]
            known = [int(each.sum()) == len(part) - 1 for each in others if each is not None]
            evidence = f"{what} {int(least['layer'])}: {interval(least['low'], least['high'])}{rows(n)}"
            findings.append(Finding(text, evidence, all(known) if known and len(part) > 1 else None, ANSWER))
        return findings

    def _series(self, model: str) -> Series:
        at = [i for i, name in enumerate(self.models) if name == model]

        def part(values: Sequence[float] | np.ndarray) -> tuple[float, ...]:
            return tuple(float(values[i]) for i in at)

        if self.low is None or self.high is None:
            return Series(model, part(self.layers), part(self.values))
        return Series(model, part(self.layers), part(self.values), part(self.low), part(self.high))

    def _permuted(self) -> Series:
        """Return the median with permuted labels, and where nine tenths of those values lie."""
        assert self.permuted is not None
        defined = ~np.isnan(self.permuted).any(axis=0)
        bounds = np.full((3, len(self.layers)), np.nan)
        bounds[:, defined] = np.quantile(self.permuted[:, defined], [0.05, 0.5, 0.95], axis=0)
        low, middle, high = (tuple(map(float, part)) for part in bounds)
        return Series(PERMUTED, tuple(map(float, self.layers)), middle, low, high)

    def __repr__(self) -> str:
        best = "" if self.best is None else f", best {self.best}"
        return f"Curve({self.name} of layers {self.layers[0]}..{self.layers[-1]}{best})"
