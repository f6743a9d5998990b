"""Which layer each score picks before any training, how that goes with probes, and whether it matters for tuning.

    python docs/results/which_layer.py scores --model bge-small=path/to/folder --limit 600
    python docs/results/which_layer.py train --device cuda --workers 15 --cells 12
    python docs/results/which_layer.py page

`scores` measures every score on training rows of every model and task and probes on validation rows; nothing is tuned.
`train` takes the cells in which nu and PRESS pick different layers, and trains the strategies of Xie et al. for both
picks: 4,000 rows, 3 epochs, three seeds. Both keep each finished piece in which-layer.json and go on where they
stopped; every training is an artifact of the store as well. `page` writes which-layer.md. GLUE tasks and others take
part where LAYERSCOPE_DATA holds them; pydocs always does.
"""

from __future__ import annotations

import argparse
import json
import math
import sys
import time
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pandas
from scipy.stats import spearmanr

import layerscope as ls
from layerscope.evaluation.evaluate import make_evaluator
from layerscope.registry import LAYER_SCORES
from layerscope.resampling import mean_interval
from layerscope.store import write_json, write_text
from layerscope.tuning.strategy import middle_layer

HERE = Path(__file__).resolve().parent
RESULTS, PAGE = "which-layer.json", "which-layer.md"
GARDEN = ("bert-s0", "roberta-s0", "albert-s0", "electra-s0", "gpt2-s0", "xlnet-s0")
PUBLISHED = ("bge-small", "minilm", "mpnet")  # models that were not trained for this repository
CHOSE = ("sst2", "cola", "mrpc", "rte", "pydocs")  # tasks on which the way of scoring was chosen
NEW = ("mnli", "qnli", "boolq", "yelp_polarity", "ewt-genre")
SCORES = ("press", "logme", "cka_debiased", "knn", "hscore", "nu over permuted", "nu")
CHANCE = 0.05  # how much the best probe must be above the most frequent class for a layer to be worth picking
TRAINED = {"train_limit": 4000, "validation_limit": 1000, "epochs": 3, "learning_rate": 5e-5, "batch": 32}
NARROW, WIDE = 3e-4, 256  # the rate of models narrower than this, which learn faster
SEEDS = (0, 1, 2)


