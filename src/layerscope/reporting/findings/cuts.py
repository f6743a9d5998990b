"""What truncation curves, skip maps, scores and advice say."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

from layerscope.cutting.candidates import by_rule
from layerscope.data import metrics
from layerscope.drawing.figures.bars import BarsFigure
from layerscope.reporting.findings.finding import (
    ANSWER,
    DETAIL,
    NO_INTERVAL,
    SUPPORT,
    Finding,
    better_end,
    interval,
    number,
    rows,
    short,
    task_name,
    widened,
    worse,
    worse_end,
)

if TYPE_CHECKING:
    import pandas

    from layerscope.results import Record

_NEAR = 0.1  # the share of a value within which its interval must lie, so that the value is sure
_NOT_TESTED = "the difference itself was not tested"


def truncation(frame: pandas.DataFrame, record: Record) -> list[Finding]:
    """How many of the top blocks may be dispensable, and from which layer on the head reads anything."""
    curves = list(frame.groupby("curve", sort=False)) if "curve" in frame else [("", frame)]
    return [finding for name, part in curves for finding in _one_truncation(str(name), part)]


def _one_truncation(name: str, part: pandas.DataFrame) -> list[Finding]:
    part = part.sort_values("layer")
    whole, below = part.iloc[-1], part.iloc[:-1]
    metric, depth, n = str(whole["metric"]), int(whole["layer"]), whole["n"]
    if not len(below) or not math.isfinite(whole["score"]):
        return []
    up, whose = metrics.higher_is_better(metric), f"{name}: " if name else ""
    reaching = [
        not worse(better_end(row["low"], row["high"], up), whole["score"], up) and math.isfinite(row["score"])
        for _, row in below.iterrows()
    ]
    layers = [int(layer) for layer in below["layer"]]
    kept = depth
    while kept - 1 in layers and reaching[layers.index(kept - 1)]:
        kept -= 1
    if kept < depth:
        row = below[below["layer"] == kept].iloc[0]
        text = (
            f"{whose}{_blocks(depth - kept).capitalize()} of {depth} at the top may be dispensable: with the head on "
            f"layer {kept}, {metric} is {number(row['score'])}, where the whole model has {number(whole['score'])}."
        )
        evidence = f"{interval(row['low'], row['high'])} includes the whole model's score; {_NOT_TESTED}{rows(n)}"
        findings = [Finding(text, evidence, False, ANSWER)]
    else:
        row = below.iloc[-1]
        low, high = widened(row["score"], row["low"], row["high"], len(below))
        text = (
            f"{whose}No block at the top is dispensable as it is: with the head on layer {depth - 1}, {metric} is "
            f"{number(row['score'])}, where the whole model has {number(whole['score'])}."
        )
        sure = worse(better_end(low, high, up), whole["score"], up)
        findings = [Finding(text, interval(row["low"], row["high"]) + rows(n), bool(sure), ANSWER)]
    return [*findings, *_above_guessing(part, whose, metric, n)]


def _above_guessing(part: pandas.DataFrame, whose: str, metric: str, n: Any) -> list[Finding]:
    """From which layer on every score lies above that of always giving the most frequent class."""
    guess = float(part["majority"].iloc[0])
    if math.isnan(guess):
        return []
    above = [bool(widened(r["score"], r["low"], r["high"], len(part))[0] > guess) for _, r in part.iterrows()]
    if not above[-1]:
        text = f"{whose}Even the whole model is not shown to do better than always giving the most frequent class."
        last = part.iloc[-1]
        evidence = f"{metric} {number(last['score'])}, {interval(last['low'], last['high'])}, against {number(guess)}"
        return [Finding(text, evidence + rows(n), False, SUPPORT)]
    start = len(above) - 1
    while start and above[start - 1]:
        start -= 1
    text = (
        f"{whose}From layer {int(part['layer'].iloc[start])} on the head does better than always giving the most "
        f"frequent class ({metric} {number(guess)})."
    )
    return [Finding(text, f"95% intervals, widened for {len(part)} layers, lie above it{rows(n)}", True, DETAIL)]


def skips(frame: pandas.DataFrame, record: Record) -> list[Finding]:
    """The blocks that are missed least and most, and the longest span that is not clearly missed."""
    whole, metric, n = float(frame["whole"].iloc[0]), str(frame["metric"].iloc[0]), frame["n"].iloc[0]
    up = metrics.higher_is_better(metric)
    defined = frame[frame["score"].notna()]
    single = defined[defined["first"] == defined["last"]].sort_values("score", ascending=not up)
    if len(single) < 2 or not math.isfinite(whole):
        return []
    least, most = single.iloc[0], single.iloc[-1]
    low, high = widened(most["score"], most["low"], most["high"], len(single))
    findings = [
        Finding(
            f"The model misses block {int(most['first'])} most: {metric} is {number(most['score'])} without it and "
            f"{number(whole)} with it.",
            interval(most["low"], most["high"]) + rows(n),
            bool(worse(better_end(low, high, up), whole, up)),
            SUPPORT,
        ),
        Finding(
            f"It misses block {int(least['first'])} least: {metric} is {number(least['score'])} without it.",
            f"{interval(least['low'], least['high'])}; the best of {len(single)} blocks on the same rows, so a little "
            f"too good{rows(n)}",
            False,
            DETAIL,
        ),
    ]
    reached = [not worse(better_end(r["low"], r["high"], up), whole, up) for _, r in defined.iterrows()]
    spans = defined[reached].assign(length=lambda part: part["last"] - part["first"] + 1)
    if not len(spans):
        text = f"No span of blocks can go without a loss of {metric}: every one lies clearly below the whole model."
        lower = text if up else text.replace("below", "above")
        return [Finding(lower, f"95% intervals of {len(defined)} spans{rows(n)}", True, ANSWER), *findings]
    best = spans.sort_values(["length", "score"], ascending=[False, not up]).iloc[0]
    text = (
        f"The longest span that may be dispensable is {_span(best)}: {metric} is {number(best['score'])} without it, "
        f"and the whole model has {number(whole)}."
    )
    evidence = f"{interval(best['low'], best['high'])}; picked among {len(defined)} spans on the same rows{rows(n)}"
    return [Finding(text, evidence, False, ANSWER), *findings]


def _span(row: Any) -> str:
    first, last = int(row["first"]), int(row["last"])
    return f"block {first}" if first == last else f"blocks {first} to {last}"


def _blocks(count: int) -> str:
    return "one block" if count == 1 else f"{count} blocks"


def advice(frame: pandas.DataFrame, record: Record) -> list[Finding]:
    """Which blocks are enough, and how the rules compare."""
    whole, chosen = frame.iloc[0], frame[frame["chosen"]].iloc[0]
    metric = str(whole["metric"])
    first = _kept(whole, chosen, metric, record) if chosen["removed"] else _nothing(frame, metric, record)
    return [first, *_rules(frame, metric, record)]


def _kept(whole: Any, chosen: Any, metric: str, record: Record) -> Finding:
    confidence = float(record.settings.get("confidence") or 0.0)
    bounded = confidence > 0 and math.isfinite(chosen["change_low"])
    depth = int(str(whole["blocks"]).split("-")[-1])
    allowed, target = record.settings.get("tolerance"), record.settings.get("target")
    what = f"are the best of those that {target}" if target else "are enough"
    within = f" within a tolerance of {allowed}" if allowed is not None and not target else ""
    text = (
        f"Blocks {chosen['blocks']} of {depth} {what}{within}: {metric} is {number(chosen['score'])}, where the whole "
        f"model has {number(whole['score'])}, with {chosen['parameters'] / whole['parameters']:.0%} of the parameters."
    )
    bound = (
        f"with {confidence:.0%} confidence it loses at most {number(max(-chosen['change_low'], 0.0))}"
        if bounded
        else "chosen without a bound, and the luckiest of many candidates is often outside the tolerance"
    )
    where = f"{interval(chosen['low'], chosen['high'])} on the rows that did not choose it{_half(record)}"
    return Finding(text, f"{where}; {bound}", bounded, ANSWER)


def _half(record: Record) -> str:
    """How many rows scored: half of them."""
    n = record.data.get("n")
    return f" (about {n // 2:,} of {n:,})" if isinstance(n, int) else ""


def _nothing(frame: pandas.DataFrame, metric: str, record: Record) -> Finding:
    tolerance = record.settings.get("tolerance", "the tolerance")
    tested = frame[frame["change"].notna() & (frame["removed"] > 0)].sort_values("removed")
    text = f"No block is shown to be dispensable within a tolerance of {tolerance} {metric}."
    if not len(tested):
        return Finding(text, f"no smaller candidate came near it{rows(record.data.get('n'))}", False, ANSWER)
    row = tested.iloc[0]
    evidence = (
        f"the next smaller candidate, blocks {row['blocks']}, changes {metric} by {row['change']:+.3f}, and perhaps by "
        f"{row['change_low']:+.3f}{rows(record.data.get('n'))}"
    )
    return Finding(text, evidence, False, ANSWER)


def _rules(frame: pandas.DataFrame, metric: str, record: Record) -> list[Finding]:
    """The best rule beside random blocks, at the size that was chosen or else the smallest."""
    names = record.settings.get("rules") or ()
    table = by_rule(frame, tuple(names)) if names else frame.iloc[:0]
    if not len(table) or not table["random"].notna().any():
        return []
    table = table[table["random"].notna() & (table["rule"] != "random") & table["score"].notna()]
    if not len(table):
        return []
    up = metrics.higher_is_better(metric)
    size = int(frame[frame["chosen"]]["removed"].iloc[0])
    size = size if size in set(table["removed"]) else int(table["removed"].min())
    beside = table[table["removed"] == size].sort_values("score", ascending=not up)
    best = beside.iloc[0]
    row = frame[(frame["blocks"] == best["blocks"]) & (frame["removed"] == size)].iloc[0]
    low, high = widened(row["score"], row["low"], row["high"], len(beside))
    verb = "does better than" if not worse(best["score"], best["random"], up) else "does worse than"
    text = (
        f"With {_blocks(size)} left out, the rule {best['rule']} does best: {metric} {number(best['score'])}. It "
        f"{verb} the middle one of random plans ({number(best['random'])})."
    )
    ahead = worse(best["random"], worse_end(low, high, up), up) or worse(better_end(low, high, up), best["random"], up)
    evidence = f"{interval(row['low'], row['high'])} on the rows that did not choose{_half(record)}"
    findings = [Finding(text, evidence, bool(ahead), SUPPORT)]
    if lost := sorted({str(rule) for rule in table[table["lost"]]["rule"]}):
        text = f"At some size, random blocks do better than {' and '.join(lost)}."
        findings.append(Finding(text, f"{NO_INTERVAL} for the difference", None, DETAIL))
    return findings


def cut(frame: pandas.DataFrame, record: Record) -> list[Finding]:
    """What a cut costs as it is, nothing trained."""
    whole, *others = frame.to_dict("records")
    findings = []
    for row in others:
        metric, up = str(row["metric"]), metrics.higher_is_better(str(row["metric"]))
        low, high = float(row.get("low", math.nan)), float(row.get("high", math.nan))
        text = (
            f"Cut, the model ({row['blocks']}) has {metric} {number(row['score'])}, and {number(whole['score'])} "
            f"uncut, with {row['parameters'] / whole['parameters']:.0%} of the parameters."
        )
        loses = worse(better_end(low, high, up), whole["score"], up)
        sure = None if math.isnan(low) else bool(loses)
        unsure = "" if loses or math.isnan(low) else " includes the uncut model's score"
        findings.append(Finding(text, f"{interval(low, high)}{unsure}{rows(record.data.get('n'))}", sure, ANSWER))
    return findings


def score(frame: pandas.DataFrame, record: Record) -> list[Finding]:
    """What a model scores, and whether that is more than one answer to everything."""
    row = frame.iloc[0]
    metric, value, guess = str(row["metric"]), float(row["score"]), float(row.get("majority", math.nan))
    low, high = _drawn_interval(record)
    text = f"{short(str(row['model']))} has {metric} {number(value)} on {task_name(row['task'])}"
    evidence = f"{interval(low, high)}{rows(row.get('n'))}"
    if math.isnan(guess):
        near = (high - low) / 2 <= _NEAR * abs(value)
        return [Finding(f"{text}.", evidence, None if math.isnan(low) else bool(near), ANSWER)]
    text += f"; always giving the most frequent class would have {number(guess)}."
    return [Finding(text, evidence, None if math.isnan(low) else bool(low > guess), ANSWER)]


def _drawn_interval(record: Record) -> tuple[float, float]:
    """The interval of a score, which its picture shows."""
    for figure in record.figures:
        if isinstance(figure, BarsFigure) and len(figure.names) == 1 and figure.low and figure.high:
            return float(figure.low[0]), float(figure.high[0])
    return math.nan, math.nan
