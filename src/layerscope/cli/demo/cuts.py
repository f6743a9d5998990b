"""The steps of `layerscope demo` that cut the tuned model: what each block is worth, and a smaller model."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pandas

import layerscope as ls
from layerscope.cli.demo.stage import CHECKPOINT, Outcome, Stage
from layerscope.drawing.words import numbers
from layerscope.results import Table

if TYPE_CHECKING:
    from pandas import DataFrame

SMALLER = "smaller-model"


def truncate(stage: Stage) -> Outcome:
    s, model = stage.settings, stage.tuned[0]
    untuned = ls.truncation_curve(model, stage.task, **stage.scored)
    tuned = ls.truncation_curve(model, stage.task, mode="tuned", train_limit=s.learned, **stage.scored)
    skips = ls.skip_map(model, stage.task, **stage.scored)
    said = [
        _cut_sentence(untuned.frame, tuned.frame),
        _skip_sentence(skips.frame, float(untuned.frame["score"].iloc[-1])),
    ]
    both = ls.Truncation.together({"UNTUNED: nothing trained": untuned, "TUNED: head trained there": tuned})
    own = "layerscope truncate CLASSIFIER --task TASK --curve -o out, and layerscope skip CLASSIFIER --task TASK --map"
    return Outcome(said, {"truncation": both, "skip-map": skips}, own, settings={"train_limit": s.learned})


def _cut_sentence(untuned: DataFrame, tuned: DataFrame) -> str:
    metric, scores, trained = untuned["metric"].iloc[0], untuned["score"].to_numpy(), tuned["score"].to_numpy()
    depth, whole = len(scores) - 1, float(scores[-1])
    near = next((layer for layer in range(depth) if trained[layer] >= whole - 0.01), None)
    lowest = "no lower layer comes" if near is None else f"layer {near} is the lowest that comes"
    return (
        f"The whole tuned model has {metric} {whole:.3f}. With its head on layer {depth - 1}, and block {depth} gone, "
        f"it has {scores[depth - 1]:.3f} if nothing is trained (UNTUNED) and {trained[depth - 1]:.3f} if the head is "
        f"trained further there (TUNED); with trained heads {lowest} within 0.01 of the whole."
    )


def _skip_sentence(skips: DataFrame, whole: float) -> str:
    single = skips[skips["first"] == skips["last"]].sort_values("score")
    worst, best = single.iloc[0], single.iloc[-1]
    return (
        f"Of single blocks, {best['first']} is missed least ({best['score']:.3f} without it, {whole:.3f} with it) and "
        f"{worst['first']} most ({worst['score']:.3f})."
    )


def advise(stage: Stage) -> Outcome:
    s, whole = stage.settings, stage.tuned[0]
    bounds: dict[str, Any] = {"max_span": s.longest_span, "evaluations": s.searched}
    advice = ls.advise(whole, stage.task, tolerance=s.tolerance, **bounds, **stage.scored)
    plan, row, why = _plan(advice, s.tolerance)
    folder = stage.out / SMALLER
    smaller = ls.cut(whole, plan)
    ls.save(smaller, folder, scores=ls.evaluate(smaller, stage.task, **stage.scored))
    again = stage.open(folder)
    again.name = SMALLER
    checkpoint = stage.trainings.trainings[0].path / CHECKPOINT
    before, after = (_measured(model, at, stage) for model, at in ((whole, checkpoint), (again, folder)))
    said = [
        f"{why} It keeps block{'s' * (len(plan.keep) > 1)} {row['blocks']}: {row['metric']} {row['score']:.3f} "
        f"({row['low']:.3f} to {row['high']:.3f}) on the half of the texts that did not choose it, where the whole "
        f"model has {advice.frame.iloc[0]['score']:.3f}.",
        f"Saved in {folder} and reopened: {after['megabytes']:.1f} MB where the whole model has "
        f"{before['megabytes']:.1f}; {_milliseconds(after)} where it takes {_milliseconds(before)}; over all "
        f"{len(stage.texts)} texts {row['metric']} {after['score']:.3f} where it has {before['score']:.3f}.",
    ]
    sizes = pandas.DataFrame([before, after])
    table = numbers(
        "The smaller model beside the whole one", "Both opened from their checkpoints and measured here.", sizes
    )
    beside = Table(sizes, [table], advice.provenance, "sizes")
    own = "layerscope advise CLASSIFIER --task TASK --tolerance 0.01 --save smaller -o out"
    return Outcome(said, {"sizes": beside, "advice": advice}, own, [table, *advice.figures()])


def _plan(advice: ls.Advice, tolerance: float) -> tuple[ls.LayerPlan, Any, str]:
    """The advice, or, where no block can go within the tolerance, the cut that loses least, with a word on it."""
    from layerscope.cli.options import integers

    sure = f"with {advice.confidence:.0%} confidence"
    if advice.choice.removed(advice.exam.model.depth):
        why = f"The smallest model was looked for that is within {tolerance:g} of the whole one {sure}."
        return advice.choice, advice.row, why
    table = advice.frame[advice.frame["savable"] & (advice.frame["removed"] > 0)]
    row = table.sort_values("chosen_on").iloc[-1]
    rows = f" (that would take about {advice.rows_needed:,} texts)" if advice.rows_needed is not None else ""
    why = f"No block can go at a loss of at most {tolerance:g} {sure}{rows}; the cut that loses least is taken."
    return ls.LayerPlan(integers(row["blocks"])), row, why


def _measured(model: ls.Model, folder: Path, stage: Stage) -> dict[str, Any]:
    """A checkpoint's size on disk, and what the model opened from it scores and takes."""
    from layerscope.cutting.costs import Costs

    costs, everything = Costs(model), ls.LayerPlan(range(1, model.depth + 1))
    return {
        "model": model.name,
        "blocks": model.depth,
        "parameters": costs.parameters(everything),
        "megabytes": sum(file.stat().st_size for file in folder.glob("*.safetensors")) / 1e6,
        "latency_1_ms": 1000 * costs.latency(everything, 1),
        "latency_32_ms": 1000 * costs.latency(everything, 32),
        "score": float(ls.evaluate(model, stage.task, **stage.scored)),
    }


def _milliseconds(sizes: Mapping[str, Any]) -> str:
    return f"{sizes['latency_1_ms']:.1f} ms for a text of 128 tokens and {sizes['latency_32_ms']:.0f} ms for 32"
