"""What healing brought back."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

from layerscope.data import metrics
from layerscope.reporting.findings.finding import ANSWER, NO_INTERVAL, SUPPORT, Finding, interval, number, rows, worse

if TYPE_CHECKING:
    import pandas

    from layerscope.results import Record


def recovered(uncut: float, cut: float, healed: float) -> float:
    """The share of what a cut lost that healing brought back; NaN where nothing was lost."""
    return (cut - healed) / (cut - uncut) if math.isfinite(cut) and cut != uncut else math.nan


def in_nats(metric: str, value: float) -> float:
    """A perplexity as a loss per token, which can be shared out; other metrics as they are."""
    return math.log(value) if metric == "perplexity" and value > 0 else value


def healing(frame: pandas.DataFrame, record: Record) -> list[Finding]:
    """Before and after."""
    told = []
    for row in frame.to_dict("records"):
        metric, cut, healed, uncut = str(row["metric"]), float(row["cut"]), float(row["healed"]), float(row["uncut"])
        n = next((n for figure in record.figures if (n := getattr(figure, "n", None))), None)
        better = worse(cut, healed, metrics.higher_is_better(metric))
        sure, over_cut = _told_apart(row, "cut")
        ahead, over_uncut = _told_apart(row, "uncut")
        text = f"Healing takes {metric} from {number(cut)} to {number(healed)}"
        if math.isfinite(uncut):
            share = recovered(*(in_nats(metric, value) for value in (uncut, cut, healed)))
            part = f", which brings back {share:.0%} of what the cut lost" if better and 0 < share <= 1 else ""
            text += f"; the uncut model has {number(uncut)}{part}"
            if ahead is False:
                text += f". The healed and the uncut model are not told apart ({over_uncut})"
        if not better:
            text += ". It did not get better: train longer, on more text, or with another learning rate"
        evidence = f"{over_cut}; one seed, {int(row['tokens']):,} tokens{rows(n, 'scored on n =')}"
        told.append(Finding(f"{text}.", evidence, sure, ANSWER))
    return told


def _told_apart(row: dict[Any, Any], other: str) -> tuple[bool | None, str]:
    """Whether the healed model is told apart from another one, and by what; None where nothing tells."""
    low, high = (float(row.get(f"over_{other}_{end}", math.nan)) for end in ("low", "high"))
    if math.isnan(low) or math.isnan(high):
        return None, NO_INTERVAL
    if math.isinf(low) or math.isinf(high):
        return False, f"too few rows for an interval of what it gains over the {other} model"
    return low > 0 or high < 0, f"{interval(low, high)} of what it gains over the {other} model"


def healed_advice(frame: pandas.DataFrame, record: Record) -> list[Finding]:
    """Which healed plan is within the tolerance, and what healing is worth over the front."""
    whole, metric = frame.iloc[0], str(frame["metric"].iloc[0])
    plans = frame[frame["removed"] > 0]
    told = []
    if plans["chosen"].any():
        row = plans[plans["chosen"]].iloc[0]
        text = (
            f"Healed, blocks {row['blocks']} are enough: {metric} is {number(row['after'])} ({number(row['before'])} "
            f"before healing), where the whole model has {number(whole['after'])}."
        )
        evidence = f"{interval(row['low'], row['high'])} on texts that neither chose nor healed; chosen without a bound"
        told.append(Finding(text, evidence, False, ANSWER))
    elif len(plans):
        text = f"Healed shortly, every plan of the front still loses more {metric} than the tolerance allows."
        told.append(Finding(text, f"{len(plans)} plans, healed with few steps", False, ANSWER))
    if len(plans) > 1:
        up = metrics.higher_is_better(metric)
        better = sum(worse(b, a, up) for b, a in zip(plans["before"], plans["after"], strict=True))
        text = f"Healing improves {better} of {len(plans)} plans of the front."
        told.append(Finding(text, f"{NO_INTERVAL} for the differences", None, SUPPORT))
    return told
