"""What alignment, synthetic maps and injection say."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from layerscope.data import metrics
from layerscope.reporting.findings.finding import (
    ANSWER,
    NO_INTERVAL,
    SUPPORT,
    Finding,
    better_end,
    interval,
    number,
    rows,
    widened,
    worse,
)

if TYPE_CHECKING:
    import pandas

    from layerscope.results import Record

_FLOORS = ("random embedding", "random label")
_TRIVIAL = ("identity", "mean")  # maps that learn nothing of the pair


def alignment(frame: pandas.DataFrame, record: Record) -> list[Finding]:
    """How much of the other model the best map leaves unexplained, in the highest layer and in the worst."""
    scored = frame[(frame["split"] == "test") & frame["relative"].notna()]
    scored = scored[scored["layer"] == scored["target_layer"]]
    if not len(scored):
        return []
    means = scored.groupby(["layer", "method"], sort=False)["relative"].mean().unstack()
    top = means.index.max()
    findings = [_best_map(scored, top, means.loc[top].idxmin())]
    best = means.min(axis=1)
    if len(best) > 2:
        text = (
            f"Over the layers the best map leaves between {best.min():.0%} (layer {best.idxmin()}) and "
            f"{best.max():.0%} (layer {best.idxmax()}) of the spread unexplained."
        )
        findings.append(Finding(text, f"means over pairs of models; {NO_INTERVAL} for the difference", None, SUPPORT))
    return findings


def _best_map(scored: pandas.DataFrame, layer: int, method: str) -> Finding:
    at = scored[scored["layer"] == layer]
    own = at[at["method"] == method]
    value, same = float(own["relative"].mean()), at[at["method"] == "identity"]["relative"]
    text = f"In layer {layer} a {method} map leaves {value:.0%} of the other model's spread unexplained"
    text += f", and no map at all {same.mean():.0%}." if len(same) and method != "identity" else "."
    low, high = (float(own[name].iloc[0]) if len(own) == 1 and name in own else math.nan for name in _BOUNDS)
    if math.isnan(low):
        return Finding(text, f"mean over {len(own)} pairs of models{rows(own['n'].iloc[0])}", None, ANSWER)
    ends = widened(value, low, high, at["method"].nunique())
    return Finding(
        text,
        f"{interval(low, high)} on texts that it did not learn from{rows(own['n'].iloc[0])}",
        bool(ends[1] < 1),
        ANSWER,
    )


_BOUNDS = ("relative_low", "relative_high")


def synthetic(frame: pandas.DataFrame, record: Record) -> list[Finding]:
    """Which method comes nearest to maps that are known."""
    means = frame.groupby(["truth", "method"], sort=False)["relative"].mean().unstack()
    findings: list[Finding] = []
    for truth, errors in means.iterrows():
        best = str(errors.idxmin())
        left = f"{errors[best]:.1%} of the spread is left unexplained"
        text = f"Where the true map is {truth}, {best} comes nearest: {left}."
        repeats = int(frame[(frame["truth"] == truth) & (frame["method"] == best)].shape[0])
        findings.append(
            Finding(text, f"mean over {repeats} repeats; {NO_INTERVAL}", None, ANSWER if not findings else SUPPORT)
        )
    return findings


def injection(frame: pandas.DataFrame, record: Record) -> list[Finding]:
    """What the target scores on the other model's states, in the highest layer that was replaced and in the lowest."""
    first = frame.iloc[0]
    metric, target, n = str(first["metric"]), float(first["target_score"]), first["n"]
    up = metrics.higher_is_better(metric)
    learned = frame[~frame["method"].isin(_FLOORS) & frame["score"].notna()]
    findings: list[Finding] = []
    for weight, layer in ((ANSWER, learned["layer"].max()), (SUPPORT, learned["layer"].min())):
        at = learned[learned["layer"] == layer].sort_values("score", ascending=not up)
        if not len(at) or (findings and layer == learned["layer"].max()):
            continue
        best = at.iloc[0]
        low, high = widened(best["score"], best["low"], best["high"], len(at))
        loses = worse(better_end(low, high, up), target, up)
        text = (
            f"With layer {int(layer)} replaced by the other model's, mapped by {best['method']}, {metric} is "
            f"{number(best['score'])}; on its own states the target has {number(target)}. "
        )
        text += "Something is lost." if loses else "No loss is shown."
        evidence = f"{interval(best['low'], best['high'])}, the best of {len(at)} methods{rows(n)}"
        findings.append(Finding(text, evidence, bool(loses), weight))
    return findings
