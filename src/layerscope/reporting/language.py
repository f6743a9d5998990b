"""The section of a page on language models: what several records say of them, side by side.

It shows perplexity by plan, the rules that propose plans beside one another, and what healing brings back.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from layerscope.cutting.candidates import by_rule
from layerscope.drawing.figures.bars import BarsFigure
from layerscope.drawing.figures.curve import CurveFigure, Series
from layerscope.drawing.figures.table import TableFigure
from layerscope.errors import log
from layerscope.metrics import in_nats, recovered
from layerscope.reporting.summary import by_weight
from layerscope.results import Record
from layerscope.results.finding import label, task_name

if TYPE_CHECKING:
    import pandas

    from layerscope.drawing.figure import Figure

METRICS = ("perplexity", "bits_per_byte", "nll")  # of running text; all of them are better the lower they are
WHOLE = "the whole model"
NO_BLOCK = "none"  # the embeddings alone: in the table, but not in the picture, which it would flatten
_LOWER = "Lower is better."
_WIDE = 10.0  # how many times the least the most may be on a linear axis
# The results that are read here, by their names; a table of such a name that is otherwise is somebody else's.
_KINDS = ("advice", "truncation", "skip-map", "cut", "score", "healing", "healed")
_DAMAGED = (TypeError, ValueError, KeyError, IndexError, AttributeError, ArithmeticError)


def language_section(records: Sequence[Record]) -> Record | None:
    """Return a record made of those that score language models on running text; None where there is none."""
    scored = [record for record in records if _metric(record)]
    figures: list[Figure] = []
    for metric in METRICS:
        try:
            figures += _figures(metric, [record for record in scored if _metric(record) == metric])
        except _DAMAGED:
            log.warning("Tables of %s are not as layerscope writes them; the page sets none beside another.", metric)
    if not figures:
        return None
    findings = [finding for record in scored for finding in by_weight(record)[:1]]
    models = {str(model.get("name")): model for record in scored for model in record.models}
    title = "Language models"
    return Record(kind="language models", title=title, figures=figures, findings=findings, models=list(models.values()))


def _figures(metric: str, records: Sequence[Record]) -> list[Figure]:
    plans = [row for record in records for row in plan_rows(record)]
    healed = [row for record in records for row in healing_rows(record)]
    drawn = [*_by_plan(metric, plans), *_rules(metric, plans)] if plans else []
    return [*drawn, *(_healing(metric, healed) if healed else [])]


def _metric(record: Record) -> str:
    """Return the metric of running text that a record's tables have; an empty text where they have none."""
    for frame in record.frames(*_KINDS):
        if "metric" in frame and len(frame) and str(frame["metric"].iloc[0]) in METRICS:
            return str(frame["metric"].iloc[0])
    return ""


def plan_rows(record: Record) -> list[dict[str, Any]]:
    """Return every plan that a record scores: model, texts, rule, blocks left out and kept, score and interval."""
    source = {"model": label(record.models[0]) if record.models else "", "texts": _texts(record)}
    plans: list[dict[str, Any]] = []
    for frame in record.frames("advice"):
        plans += _advised(frame, tuple(record.settings.get("rules") or ()))
    for frame in record.frames("truncation"):
        if "curve" in frame:  # several curves, of which the heads of some were trained
            continue
        depth = int(frame["layer"].max())
        for row in frame.to_dict("records"):
            rule = "top blocks" if row["layer"] < depth else ""
            plans.append(_plan(row, rule, depth - int(row["layer"]), _first(row["layer"])))
    for frame in record.frames("cut"):
        whole, *cuts = frame.to_dict("records")
        plans += [_plan(whole, "", 0, WHOLE), *(_plan(row, "given", math.nan, str(row["blocks"])) for row in cuts)]
    for frame in record.frames("score"):
        plans += [_plan(row, "", 0, WHOLE) for row in frame.to_dict("records")]
    return [{**source, **row} for row in plans]


def _texts(record: Record) -> str:
    n = record.data.get("n")
    return task_name(record.data.get("task") or "") + (f", n = {n:,}" if isinstance(n, int) else "")


def _first(layer: float) -> str:
    return f"1-{int(layer)}" if layer > 1 else "1" if layer else NO_BLOCK


def _plan(row: Any, rule: str, removed: float, blocks: str) -> dict[str, Any]:
    bounds = {name: float(row.get(name, math.nan)) for name in ("low", "high")}
    return {"rule": rule, "removed": removed, "blocks": blocks, "score": float(row["score"]), **bounds}


def _advised(frame: pandas.DataFrame, rules: tuple[str, ...]) -> list[dict[str, Any]]:
    """Return the whole model, and each rule's best plan of each size."""
    plans = [_plan(frame.iloc[0], "", 0, WHOLE)]
    for best in by_rule(frame, rules).to_dict("records") if rules else ():
        row = frame[(frame["blocks"] == best["blocks"]) & (frame["removed"] == best["removed"])].iloc[0]
        plans.append(_plan(row, str(best["rule"]), int(best["removed"]), str(best["blocks"])))
    return plans


