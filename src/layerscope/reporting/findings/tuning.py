"""What specialty, trainings and studies of strategies say."""

from __future__ import annotations

import math
import re
from typing import TYPE_CHECKING, Any

from layerscope.data import metrics
from layerscope.drawing.words import listed
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
    worse,
)

if TYPE_CHECKING:
    import pandas

    from layerscope.results import Record

_SIGNIFICANT = 0.05
_OFTEN = 0.1  # the share of halves from which on a layer ties with the best one
_ALLOWING = re.compile(r"p = ([0-9.e-]+) after allowing for the choice among layers")


def specialty(frame: pandas.DataFrame, record: Record) -> list[Finding]:
    """The layer with the least nu, whether it shows the labels at all, and what the probes say."""
    layers = frame[(frame["layer"] >= 1) & frame["nu"].notna()]
    if not len(layers):
        return [Finding("nu has no value in any layer.", "every class or every row is the same", False, ANSWER)]
    best, n = extreme(layers, "nu", most=False), record.data.get("n")
    p = _p(best, len(layers), record)
    shown = p < _SIGNIFICANT
    layer, least = int(best["layer"]), number(best["nu"])
    permuted = f", and {number(best['null'])} with permuted labels" if "null" in frame else ""
    text = f"Layer {layer} separates the classes best: nu is {least}{permuted}."
    if equals := _equals(layers, best):
        text = (
            f"Layers separate the classes, layer {layer} with the least nu, {least}{permuted}; {equals} may be as good."
        )
    if not shown and not math.isnan(p):
        text = f"No layer is shown to separate the classes: the least nu is {least}, in layer {layer}{permuted}."
    evidence = "no labels were permuted" if math.isnan(p) else f"p = {p:.2g} after allowing for the choice among layers"
    bounds = f"; {interval(best['low'], best['high'])}" if "low" in frame else ""
    findings = [Finding(text, f"{evidence}{bounds}{rows(n)}", None if math.isnan(p) else bool(shown), ANSWER)]
    return [*findings, *_winners(layers, best), *_probes(layers, n)]


def _p(best: Any, tries: int, record: Record) -> float:
    """The p-value of the best layer after allowing for the choice: as the record says it, or a bound on it."""
    for sentence in record.findings:
        if match := _ALLOWING.search(sentence):
            return float(match.group(1))
    return min(float(best.get("p", math.nan)) * tries, 1.0) if "p" in best else math.nan


def _winners(layers: pandas.DataFrame, best: Any) -> list[Finding]:
    if "wins" not in layers:
        return []
    evidence = f"it comes out best in {best['wins']:.0%} of halves of the texts"
    if not (equals := _equals(layers, best)):
        text = f"That it is layer {int(best['layer'])} and no other does not depend on the texts."
        return [Finding(text, evidence, True, SUPPORT)]
    text = f"Which layer is best depends on the texts: {equals} may be as good as layer {int(best['layer'])}."
    return [Finding(text, evidence, False, SUPPORT)]


def _equals(layers: pandas.DataFrame, best: Any) -> str:
    """The layers that come out best in some halves of the texts, beside the best one; nothing where there are none."""
    if "wins" not in layers:
        return ""
    others = layers[(layers["wins"] >= _OFTEN) & (layers["layer"] != best["layer"])]
    names = [str(int(layer)) for layer in others["layer"]]
    return f"{'layer' if len(names) == 1 else 'layers'} {listed(names)}" if names else ""


def _probes(layers: pandas.DataFrame, n: Any) -> list[Finding]:
    if "probe" not in layers or not layers["probe"].notna().any():
        return []
    best = extreme(layers, "probe", most=True)
    text = f"Probes read the labels best from layer {int(best['layer'])}, with a score of {number(best['probe'])}"
    if "probe_low" not in layers or math.isnan(best["probe_low"]):
        return [Finding(f"{text}.", NO_INTERVAL + rows(n), None, SUPPORT)]
    tied = layers[(layers["probe"] >= best["probe_low"]) & (layers["layer"] != best["layer"])]["layer"]
    ties = (
        f"; layer{'s' if len(tied) > 1 else ''} {listed([str(int(k)) for k in tied])} may do as well"
        if len(tied)
        else ""
    )
    return [Finding(f"{text}{ties}.", interval(best["probe_low"], best["probe_high"]), not len(tied), SUPPORT)]


