"""Strategy studies: every strategy of Xie et al. (2022) and Wu et al. (2020, table 1), with its cost and its score."""

from __future__ import annotations

import time
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from layerscope.analysis.training_costs import costs
from layerscope.analysis.tuning import Runs, best_layer, parts, tune
from layerscope.data import task as open_task
from layerscope.errors import InputError, log
from layerscope.extract.exam import exam
from layerscope.measures.heatmap import blank, write
from layerscope.models import load
from layerscope.tuning.methods import Method
from layerscope.tuning.strategy import Strategy, check_best

if TYPE_CHECKING:
    import pandas
    from matplotlib.axes import Axes

# Baselines, l*-down with the head on l* and on top, l*-up, and the middle layer (tables 6 to 9, 11, 12).
XIE = (
    *("full", "(L, L, L)", "(L-1, L, L)", "(L-2, L, L)"),
    *("(l*, l*, l*)", "(l*-1, l*, l*)", "(l*-2, l*, l*)", "(1, l*, l*)"),
    *("(l*, l*, L)", "(l*-1, l*, L)", "(l*-2, l*, L)", "(l*+1, L, L)"),
)
WU = ("full", "freeze-top-4", "freeze-top-6", "freeze-bottom-4", "freeze-bottom-6")


def middle(depth: int) -> tuple[str, ...]:
    """The middle-layer baselines for a depth."""
    m = depth // 2
    return tuple(f"({max(m - k, 1)}, {m}, {head})" for head in (m, depth) for k in range(3))


def strategies(model: Any, task: Any, *, best: int | None = None, method: str = "finetune") -> pandas.DataFrame:
    """The papers' strategies with what each trains and costs, before anything is trained.

    Columns: strategy, resolved, blocks, head, parameters, trained, and multiply-adds a token: forward, backward, and
    the forward that is left with the frozen blocks' output cached.
    """
    import pandas

    opened, data, chosen = load(model), open_task(task), Method.of(method)
    rows = []
    if best is None:
        best = best_layer(opened, parts(data)[0])
    check_best(best, opened.depth)
    for text in dict.fromkeys((*XIE, *WU, "head-only", *middle(opened.depth))):
        parsed = Strategy.parse(text)
        try:
            resolved = parsed.resolve(opened.depth, best)
            cost = costs(opened, data, resolved, chosen)
        except InputError as error:
            log.info("%s is left out: %s", text, error)
            continue
        rows.append({"strategy": text, "resolved": str(resolved), **cost})
    return pandas.DataFrame(rows)


def strategy_study(
    model: Any,
    task: Any,
    strategies: Sequence[str] | None = None,
    methods: Sequence[str] = ("finetune",),
    seeds: Sequence[int] = (0, 1, 2, 3, 4),
    *,
    best: int | None = None,
    preset: str | None = None,
    **options: Any,
) -> pandas.DataFrame:
    """Every strategy with every method and seed: mean score, standard error, tuned layers, cost. Resumes run by run.

    The strategies are all of Xie et al.'s (of Wu et al.'s with the preset wu2020) unless named; l* is `best`, or the
    layer of the least nu. Strategies that a model cannot have are left out with a note.
    """
    opened = load(model)
    papers = WU if preset == "wu2020" else (*XIE, *middle(opened.depth))
    wanted = list(strategies) if strategies is not None else list(papers)
    if best is None and any(Strategy.parse(text).needs_best for text in wanted):
        best = best_layer(opened, parts(open_task(task), options.get("train_limit"))[0])
    check_best(best, opened.depth)
    for method in methods:
        Method.of(method)
    found: list[tuple[str, str, Runs]] = []
    for text in wanted:
        for method in methods:
            parsed = Strategy.parse(text)
            try:
                parsed.resolve(opened.depth, best)
            except InputError as error:
                log.warning("%s is left out: %s", text, error)
                continue
            runs = tune(opened, task, strategy=text, method=method, seeds=seeds, best=best, preset=preset, **options)
            found.append((text, method, runs))
    if not found:
        raise InputError("No strategy is left to be studied.")
    if len(seeds) == 1:
        log.warning("One seed gives no standard error: the column error is NaN. Give more of them (seeds=, --seeds).")
    frame = frame_of(found)
    frame["inference_seconds"] = [_inference(runs) for _, _, runs in found]
    return frame


def _inference(runs: Runs) -> float:
    """Seconds for the tuned model to answer the validation split."""
    job = runs.runs[0].job
    if job.method.name == "prefix":
        return float("nan")
    found = exam(
        job.reopened(runs.runs[0].path), job.task, max_length=job.training.max_length, limit=len(job.validation)
    )
    start = time.perf_counter()
    found.logits()
    return time.perf_counter() - start


def plot_strategies(frame: pandas.DataFrame, path: str | Path | None = None) -> Axes:
    """Score against the number of tuned layers, points labelled with the strategy, a colour a method."""
    ax = blank(6.5, 4.2)
    for k, (method, part) in enumerate(frame.groupby("method", sort=False)):
        ax.errorbar(
            part["tuned_layers"], part["score"], yerr=part["error"], fmt="o", markersize=4, color=f"C{k}", label=method
        )
        for row in part.to_dict("records"):
            place = (row["tuned_layers"], row["score"])
            ax.annotate(row["strategy"], place, fontsize=6, xytext=(3, 3), textcoords="offset points")
    ax.set_xlabel("tuned layers")
    ax.set_ylabel(str(frame["metric"].iloc[0]))
    ax.legend(fontsize=8, frameon=False)
    if path is not None:
        write(ax.figure, path)
    return ax


def frame_of(runs: Sequence[tuple[str, str, Runs]]) -> pandas.DataFrame:
    """A row a strategy and method: mean score, standard error, tuned layers and cost."""
    import pandas

    rows = []
    for strategy, method, many in runs:
        first = many.runs[0]
        rows.append(
            {
                "strategy": strategy,
                "resolved": str(first.job.strategy),
                "method": method,
                "tuned_layers": len(first.job.strategy.blocks),
                "score": many.mean,
                "error": many.error,
                "seeds": len(many.runs),
                "tried": first.tried,
                "parameters": first.result["parameters"],
                "trainable": first.trainable,
                "seconds": float(np.mean([run.seconds for run in many.runs])),
                "seconds_an_epoch": float(np.mean([run.result["seconds_an_epoch"] for run in many.runs])),
                "metric": first.result["metric"],
            }
        )
    return pandas.DataFrame(rows)
