"""What an injection study gives: the scores, drawn over the layers or, of one layer, as bars."""

from __future__ import annotations

from typing import TYPE_CHECKING

from layerscope.alignment.results import Study
from layerscope.drawing.figures.bars import BarsFigure
from layerscope.drawing.figures.curve import CurveFigure, Series
from layerscope.drawing.words import MAJORITY, caveat, numbers

if TYPE_CHECKING:
    from layerscope.drawing.figure import Figure, Marks

RANDOM_EMBEDDING, RANDOM_LABEL = "random embedding", "random label"
_BANDS = "Intervals of 95% are by the bootstrap over texts; of guesses, over draws."
_CAVEAT = "A head may score well on a map with a large error: it reads few directions."


class InjectionStudy(Study):
    """The target's score with a layer replaced by the source's, mapped; `ls.injection_study` makes one.

    `frame` has one row per layer and method or floor: layer, source_layer, method, score with its interval over texts
    (low, high; 95 %), how much less it is than the target's own on the same texts (lost, lost_low, lost_high; not for
    labels drawn at random), and the same in every row: source_score and target_score with theirs, majority, metric, n.
    """

    name = "injection"

    def figures(self) -> list[Figure]:
        """Curves over the layers, or bars where one layer was replaced; and the table."""
        drawn: Figure = self._curves() if self.frame["layer"].nunique() > 1 else self._bars()
        return [drawn, numbers("All methods", "Every method and floor at every layer.", self.frame)]

    def findings(self) -> list[str]:
        """The scores at the highest layer that was replaced, beside the target's own."""
        first, highest = self.frame.iloc[0], self.frame["layer"].max()
        scores = self.frame[self.frame["layer"] == highest]
        values = ", ".join(f"{r.method} {r.score:.3f} ({r.low:.3f} to {r.high:.3f})" for r in scores.itertuples())
        return [
            f"With its layer {highest} replaced by the source's, mapped, the target has {first['metric']}: {values}; "
            f"on its own states it has {first['target_score']:.3f} ({first['target_low']:.3f} to "
            f"{first['target_high']:.3f})."
        ]

    @property
    def _metric(self) -> str:
        return str(self.frame["metric"].iloc[0])

    @property
    def _n(self) -> int:
        return int(self.frame["n"].iloc[0])

    @property
    def _references(self) -> Marks:
        first = self.frame.iloc[0]
        own = tuple((f"{side} alone", float(first[f"{side}_score"])) for side in ("source", "target"))
        return (*own, (MAJORITY, float(first["majority"])))

    def _curves(self) -> CurveFigure:
        series = [
            Series(str(method), *(tuple(map(float, part[name])) for name in ("layer", "score", "low", "high")))
            for method, part in self.frame.groupby("method", sort=False)
        ]
        return CurveFigure(
            title="The target on the source's mapped states",
            shows=f"{self._metric} of the target when one of its layers is replaced by the source's, mapped by each "
            f"method. {_BANDS}",
            reading="Near the target's own score the map keeps what the target uses; at the floors it keeps nothing.",
            caveat=caveat(_CAVEAT, self._n),
            series=tuple(series),
            x_name="layer of the target that is replaced",
            y_name=self._metric,
            references=self._references,
            n=self._n,
        )

    def _bars(self) -> BarsFigure:
        layer = self.frame["layer"].iloc[0]
        return BarsFigure(
            title=f"The target's head on the source's layer, in place of layer {layer}",
            shows=f"{self._metric} of the target when its layer {layer} is replaced by the source's, mapped by each "
            f"method. Identity is no map at all; {RANDOM_EMBEDDING} is noise in its place, {RANDOM_LABEL} a guess. "
            f"{_BANDS}",
            reading="Near the target's own score the map keeps what the head uses; near noise it keeps nothing.",
            caveat=caveat(_CAVEAT, self._n),
            names=tuple(map(str, self.frame["method"])),
            values=tuple(map(float, self.frame["score"])),
            low=tuple(map(float, self.frame["low"])),
            high=tuple(map(float, self.frame["high"])),
            y_name=self._metric,
            references=self._references,
            n=self._n,
        )
