"""What a sweep over plans gives: the score with the head on every layer, and without each span of blocks."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

import numpy as np

from layerscope.data import metrics
from layerscope.drawing.figure import Side
from layerscope.drawing.figures.curve import CurveFigure, Series
from layerscope.drawing.figures.heatmap import HeatmapFigure
from layerscope.drawing.words import MAJORITY, UNDEFINED, caveat, numbers
from layerscope.results import Tabled

if TYPE_CHECKING:
    import pandas

    from layerscope.drawing.figure import Figure


class Truncation(Tabled):
    """The score with the head on every layer. Several curves, told apart by the column `curve`, are drawn as one.

    Attributes:
        left_out: (groups, layers) the scores without each of some groups of texts, for intervals of differences.

    Example:
        >>> import layerscope as ls
        >>> tuned = ls.tune("garden:bert-s0", "pydocs", max_steps=2, train_limit=64, validation_limit=32, max_length=16)
        >>> curve = ls.truncation_curve(tuned.model, "pydocs", limit=32, max_length=16)
        >>> both = ls.Truncation.together({"one": curve, "the same": curve})
        >>> both.frame["curve"].unique().tolist()
        ['one', 'the same']
    """

    name = "truncation"

    @staticmethod
    def together(curves: Mapping[str, Truncation]) -> Truncation:
        """Several curves of one task as one result, each under its name in the column `curve`."""
        import pandas

        frames = []
        for name, truncation in curves.items():
            frame = truncation.frame.copy()
            frame.insert(0, "curve", name)
            frames.append(frame)
        return Truncation(pandas.concat(frames, ignore_index=True), next(iter(curves.values())).provenance)

    @property
    def frame(self) -> pandas.DataFrame:
        """Columns: layer, score, majority, low, high (95 % over texts), parameters, macs, task, split, metric, n."""
        return self._frame

    def figures(self) -> list[Figure]:
        first = self._frame.iloc[0]
        metric, n = str(first["metric"]), int(first["n"])
        several = "curve" in self._frame
        up = metrics.higher_is_better(metric)
        flat = "Where the curve is flat at the top" if up else "Lower is better: where the curve is flat at the bottom"
        guess = not np.isnan(float(first["majority"]))
        dashed = " The dashed line is the score of always giving the most frequent class." if guess else ""
        parts = self._frame.groupby("curve", sort=False) if several else [("the head on this layer", self._frame)]
        drawn = CurveFigure(
            title="Truncation curve",
            shows=f"{metric} on {first['task']} with the head put on each layer in turn, everything above left out.",
            reading=f"{flat}, the blocks to its right can go at no cost.{dashed}",
            caveat=caveat(
                "Bands are 95% intervals over texts; layerscope advise scores its choice on other rows.",
                n,
            ),
            series=tuple(
                Series(str(name), *(tuple(map(float, part[column])) for column in ("layer", "score", "low", "high")))
                for name, part in parts
            ),
            x_name="layer that the head reads",
            y_name=metric,
            references=((MAJORITY, float(first["majority"])),) if guess else (),
            n=n,
        )
        return [drawn, numbers("What each cut leaves", "Score and size with the head on each layer.", self._frame)]

    def __repr__(self) -> str:
        first = self._frame.iloc[0]
        return f"Truncation({first['metric']} on {first['task']}, layers 0..{self._frame['layer'].max()})"


class SkipMap(Tabled):
    """The score without each contiguous span of blocks.

    Attributes:
        left_out: (groups, spans) the scores without each of some groups of texts, for intervals of differences.

    Example:
        >>> import layerscope as ls
        >>> tuned = ls.tune("garden:bert-s0", "pydocs", max_steps=2, train_limit=64, validation_limit=32, max_length=16)
        >>> skips = ls.skip_map(tuned.model, "pydocs", max_span=2, limit=32, max_length=16)
        >>> bool(((skips.frame["last"] - skips.frame["first"]) <= 1).all())
        True
    """

    name = "skip-map"

    @property
    def frame(self) -> pandas.DataFrame:
        """Columns: first, last, score, whole (of the whole model), low, high, parameters, macs, task, metric, n."""
        return self._frame

    def figures(self) -> list[Figure]:
        frame, first = self._frame, self._frame.iloc[0]
        metric, n = str(first["metric"]), int(first["n"])
        depth = int(frame["last"].max())
        grid = np.full((depth, depth), np.nan)
        grid[frame["last"].to_numpy() - 1, frame["first"].to_numpy() - 1] = frame["score"]
        reasons = {
            (int(r["last"]) - 1, int(r["first"]) - 1): f"{metric} is undefined: every prediction or label is the same"
            for r in frame[frame["score"].isna()].to_dict("records")
        }
        scores = frame["score"].replace([np.inf, -np.inf], np.nan).dropna()
        shade = "Bright" if metrics.higher_is_better(metric) else f"Dark cells have little {metric}: dark"
        blocks = tuple(str(b) for b in range(1, depth + 1))
        drawn = HeatmapFigure(
            title="Skip map",
            shows=f"{metric} on {first['task']} without blocks first..last, nothing trained; the whole model scores "
            f"{first['whole']:.4f}.",
            reading="The lowest cells of each column leave out one block, each step up leaves out one more. "
            f"{shade} cells are spans that the model does not miss." + (UNDEFINED if reasons else ""),
            caveat=caveat("The best of many cells is too good: layerscope advise scores its choice on other rows.", n),
            values=grid,
            rows=Side("last skipped block", ("",) * depth, blocks),
            columns=Side("first skipped block", ("",) * depth, blocks),
            value_name=metric,
            scale=(float(scores.min()), float(scores.max())) if len(scores) else (0.0, 1.0),
            reasons=reasons,
            n=n,
        )
        return [drawn, numbers("What each skip leaves", "Score and size without blocks first..last.", frame)]

    def __repr__(self) -> str:
        first = self._frame.iloc[0]
        return f"SkipMap({first['metric']} on {first['task']}, {len(self._frame)} spans)"
