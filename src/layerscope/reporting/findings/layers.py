"""What comparisons say: similarities of layers, blocks, and curves over layers."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

from layerscope.reporting.findings.finding import (
    ANSWER,
    DETAIL,
    NO_INTERVAL,
    SUPPORT,
    Finding,
    extreme,
    interval,
    number,
    rows,
    short,
    widened,
)
from layerscope.similarity.registry import registry

if TYPE_CHECKING:
    import pandas

    from layerscope.results import Record

_SIGNIFICANT = 0.05


def similarity(frame: pandas.DataFrame, record: Record) -> list[Finding]:
    """The most marked step inside each model, and how like the same layers of two models are."""
    defined = frame[frame["value"].notna()]
    measure, n = str(frame["measure"].iloc[0]), frame["n"].iloc[0]
    findings: list[Finding] = []
    for (first, second), part in defined.groupby(["row_model", "column_model"], sort=False):
        if first == second:
            findings += _steps(part, measure, n, short(str(first)) if frame["row_model"].nunique() > 1 else "")
        elif len(findings) < 4:
            findings += _across(part, measure, n, short(str(first)), short(str(second)))
    return findings


def _distance(measure: str) -> bool:
    entry = registry().get(measure)
    return entry is not None and entry.distance


def _steps(part: pandas.DataFrame, measure: str, n: Any, model: str) -> list[Finding]:
    """The pair of neighbouring layers that is least alike."""
    order = list(dict.fromkeys(part["row_layer"]))
    place = {layer: k for k, layer in enumerate(order)}
    near = part[
        [place.get(b, -9) == place[a] + 1 for a, b in zip(part["row_layer"], part["column_layer"], strict=True)]
    ]
    if len(near) < 2:
        return []
    far = _distance(measure)
    step = extreme(near, "value", most=far)
    others = near.drop(step.name)
    nearest = float(others["value"].max() if far else others["value"].min())
    low, high = widened(step["value"], step["low"], step["high"], len(near))
    sure = None if math.isnan(low) else bool(low > nearest if far else high < nearest)
    whose = f" of {model}" if model else ""
    text = (
        f"The largest step{whose} is from layer {step['row_layer']} to layer {step['column_layer']}: {measure} is "
        f"{number(step['value'])} there, and {number(others['value'].mean())} on average between other neighbouring "
        f"layers."
    )
    evidence = f"{interval(step['low'], step['high'])}; the next largest step has {number(nearest)}{rows(n)}"
    return [Finding(text, evidence, sure, SUPPORT)]


def _across(part: pandas.DataFrame, measure: str, n: Any, first: str, second: str) -> list[Finding]:
    """Layers of the same number in two models: most and least alike."""
    same = part[part["row_layer"] == part["column_layer"]]
    if len(same) < 2:
        return [] if not len(part) else [_best_pair(part, measure, n, first, second)]
    far = _distance(measure)
    order = same.sort_values("value", ascending=far)
    most, least = order.iloc[0], order.iloc[-1]
    low, high = widened(least["value"], least["low"], least["high"], len(same))
    apart = None if math.isnan(low) else bool(low > most["value"] if far else high < most["value"])
    text = (
        f"{first} and {second} are least alike in layer {least['row_layer']} ({measure} {number(least['value'])}) and "
        f"most alike in layer {most['row_layer']} ({number(most['value'])}); the mean over layers is "
        f"{number(same['value'].mean())}."
    )
    findings = [
        Finding(text, f"layer {least['row_layer']}: {interval(least['low'], least['high'])}{rows(n)}", apart, ANSWER)
    ]
    if not math.isnan(float(least["p_value"])):
        findings.append(_chance(least, measure, n))
    return findings


def _best_pair(part: pandas.DataFrame, measure: str, n: Any, first: str, second: str) -> Finding:
    best = part.sort_values("value", ascending=_distance(measure)).iloc[0]
    text = (
        f"Of {first} and {second}, layers {best['row_layer']} and {best['column_layer']} are most alike: {measure} "
        f"{number(best['value'])}."
    )
    return Finding(text, f"{interval(best['low'], best['high'])}{rows(n)}; the best of {len(part)} pairs", None, ANSWER)


def _chance(least: Any, measure: str, n: Any) -> Finding:
    """Whether even the least alike layers are more alike than shuffled texts make them.

    It speaks of all layers through the one that speaks most against it, so the choice needs no allowance.
    """
    p = float(least["p_value"])
    above = p < _SIGNIFICANT
    text = (
        f"Even there they {'share more than chance' if above else 'are not shown to share more than chance'}: "
        f"shuffled texts give {measure} {number(least['baseline'])}."
    )
    return Finding(text, f"p = {p:.2g}{rows(n)}", above, DETAIL)


def blocks(frame: pandas.DataFrame, record: Record) -> list[Finding]:
    """Whether the layers fall into groups."""
    first, p = frame.iloc[0], float(frame["p_value"].iloc[0])
    groups = [f"{a} to {b}" for a, b in zip(frame["first_layer"], frame["last_layer"], strict=True)]
    split = (
        f"The best split of the layers has {len(frame)} groups: {', '.join(groups)} (strength {first['strength']:.2f})"
    )
    bounds = interval(float(first["low"]), float(first["high"]))
    if math.isnan(p):
        return [Finding(f"{split}.", f"{bounds}; {first['reason']}", None, ANSWER)]
    if p < _SIGNIFICANT:
        text = f"{split}, and the steps between them are larger than gradual change explains."
        return [Finding(text, f"p = {p:.2g}; {bounds}", True, ANSWER)]
    text = f"{split}, but gradual change from layer to layer would give as much."
    return [Finding(text, f"p = {p:.2g}; {bounds}", False, ANSWER)]


def curve(frame: pandas.DataFrame, record: Record) -> list[Finding]:
    """The ends of a curve over layers, or over blocks: of influence, of localization and the like."""
    name = str(frame.columns[2])
    what = "block" if "influence" in (record.kind, name) else "layer"
    findings = []
    for model, part in frame[frame[name].notna()].groupby("model", sort=False):
        least, most = extreme(part, name, most=False), extreme(part, name, most=True)
        text = (
            f"{name} of {short(str(model))} is lowest in {what} {int(least['layer'])} "
            f"({number(least[name])}) and highest in {what} {int(most['layer'])} ({number(most[name])})."
        )
        if "low" not in part:
            findings.append(Finding(text, NO_INTERVAL + rows(record.data.get("n")), None, ANSWER))
            continue
        _, high = widened(least[name], least["low"], least["high"], len(part))
        others = part.drop(least.name)
        sure = None if math.isnan(high) or not len(others) else bool(high < others[name].min())
        evidence = f"{what} {int(least['layer'])}: {interval(least['low'], least['high'])}{rows(record.data.get('n'))}"
        findings.append(Finding(text, evidence, sure, ANSWER))
    return findings