def _by_plan(metric: str, plans: Sequence[dict[str, Any]]) -> list[Figure]:
    """Return the curve of every rule over the blocks left out, and all plans in a table."""
    names = {"removed": "left out", "blocks": "blocks kept", "score": metric}
    renamed = [{names.get(name, name): value for name, value in row.items()} for row in plans]
    table = TableFigure.from_records(
        sorted(renamed, key=lambda row: (row["model"], row["texts"], row["left out"])),
        title=f"{metric.replace('_', ' ').capitalize()} by plan",
        shows=f"{metric} of every plan that was scored, of all records on this page.",
        reading=f"{_LOWER} Plans are comparable where model and texts are the same.",
    )
    curves = []
    models, read = ({row[name] for row in plans} for name in ("model", "texts"))
    for model, texts in dict.fromkeys((row["model"], row["texts"]) for row in plans):
        same = [row for row in plans if (row["model"], row["texts"]) == (model, texts)]
        whole = next((row["score"] for row in same if row["removed"] == 0), math.nan)
        for rule in dict.fromkeys(row["rule"] for row in same if row["rule"] and math.isfinite(row["removed"])):
            points = [(0.0, whole)] if math.isfinite(whole) else []
            of_rule = [r for r in same if r["rule"] == rule and r["removed"] and r["blocks"] != NO_BLOCK]
            points += sorted((float(r["removed"]), r["score"]) for r in of_rule)
            name = ", ".join([rule, *([model] if len(models) > 1 else []), *([texts] if len(read) > 1 else [])])
            curves.append(Series(name, *(tuple(part) for part in zip(*points, strict=True))))
    if not curves:
        return [table]
    positive = [y for series in curves for y in series.y if math.isfinite(y) and y > 0]
    drawn = CurveFigure(
        title=f"{metric.replace('_', ' ').capitalize()} by the number of blocks that go",
        shows=f"{metric} against how many blocks are left out, for each rule that proposes which.",
        reading=f"{_LOWER} The rule called top blocks cuts off the last ones and reads the layer that is left.",
        caveat="Rules are compared on the rows that did not choose their plans; a gap smaller than the intervals in "
        "the table may be chance.",
        series=tuple(curves),
        x_name="blocks left out",
        y_name=metric,
        log=bool(positive) and max(positive) > _WIDE * min(positive),
    )
    return [drawn, table]


def _rules(metric: str, plans: Sequence[dict[str, Any]]) -> list[Figure]:
    """Return the rules side by side: one row per model and size, one column per rule."""
    rules = list(dict.fromkeys(row["rule"] for row in plans if row["rule"] and math.isfinite(row["removed"])))
    if len(rules) < 2:
        return []
    sizes = dict.fromkeys((row["model"], row["texts"], row["removed"]) for row in plans if row["rule"] in rules)
    rows = []
    for model, texts, removed in sorted(sizes):
        scores = {
            r["rule"]: r["score"] for r in plans if (r["model"], r["texts"], r["removed"]) == (model, texts, removed)
        }
        if len(scores) > 1:
            best = min((rule for rule in scores if math.isfinite(scores[rule])), key=scores.__getitem__, default="")
            row = {"model": model, "texts": texts, "left out": removed, **{rule: scores.get(rule) for rule in rules}}
            rows.append({**row, "best": best})
    if not rows:
        return []
    unused = [rule for rule in rules if all(row[rule] is None for row in rows)]
    rows = [{name: value for name, value in row.items() if name not in unused} for row in rows]
    words = {
        "title": "Rules side by side",
        "shows": f"{metric} of each rule's best plan, by how many blocks it leaves out.",
        "reading": f"{_LOWER} A rule that is no better than random blocks has shown nothing.",
    }
    return [TableFigure.from_records(rows, **words)]


def healing_rows(record: Record) -> list[dict[str, Any]]:
    """Return every healing of a record: the uncut model, the cut one and the healed one."""
    healings = []
    model = label(record.models[0]) if record.models else ""
    for frame in record.frames("healing"):
        for row in frame.to_dict("records"):
            source = {"model": str(row.get("model", model)), "plan": str(record.settings.get("without") or "")}
            healings.append({**source, **{name: float(row[name]) for name in ("uncut", "cut", "healed")}})
    for frame in record.frames("healed"):
        whole = float(frame["after"].iloc[0])
        for row in frame[frame["removed"] > 0].to_dict("records"):
            scores = {"uncut": whole, "cut": row["before"], "healed": row["after"]}
            healings.append({"model": model, "plan": f"keep {row['blocks']}", **scores})
    return healings


def _healing(metric: str, healed: Sequence[dict[str, Any]]) -> list[Figure]:
    """Return bars of before and after, and the table with the share that was brought back."""
    rows = []
    for row in healed:
        share = recovered(*(in_nats(metric, row[name]) for name in ("uncut", "cut", "healed")))
        rows.append({**row, "brought back": None if math.isnan(share) else f"{share:.0%}"})
    names, values = [], []
    for row in healed:
        label = f"{row['model']} {row['plan']}".strip()
        for name in ("uncut", "cut", "healed"):
            names.append(f"{label}: {name}" if len(healed) > 1 else name)
            values.append(row[name])
    of_loss = " (of the loss per token)" if metric == "perplexity" else ""
    words: dict[str, Any] = {
        "shows": f"{metric} of the uncut model, of the cut one, and of that after a short training.",
        "reading": f"{_LOWER} Brought back is the share of what the cut lost that healing undid{of_loss}.",
        "caveat": "One seed each, without intervals.",
    }
    title = "Before and after healing"
    bars = BarsFigure(title=title, **words, names=tuple(names), values=tuple(values), y_name=metric)
    return [bars, TableFigure.from_records(rows, title=f"{title}: the numbers", **words)]
