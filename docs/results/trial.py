"""Which measure should one believe? The ReSi tests on many models and tasks, written to trial.md beside this.

    python docs/results/trial.py run --workers 12 --device cuda --model minilm=demo:minilm --task sst2 --task mrpc
    python docs/results/trial.py page

`run` makes `ls.reproduce("resi2025", ..)` of all models on one task after the other, keeps what is done in trial.json,
and goes on from there; trainings are in the store.
"""

from __future__ import annotations

import argparse
import json
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import numpy as np
import pandas

import layerscope as ls
from layerscope.drawing.figure import HeatmapAxis
from layerscope.drawing.figures.heatmap import HeatmapFigure
from layerscope.drawing.render import draw
from layerscope.recipes.recipe import read_recipe
from layerscope.store import write_json, write_text

HERE = Path(__file__).resolve().parent
RESULTS, PAGE, PICTURE = "trial.json", "trial.md", "trial.png"
# The tests in the paper's order, with the statistic that ranks measures in each.
TESTS = {
    "accuracy_correlation": "accuracy_spearman",
    "output_correlation": "divergence_spearman",
    "label_randomization": "auprc",
    "shortcut_affinity": "auprc",
    "augmentation": "auprc",
    "layer_monotonicity": "layer_conformity",
}
DEFAULT = "cka"  # the usual measure of `compare`
COMMAND = "python docs/results/trial.py run --workers 12 --device cuda --model .. --task .."


def run(options: argparse.Namespace, path: Path) -> None:
    """Run every test for each task, with all models that are not done on it side by side."""
    kept = read(path)
    started = time.monotonic()
    for task in options.task:
        models = {name: source for name, source in options.model if f"{name}/{task}" not in kept}
        if not models or time.monotonic() - started > 60 * options.minutes:
            continue
        training = json.loads(options.training)
        with tempfile.TemporaryDirectory() as folder:
            out = Path(folder) / "out"
            done = ls.reproduce(
                "resi2025",
                models={name: {"source": source, "training": training} for name, source in models.items()},
                tasks=[task],
                seeds=options.seeds,
                profile=options.profile,
                engine=f"processes:{options.workers}" if options.workers > 1 else "local",
                device=options.device,
                out=out,
            )
            for name in models:
                found = {test: table(out, test, name, task) for test in TESTS}
                if any(found.values()):
                    kept[f"{name}/{task}"] = {test: rows for test, rows in found.items() if rows}
        write_json(path, kept)
        for name, reason in done.missing.items():
            print(f"{name} is left out: {reason}", file=sys.stderr)


def table(out: Path, test: str, model: str, task: str) -> list[dict[str, Any]]:
    """The rows of one test of a model on a task, of the record that the sweep left; none where it failed."""
    folders = list(out.glob(f"*-{test.replace('_', '-')}-{model}-{task}"))
    if len(folders) != 1:
        return []
    frame = ls.read_record(folders[0] / "trial").tables["trial"]
    rows: list[dict[str, Any]] = json.loads(frame.drop(columns=["pairs"]).to_json(orient="records"))
    return rows


def read(path: Path) -> dict[str, Any]:
    return json.loads(path.read_text(encoding="utf-8")) if path.is_file() else {}


def ranked(kept: dict[str, Any]) -> tuple[pandas.DataFrame, pandas.DataFrame]:
    """(measures, tests) the mean value over models and tasks, and the mean rank (1 is the best), the best first."""
    rows = [
        {"cell": cell, "test": test, **row}
        for cell, tests in kept.items()
        for test, found in tests.items()
        for row in found
        if row["statistic"] == TESTS[test] and row["value"] is not None
    ]
    frame = pandas.DataFrame(rows)
    frame["rank"] = frame.groupby(["cell", "test"])["value"].rank(ascending=False)
    order = [test for test in TESTS if test in set(frame["test"])]
    values = frame.pivot_table(index="measure", columns="test", values="value")[order]
    ranks = frame.pivot_table(index="measure", columns="test", values="rank")[order]
    best = ranks.mean(axis=1).sort_values(kind="stable").index
    return values.loc[best], ranks.loc[best]


def told_from_best(kept: dict[str, Any], test: str, best: str) -> list[str]:
    """The measures whose value is not surely below the best one's, over models and tasks, two standard errors apart."""
    by_cell = pandas.DataFrame(
        {
            cell: {row["measure"]: row["value"] for row in tests.get(test, ()) if row["statistic"] == TESTS[test]}
            for cell, tests in kept.items()
        }
    ).astype(float)
    by_cell = by_cell.dropna(how="all")
    behind = by_cell.loc[best] - by_cell
    error = behind.std(axis=1, ddof=1) / np.sqrt(behind.notna().sum(axis=1))
    return [m for m in by_cell.index if m != best and not behind.loc[m].mean() > 2 * error.loc[m]]