def trainings(frame: pandas.DataFrame, record: Record) -> list[Finding]:
    """The mean over seeds beside the most frequent class."""
    metric, scores = str(frame["metric"].iloc[0]), frame["score"]
    count, guess = len(frame), float(frame["majority"].iloc[0])
    share = frame["trainable"].iloc[0] / frame["parameters"].iloc[0]
    text = f"Tuned, the model has {metric} {number(scores.mean())}"
    if math.isfinite(guess):
        text += f", where always giving the most frequent class has {number(guess)}"
    text += f"; {share:.0%} of its parameters were trained."
    if count == 1:
        return [Finding(text, "one seed, so no interval; the score is the best epoch's on validation", None, ANSWER)]
    low, high = over_seeds(scores)
    sure = bool(low > guess) if math.isfinite(guess) and metrics.higher_is_better(metric) else None
    evidence = f"{interval(low, high)} over {count} seeds; scores are the best epoch's on validation"
    return [Finding(text, evidence, sure, ANSWER)]


def over_seeds(scores: Any) -> tuple[float, float]:
    """The 95% interval of a mean over seeds, by Student's t; NaN for one seed."""
    from scipy.stats import t

    count = len(scores)
    if count < 2:
        return math.nan, math.nan
    width = float(t.ppf(0.975, count - 1)) * float(scores.std(ddof=1)) / count**0.5
    return float(scores.mean()) - width, float(scores.mean()) + width


def study(frame: pandas.DataFrame, record: Record) -> list[Finding]:
    """The best strategy, those that tie with it, and the cheapest of these."""
    defined = frame[frame["score"].notna()]
    if not len(defined):
        return []
    metric = str(frame["metric"].iloc[0])
    up = metrics.higher_is_better(metric)
    best = extreme(defined, "score", most=up)
    text = (
        f"Of {len(defined)} strategies and methods {_named(best)} scores best: {metric} {number(best['score'])} with "
        f"{best['trainable'] / best['parameters']:.0%} of the parameters trained."
    )
    low, high = float(best["low"]), float(best["high"])
    if math.isnan(low):
        return [Finding(text, "one seed, so no interval", None, ANSWER)]
    end = low if up else high
    tied = defined[[not worse(value, end, up) for value in defined["score"]]].drop(best.name)
    evidence = f"{interval(low, high)} over {int(best['seeds'])} seeds"
    findings = [Finding(text, evidence, not len(tied), ANSWER)]
    if len(tied):
        cheap = tied.sort_values("trainable").iloc[0]
        text = (
            f"{len(tied)} of the others tie with it. The cheapest of these is {_named(cheap)}: {metric} "
            f"{number(cheap['score'])}, {cheap['trainable'] / cheap['parameters']:.0%} of the parameters."
        )
        findings.append(Finding(text, "within the interval of the best one", False, SUPPORT))
    return findings


def _named(row: Any) -> str:
    return f"{row['strategy']} with {row['method']}"


def costs(frame: pandas.DataFrame, record: Record) -> list[Finding]:
    """The cheapest strategy that tunes a block, before anything is trained."""
    some = frame[frame["trainable"] > 0].sort_values("trainable")
    if len(some) < 2:
        return []
    least, most = some.iloc[0], some.iloc[-1]
    text = (
        f"Of {len(some)} strategies {least['strategy']} trains the fewest parameters ({int(least['trainable']):,}) and "
        f"{most['strategy']} the most ({int(most['trainable']):,})."
    )
    return [Finding(text, "counted, nothing is trained", True, DETAIL)]