def sampled(task: ls.Task, split: str, limit: int) -> Any:
    """At most `limit` rows of a split, evenly spaced."""
    part = task.split(split)
    return part.take(slice(0, None, -(-len(part) // limit)))


def cell(name: str, source: str, task_name: str, limit: int, max_length: int) -> dict[str, Any] | None:
    """Every score and the probes' accuracy of every layer of a model on a task; None where the data are not here."""
    task = ls.task(task_name)
    if not all(task.is_here(split) for split in ("train", "validation")):
        return None
    model = ls.load(source)
    reading: dict[str, Any] = {"pool": "mean", "max_length": max_length}
    train, validation = (ls.extract(model, sampled(task, split, limit), **reading) for split in ("train", "validation"))
    scores = ls.layer_scores(train, list(LAYER_SCORES), ci=None, null=20)
    values = {each: curve.values.tolist() for each, curve in scores.curves.items()}
    assert scores["nu"].ratio is not None
    assert scores["press"].null is not None
    values["nu over permuted"] = scores["nu"].ratio.tolist()
    probe = ls.probe(train, validation, metric="accuracy", ci=None)
    labels = np.asarray(validation.labels)
    return {
        "model": name,
        "task": task_name,
        "n": len(train),
        "width": model.width,
        "depth": model.depth,
        "shared": model.architecture.shared,
        "scores": values,
        "press of permuted labels": scores["press"].null.tolist(),
        "p": scores["press"].p_best,
        "ties": ls.layer_scores(train, ["press"], null=0)["press"].ties,
        "probe": probe.values.tolist(),
        "majority": float(np.bincount(labels).max() / len(labels)),
    }


def picks(row: dict[str, Any]) -> dict[str, int]:
    """The layer above 0 that each score picks."""
    found = {}
    for name in SCORES:
        values = np.asarray(row["scores"][name][1:], dtype=float)
        least = name.startswith("nu")
        found[name] = 1 + int(np.nanargmin(values) if least else np.nanargmax(values))
    return found


def to_train(rows: Iterable[dict[str, Any]]) -> list[dict[str, Any]]:
    """Cells whose picks by nu and PRESS differ: those with both inside first, then those with PRESS's inside.

    Models that run one block again and again are left out, of which no strategy tunes a part.
    """
    rows = [row for row in rows if not row.get("shared", False)]
    differing = [row for row in rows if picks(row)["nu"] != picks(row)["press"] and row["p"] < 0.05]

    def inside(row: dict[str, Any], name: str) -> bool:
        return 3 <= picks(row)[name] < row["depth"]

    ranked = sorted(differing, key=lambda row: (-inside(row, "press") - inside(row, "nu"), row["model"], row["task"]))
    return [row for row in ranked if inside(row, "press")]


def strategies(row: dict[str, Any]) -> dict[str, str]:
    """The strategies that are trained, in numbers, by what they are called on the page."""
    depth = row["depth"]
    found = {"full": "full", "(L-2, L, L)": f"({depth - 2}, {depth}, {depth})"}
    for name in ("nu", "press"):
        layer = picks(row)[name]
        low = max(1, layer - 2)
        found[f"(l-2, l, L) by {name}"] = f"({low}, {layer}, {depth})"
        found[f"(l-2, l, l) by {name}"] = f"({low}, {layer}, {layer})"
        if layer < depth:
            found[f"(l+1, L, L) by {name}"] = f"({layer + 1}, {depth}, {depth})"
    middle = middle_layer(depth)
    return found | {"(m-2, m, L)": f"({max(1, middle - 2)}, {middle}, {depth})"}


def to_do(rows: Sequence[dict[str, Any]], sources: dict[str, str], done: dict[str, Any]) -> dict[str, tuple[str, ...]]:
    """The trainings of some cells that are not done: by key the source, the task, the strategy and the seed.

    Those of the first seed come first, so that time that runs out leaves whole seeds.
    """
    found = {}
    for seed in SEEDS:
        for row in rows:
            for strategy in dict.fromkeys(strategies(row).values()):
                key = f"{row['model']} {row['task']} {strategy} {seed}"
                if key not in done:
                    found[key] = (sources[row["model"]], row["task"], strategy, str(seed))
    return found


def training_of(source: str, task_name: str, strategy: str, seed: str, device: str | None) -> dict[str, Any]:
    """The score of a training, and which validation rows it got right."""
    started = time.perf_counter()
    task, model = ls.task(task_name), ls.load(source, device=device)
    rate = NARROW if model.width < WIDE else TRAINED["learning_rate"]
    training = ls.tune(model, task, strategy=strategy, seed=int(seed), **{**TRAINED, "learning_rate": rate})
    evaluator = make_evaluator(
        training.job.reopened(training.path), task, split="validation", limit=TRAINED["validation_limit"]
    )
    numbers, _ = evaluator.answers(evaluator.examples)
    right = np.asarray(numbers.argmax(axis=-1) == evaluator.examples.labels)
    return {
        "score": training.score,
        "metric": training.metric,
        "accuracy": float(right.mean()),
        "majority": training.majority,
        "trainable": training.trainable,
        "right": "".join("1" if each else "0" for each in right),
        "seconds": time.perf_counter() - started,
    }


def trainings(
    wanted: dict[str, tuple[str, ...]], device: str | None, workers: int, seconds: float
) -> Iterator[tuple[str, dict[str, Any]]]:
    """Every training that ends within some seconds, as it ends; several processes keep a GPU busy together."""
    import multiprocessing
    from concurrent.futures import ProcessPoolExecutor, as_completed

    until = time.monotonic() + seconds
    if workers == 1:
        for key, asked in wanted.items():
            if time.monotonic() < until:
                yield key, training_of(*asked, device)
        return
    with ProcessPoolExecutor(workers, multiprocessing.get_context("spawn")) as pool:
        running = {pool.submit(training_of, *asked, device): key for key, asked in wanted.items()}
        for future in as_completed(running):
            if time.monotonic() > until:
                pool.shutdown(wait=False, cancel_futures=True)
            if future.cancelled():
                continue
            if error := future.exception():  # the others are worth as much without it
                print(f"{running[future]} failed: {error}", file=sys.stderr, flush=True)
            else:
                yield running[future], future.result()


def table(rows: list[dict[str, Any]]) -> str:
    """Rows as a table of Markdown."""
    lines = [" | ".join(rows[0]), " | ".join("---" for _ in rows[0]), *(" | ".join(map(str, r.values())) for r in rows)]
    return "\n".join(f"| {line} |" for line in lines)


def with_error(values: list[float]) -> str:
    """A mean over cells and its standard error."""
    kept = [value for value in values if np.isfinite(value)]
    if len(kept) < 2:
        return "too few cells"
    return f"{np.mean(kept):.2f} ± {np.std(kept, ddof=1) / len(kept) ** 0.5:.2f}"


def agreement(cells: list[dict[str, Any]]) -> str:
    """How each score's order of layers goes with the probes', over cells where some layer is well above chance."""
    rows = []
    for name in SCORES:
        sign = -1 if name.startswith("nu") else 1
        rho, gain = [], []
        for row in cells:
            probe, values = np.asarray(row["probe"][1:]), np.asarray(row["scores"][name][1:], dtype=float)
            varies = np.ptp(probe) > 0 and np.ptp(values) > 0
            rho.append(float(spearmanr(sign * values, probe).statistic) if varies else float("nan"))
            gain.append(100 * (probe[picks(row)[name] - 1] - probe.mean()))
        told = {"Spearman with probes": with_error(rho), "points over a random layer": with_error(gain)}
        rows.append({"score": name, **told})
    return table(rows)


def standing(cells: list[dict[str, Any]]) -> str:
    """Which score goes with the probes best, and at which place PRESS stands, in a sentence."""
    found = {}
    for name in SCORES:
        sign = -1 if name.startswith("nu") else 1
        pairs = [(sign * np.asarray(row["scores"][name][1:], float), np.asarray(row["probe"][1:])) for row in cells]
        rho = [float(spearmanr(*pair).statistic) for pair in pairs if all(np.ptp(side) > 0 for side in pair)]
        found[name] = float(np.mean(rho))
    order = sorted(found, key=lambda name: -found[name])
    first, place = order[0], order.index("press") + 1
    if first == "press":
        return f"PRESS goes with the probes best ({found['press']:.2f}), then {order[1]} ({found[order[1]]:.2f})."
    return (
        f"PRESS does not lead here: {first} goes with the probes best ({found[first]:.2f}), and PRESS stands at place "
        f"{place} of {len(order)} ({found['press']:.2f})."
    )


def widths(cells: list[dict[str, Any]]) -> str:
    """How width and PRESS go with the best probe over models, in the mean over tasks; PRESS at equal width too."""
    frame = pandas.DataFrame(
        {
            "task": row["task"],
            "width": row["width"],
            "press": np.nanmax(row["scores"]["press"][1:]),
            "probe": max(row["probe"][1:]),
        }
        for row in cells
    )
    parts = [part for _, part in frame.groupby("task") if part["width"].nunique() > 1 and len(part) > 2]
    if not parts:
        return "There are too few models on one task here to say anything of width."
    rows = []
    equal = [part for _, part in frame.groupby(["task", "width"]) if len(part) > 2]
    for said, name, among in (
        ("width", "width", parts),
        ("PRESS of the best layer", "press", parts),
        ("the same among models of equal width", "press", equal),
    ):
        several = [part for part in among if part[name].nunique() > 1 and part["probe"].nunique() > 1]
        rho = [float(spearmanr(part[name], part["probe"]).statistic) for part in several]
        rows.append({"by": said, "Spearman with the best probe over models": with_error(rho), "groups": len(rho)})
    return (
        "Where wider models are the better ones, any score that rises with width looks good. What PRESS tells of "
        f"models beyond their width is the last row.\n\n{table(rows)}"
    )


def tuned(cells: list[dict[str, Any]], done: dict[str, Any]) -> str:
    """What the trainings reached, and PRESS's layer against nu's in every form, text for text."""
    rows, pairs, points = [], [], dict[str, list[float]]()
    for row in cells:
        by_strategy = strategies(row)

        def done_with(seed: int, row: dict[str, Any] = row, chosen: dict[str, str] = by_strategy) -> bool:
            return all(f"{row['model']} {row['task']} {strategy} {seed}" in done for strategy in chosen.values())

        seeds = [seed for seed in SEEDS if done_with(seed)]
        right = {
            name: np.asarray(
                [[int(c) for c in done[f"{row['model']} {row['task']} {strategy} {seed}"]["right"]] for seed in seeds],
                dtype=float,
            )
            for name, strategy in by_strategy.items()
            if seeds
        }
        if not right:
            continue
        rows += [
            {
                "model": row["model"],
                "task": row["task"],
                "strategy": name,
                "in numbers": by_strategy[name],
                "seeds": len(each),
                "accuracy": f"{each.mean():.3f}",
                "spread over seeds": f"{each.mean(axis=1).std(ddof=1):.3f}" if len(each) > 1 else "",
            }
            for name, each in right.items()
        ]
        for form in ("(l-2, l, L)", "(l-2, l, l)", "(l+1, L, L)"):
            ours, theirs = right.get(f"{form} by press"), right.get(f"{form} by nu")
            if ours is None or theirs is None:
                continue
            difference = ours.mean(axis=0) - theirs.mean(axis=0)
            low, high = mean_interval(difference, np.arange(len(difference)))
            bounds = f" ({100 * low:.1f} to {100 * high:.1f})" if np.isfinite(low) else ", alike on every text"
            points.setdefault(form, []).append(100 * difference.mean())
            pairs.append(
                {
                    "model": row["model"],
                    "task": row["task"],
                    "form": form,
                    "layers (PRESS, nu)": f"{picks(row)['press']}, {picks(row)['nu']}",
                    "points by PRESS over nu": f"{100 * difference.mean():.1f}{bounds}",
                }
            )
    if not rows:
        return "Not run yet: `python docs/results/which_layer.py train --device cuda`."
    told = "\n\nThe same form for PRESS's layer and for nu's, over the same validation texts (95%):\n\n"
    over = "; ".join(f"{form} {with_error(values)} over {len(values)} cells" for form, values in points.items())
    summary = f"\n\nPoints by PRESS's layer over nu's, in the mean over cells with its standard error: {over}."
    return table(rows) + (told + table(pairs) + summary if pairs else "")


def page(kept: dict[str, Any]) -> str:
    cells = list(kept["cells"].values())
    clear = [row for row in cells if max(row["probe"][1:]) > row["majority"] + CHANCE]
    ends = {name: sum(not 3 <= picks(row)[name] < row["depth"] for row in cells) for name in ("nu", "press")}
    null = np.concatenate([row["press of permuted labels"][1:] for row in cells]).astype(float)
    shown = [
        {
            "model": row["model"],
            "task": row["task"],
            "rows": row["n"],
            **{name: layer for name, layer in picks(row).items() if name != "nu over permuted"},
            "PRESS": f"{np.nanmax(row['scores']['press'][1:]):.3f}",
            "p": f"{row['p']:.2f}",
            "ties": len(row["ties"] or []),
            "probes": 1 + int(np.argmax(row["probe"][1:])),
            "best probe": f"{max(row['probe'][1:]):.3f}",
            "majority": f"{row['majority']:.3f}",
        }
        for row in cells
    ]
    parts = [f"# Which layer, before any training?\n\n{INTRODUCTION}"]
    parts.append(
        f"## Which layer each score picks\n\nLayers are counted 1..L; `ties` is how many layers PRESS cannot tell "
        f"apart from its best one (with it), `p` that of PRESS after allowing for the choice among layers. nu picks "
        f"an end (L, or below 3) in {ends['nu']} of {len(cells)} cells, PRESS in {ends['press']}. With permuted labels "
        f"PRESS is {np.nanmean(null):.4f} in the mean.\n\n{table(shown)}"
    )
    published = [row for row in clear if row["model"] in PUBLISHED]
    for title, some in (
        ("all tasks", clear),
        (f"{', '.join(PUBLISHED)} alone", published),
        ("tasks that did not choose the method", [row for row in clear if row["task"] in NEW]),
    ):
        if len(some) > 1:
            parts.append(
                f"## How scores go with probes: {title}\n\n{len(some)} cells in which the best probe is more than "
                f"{100 * CHANCE:g} points above the most frequent class. Means over cells, with the standard error "
                f"over them, which share models and are not independent. {standing(some)}\n\n{agreement(some)}"
            )
    parts.append(f"## Width\n\n{widths(clear)}" if clear else "")
    parts.append(f"## Does it matter for tuning?\n\n{TRAININGS}\n\n{tuned(to_train(cells), kept['trainings'])}")
    return "\n\n".join(part for part in parts if part) + "\n"


INTRODUCTION = """Written by `python docs/results/which_layer.py page` from `which-layer.json`, which the same script
measures (`scores`, `train`). Scores are of training rows, mean-pooled; probes are logistic regressions that learn from
the same rows and are scored on as many validation rows. With so few rows the probes' own order of layers is uncertain:
no score can go with it closely. See [Layer scores](../layer-scores.md) for what each of them is."""
TRAININGS = """Cells in which PRESS shows the labels, nu and PRESS pick different layers, and that of PRESS lies inside.
4,000 rows, 3 epochs, one learning rate (5e-5; 3e-4 for models narrower than 256), up to three seeds (those of which
every strategy of a cell is done); accuracy on the first 1,000 validation rows, of the epoch with the best score
there."""


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("step", choices=("scores", "train", "page"))
    parser.add_argument("--model", action="append", default=[], help="NAME=PATH of a further model")
    parser.add_argument("--garden", nargs="*", default=list(GARDEN), help="which garden models take part")
    parser.add_argument("--tasks", nargs="+", default=[*CHOSE, *NEW])
    parser.add_argument("--limit", type=int, default=600, help="rows of each split for scores and probes")
    parser.add_argument("--max-length", type=int, default=64)
    parser.add_argument("--cells", type=int, default=8, help="how many cells are trained")
    parser.add_argument("--device", help="where trainings run")
    parser.add_argument("--workers", type=int, default=1, help="processes that train, and share the device")
    parser.add_argument("--minutes", type=float, default=math.inf, help="begin no further training after so many")
    parser.add_argument("--out", type=Path, default=HERE)
    given = parser.parse_args()
    sources = {name: f"garden:{name}" for name in given.garden} | dict(each.split("=", 1) for each in given.model)
    given.out.mkdir(parents=True, exist_ok=True)
    path = given.out / RESULTS
    kept = json.loads(path.read_text(encoding="utf-8")) if path.exists() else {"cells": {}, "trainings": {}}
    if given.step == "scores":
        for name, source in sources.items():
            for task in given.tasks:
                key = f"{name} {task}"
                if key not in kept["cells"] and (row := cell(name, source, task, given.limit, given.max_length)):
                    kept["cells"][key] = row
                    write_json(path, kept)
                    print(key, picks(row), flush=True)
    elif given.step == "train":
        chosen = [row for row in to_train(kept["cells"].values()) if row["model"] in sources][: given.cells]
        print(f"{len(chosen)} cells: {', '.join(row['model'] + ' ' + row['task'] for row in chosen)}", flush=True)
        wanted = to_do(chosen, sources, kept["trainings"])
        for key, training in trainings(wanted, given.device, given.workers, 60 * given.minutes):
            kept["trainings"][key] = training
            write_json(path, kept)
            print(key, training["accuracy"], f"{training['seconds']:.0f} s", flush=True)
    write_text(given.out / PAGE, page(kept))


if __name__ == "__main__":
    main()