def seconds(kept: dict[str, Any]) -> pandas.Series:
    """The median seconds of a pair by measure, of the tests that compare one layer of each model."""
    rows = [row for tests in kept.values() for test, found in tests.items() if test in list(TESTS)[:5] for row in found]
    return pandas.DataFrame(rows).groupby("measure")["seconds"].median()


def picture(values: pandas.DataFrame) -> HeatmapFigure:
    """Every measure in every test, as one heat map."""
    tests = tuple(name.replace("_", " ") for name in values.columns)
    blank = ("",) * len(values)
    return HeatmapFigure(
        title="Every measure in every test",
        shows="Means over models and tasks of the statistic that ranks measures in each test.",
        reading="1 is the best value. Measures are in the order of their mean rank.",
        values=values.to_numpy(dtype=float),
        rows=HeatmapAxis("measure", blank, tuple(values.index)),
        columns=HeatmapAxis("test", ("",) * len(tests), tests),
        value_name="value",
        scale=(-1.0, 1.0),
    )


def page(kept: dict[str, Any]) -> str:
    """The page that shows what came out, or how to make it where nothing is there."""
    title = read_recipe("resi2025").title
    lines = ["# Similarity measures on trial", ""]
    lines += [f"The six tests of {title} (Klabunde et al. 2025), in which it is known what a measure should say:"]
    lines += [
        "[how they are run](../howto/reproduce.md#the-resi-tests). Written by `python docs/results/trial.py page`.",
        "",
    ]
    if not kept:
        return "\n".join([*lines, f"Not run yet: `{COMMAND}`.", ""])
    values, ranks = ranked(kept)
    models = sorted({cell.split("/")[0] for cell in kept})
    tasks = sorted({cell.split("/")[1] for cell in kept})
    lines += [
        f"{len(kept)} cells: {', '.join(models)} on {', '.join(tasks)}. These are small models: what holds here may"
    ]
    lines += [
        "not hold in larger ones. Cells share models and tasks, so that standard errors over them are too small.",
        "",
    ]
    lines += ["## Which one?", ""]
    for test in values.columns:
        best = str(values[test].idxmax())
        ties = told_from_best(kept, test, best) if len(kept) > 2 else []
        alike = f"; {len(ties)} others are within two standard errors" if ties else ""
        usual = f"`{DEFAULT}` has {values[test][DEFAULT]:.2f}, rank {ranks[test][DEFAULT]:.1f}"
        lines += [f"- **{test.replace('_', ' ')}**: `{best}` ({values[test][best]:.2f}){alike}. {usual}."]
    over = ranks.mean(axis=1)
    lines += [
        "",
        f"By the mean rank over all tests `{over.index[0]}` leads ({over.iloc[0]:.1f} of {len(over)}); `{DEFAULT}`",
    ]
    lines += [f"has {over[DEFAULT]:.1f} and stands at place {list(over.index).index(DEFAULT) + 1}.", ""]
    lines += [f"![Every measure in every test]({PICTURE})", "", "## All measures", ""]
    heads = ["measure", *(name.replace("_", " ") for name in values.columns), "mean rank", "ms per pair"]
    lines += [f"| {' | '.join(heads)} |", f"|{' --- |' * len(heads)}"]
    cost = seconds(kept)
    for name in values.index:
        cells = [f"{values[test][name]:.2f}" for test in values.columns]
        lines.append(f"| `{name}` | {' | '.join(cells)} | {over[name]:.1f} | {1000 * cost.get(name, np.nan):.0f} |")
    return "\n".join([*lines, ""])


def main(arguments: list[str] | None = None) -> None:
    """Run what is missing, and write the page."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("part", choices=["run", "page"])
    parser.add_argument("--model", action="append", default=[], help="NAME=SOURCE; may be given again")
    parser.add_argument("--task", action="append", default=[])
    parser.add_argument("--training", default="{}", help="settings of these models' trainings, as JSON")
    parser.add_argument("--seeds", type=int, default=5)
    parser.add_argument("--profile", default="offline")
    parser.add_argument("--workers", type=int, default=1)
    parser.add_argument("--minutes", type=float, default=1e9, help="begin no further task after so many")
    parser.add_argument("--device")
    parser.add_argument("--out", type=Path, default=HERE)
    options = parser.parse_args(arguments)
    options.model = [tuple(each.split("=", 1)) for each in options.model]
    path = options.out / RESULTS
    if options.part == "run":
        run(options, path)
    kept = read(path)
    if kept:
        draw(picture(ranked(kept)[0]), options.out / PICTURE)
    write_text(options.out / PAGE, page(kept))


if __name__ == "__main__":
    main()
