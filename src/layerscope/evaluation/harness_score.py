"""The numbers of lm-evaluation-harness as a result: a row for every task and metric, each with its kind."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from layerscope.drawing.figures.bars import BarsFigure
from layerscope.drawing.words import caveat
from layerscope.errors import InputError
from layerscope.evaluation.score import GENERATION, Number, Score
from layerscope.models import Model
from layerscope.models.lineage import learned
from layerscope.results import provenance_of

if TYPE_CHECKING:
    import pandas

    from layerscope.drawing.figure import Figure

LIKELIHOOD = "multiple choice by likelihood"
# What kind of number a task gives, by what it asks of a model.
KINDS = {
    "multiple_choice": LIKELIHOOD,
    "loglikelihood": "likelihood of one answer",
    "loglikelihood_rolling": "perplexity",
    "generate_until": GENERATION,
}
_MIXED = "several kinds"


class HarnessScore(Score):
    """Scores of lm-evaluation-harness: a table with a row for every task and metric.

    As a number it is the first metric of its one task; of several it is NaN, for they have no number in common.
    """

    name = "harness"
    rows: list[dict[str, Any]]

    @property
    def frame(self) -> pandas.DataFrame:
        """One row per number: task, split, metric, filter, value, stderr, n, shots, higher_is_better, kind."""
        import pandas

        return pandas.DataFrame(self.rows)

    @property
    def higher_is_better(self) -> bool:
        return bool(self.rows[0]["higher_is_better"])

    @property
    def numbers(self) -> list[Number]:
        return [_number(row) for row in self.rows]

    @property
    def asked_for(self) -> list[Number]:
        return self.numbers

    def findings(self) -> list[str]:
        kinds = {row["kind"] for row in self.rows}
        hidden = "Choices by likelihood hide damage that generation shows, and none of these tasks generates."
        return [hidden] if kinds == {LIKELIHOOD} else []

    def figures(self) -> list[Figure]:
        shown = [row for row in self.rows if row["metric"] == self.rows[0]["metric"]]
        numbers = [_number(row) for row in shown]
        return [
            BarsFigure(
                title="Scores of lm-evaluation-harness",
                shows=f"{self.rows[0]['metric']} of {self.row['model']}, with 95% intervals.",
                reading="Higher is better." if self.higher_is_better else "Lower is better.",
                caveat=caveat(self.note, min(number.n for number in numbers)),
                names=tuple(number.task for number in numbers),
                values=tuple(number.value for number in numbers),
                low=tuple(number.low for number in numbers),
                high=tuple(number.high for number in numbers),
                y_name=str(self.rows[0]["metric"]),
            )
        ]

    def __repr__(self) -> str:
        tasks = list(dict.fromkeys(row["task"] for row in self.rows))
        if len(tasks) == 1:
            return f"HarnessScore({tasks[0]}: {self.metric} {float(self):.4f}, n = {self.n:,})"
        return f"HarnessScore({len(tasks)} tasks: {', '.join(tasks[:5])}{', ..' if len(tasks) > 5 else ''})"

    def __reduce__(self) -> Any:
        return _rebuilt, (*self.__getnewargs_ex__(), self.rows)


def _rebuilt(value: tuple[float], about: dict[str, Any], rows: list[dict[str, Any]]) -> HarnessScore:
    score = HarnessScore(*value, **about)
    score.rows = rows
    return score


def _number(row: Mapping[str, Any]) -> Number:
    named = row["metric"] if row["filter"] in ("", "none") else f"{row['metric']} ({row['filter']})"
    width = 1.96 * row["stderr"] or math.nan  # answers that are all alike say nothing of their spread
    return Number(
        task=str(row["task"]),
        split=str(row["split"]),
        metric=named,
        value=row["value"],
        n=row["n"],
        kind=row["kind"],
        low=row["value"] - width,
        high=row["value"] + width,
    )


def score_of(model: Model, output: Mapping[str, Any], asked: Mapping[str, Any]) -> HarnessScore:
    """The score of a model from the harness's output, with the settings that it was asked for."""
    rows = [row for name in output["results"] for row in _rows(output, name)]
    if not rows:
        raise InputError("lm-eval gave no number for the tasks that were named.")
    tasks = list(dict.fromkeys(row["task"] for row in rows))
    single = len([name for name in tasks if not _is_member(output, name)]) == 1
    first = next(row for row in rows if not _is_member(output, row["task"]))
    note = "" if single else "several tasks have no number in common: the table has each"
    if learned(model.network):
        note = "; ".join(part for part in (note, "rows that the model learned from are not left out") if part)
    versions = {name: output["versions"].get(name) for name in tasks if output["versions"].get(name) is not None}
    settings = {**asked, "versions": versions}
    about = {"task": ", ".join(tasks), "split": first["split"] if single else "", "texts": first["n"]}
    score = HarnessScore(
        first["value"] if single else math.nan,
        metric=first["metric"] if single else "",
        metrics={f"{row['task']}/{_number(row).metric}": row["value"] for row in rows},
        n=first["n"] if single else sum(row["n"] for row in {row["task"]: row for row in rows}.values()),
        majority=math.nan,
        provenance=provenance_of([model], about, settings),
        note=note,
        kind=first["kind"] if single else _MIXED,
        interval=(_number(first).low, _number(first).high) if single else (math.nan, math.nan),
    )
    score.rows = rows
    return score


def _is_member(output: Mapping[str, Any], name: str) -> bool:
    """Whether a task is of a group that has a number itself."""
    groups = output.get("group_subtasks") or {}
    return any(name in members for group, members in groups.items() if group != name and _rows(output, group))


def _members(output: Mapping[str, Any], name: str) -> list[str]:
    """The tasks under a name: itself, or those of its groups."""
    below = (output.get("group_subtasks") or {}).get(name) or []
    return [leaf for each in below for leaf in _members(output, each)] if below else [name]


def _rows(output: Mapping[str, Any], name: str) -> list[dict[str, Any]]:
    """The numbers of one task or group."""
    result, leaves = output["results"].get(name, {}), _members(output, name)
    configs = [output["configs"].get(leaf, {}) for leaf in leaves]
    kinds = {KINDS.get(str(config.get("output_type")), str(config.get("output_type"))) for config in configs}
    splits = {str(config.get("test_split") or config.get("validation_split") or "") for config in configs}
    sizes = [int((output["n-samples"].get(leaf) or {}).get("effective", 0)) for leaf in leaves]
    rows = []
    for key, value in result.items():
        metric, comma, kept = str(key).partition(",")
        if not comma or metric.endswith("_stderr") or not isinstance(value, (int, float)):
            continue
        error = result.get(f"{metric}_stderr,{kept}")
        rows.append(
            {
                "task": name,
                "split": next(iter(splits)) if len(splits) == 1 else "",
                "metric": metric,
                "filter": kept,
                "value": float(value),
                "stderr": float(error) if isinstance(error, (int, float)) else math.nan,
                "n": sum(sizes),
                "shots": output["n-shot"].get(leaves[0]),
                "higher_is_better": (output["higher_is_better"].get(name) or {}).get(metric, True),
                "kind": next(iter(kinds)) if len(kinds) == 1 else _MIXED,
            }
        )
    return rows
