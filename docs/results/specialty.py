"""Does nu tell how well a layer can be read? Correlation of nu with probe scores, written to specialty.md beside this.

Run with: python docs/results/specialty.py [--model demo:minilm] [--limit 2000]. GLUE tasks take part where
LAYERSCOPE_DATA holds them; pydocs always does.
"""

from __future__ import annotations

import argparse
import math
from pathlib import Path

import pandas

import layerscope as ls

TASKS = ("sst2", "cola", "mrpc", "rte", "pydocs")


def sampled(task: ls.Task, limit: int) -> ls.Task:
    """At most `limit` rows of either split, evenly spaced."""
    tables = {}
    for split in ("train", "validation"):
        part = task.split(split)
        part = part.take(slice(0, None, -(-len(part) // limit)))
        columns = {"text": part.texts, "label": [task.label_names[k] for k in part.labels]}
        tables[split] = pandas.DataFrame(columns | ({} if part.pairs is None else {"pair": part.pairs}))
    pair = "pair" if "pair" in tables["train"] else None
    return ls.task(tables, text="text", text_pair=pair, label="label", metric=task.metric)


def measured(model: ls.Model, name: str, limit: int, pool: str) -> dict[str, object] | None:
    task = ls.task(name)
    if not all(task.is_here(split) for split in ("train", "validation")):
        return None
    part, metric = sampled(task, limit), task.metric
    train, validation = (ls.extract(model, part, split=split, pool=pool) for split in ("train", "validation"))
    nu, probe = ls.specialty(train, ci=0.95, null=100), ls.probe(train, validation, metric=metric)
    found = ls.agreement(nu, probe)
    low, high = found["intervals"]["pearson"]
    bounds = "too few layers to tell" if found["note"] else f"{low:.2f} to {high:.2f}"
    if math.isnan(found["pearson"]):
        bounds = "all probes score the same"
    return {
        "task": name,
        "pool": pool,
        "n": len(train),
        "l*": nu.best,
        "wins of l*": f"{nu.wins[nu.layers.index(nu.best)]:.2f}",
        "nu over permuted": f"{nu.ratio[nu.layers.index(nu.best)]:.2f}",
        "p": f"{nu.p_best:.2f}",
        "probe's best": probe.best,
        "correlation": f"{found['pearson']:.2f} ({bounds})",
        "R²": f"{found['r2']:.2f}",
        "zeta": f"{ls.smoothness(nu):.2f}",
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", default="demo:minilm")
    parser.add_argument("--limit", type=int, default=2000)
    parser.add_argument("--tasks", nargs="+", default=TASKS)
    options = parser.parse_args()
    model = ls.load(options.model)
    rows = []
    for name in options.tasks:
        for pool in ("mean", "cls"):
            if (row := measured(model, name, options.limit, pool)) is not None:
                rows.append(row)
                print(row, flush=True)
    lines = [
        "# Does nu tell how well a layer can be read?",
        "",
        f"Written by `python docs/results/specialty.py --model {options.model} --limit {options.limit}`: nu (classes",
        "weighted equally) of layers 1..L on training rows, a cross-validated logistic probe on each layer scored on",
        "validation, and their Pearson correlation over layers with an interval that allows for neighbouring",
        "layers being alike. Xie et al. (2022) find correlations above 0.85 in size on RoBERTa-large with 24",
        "layers; of as few as MiniLM's 6 nobody can tell. The least nu is compared with nu of permuted labels at",
        "the same layer, and p is how often that is as low, after allowing for the choice among layers: where it",
        "is not below 0.05, l* says nothing of the labels. zeta is how rough nu is: the sum of squared second",
        "differences of its z-scored values over layers, 0 for a straight line. Where the probes of all layers",
        "score the same there is no correlation.",
        "",
        "| " + " | ".join(rows[0]) + " |",
        "| " + " | ".join("---" for _ in rows[0]) + " |",
        *("| " + " | ".join(str(v) for v in row.values()) + " |" for row in rows),
    ]
    Path(__file__).with_suffix(".md").write_text("\n".join(lines) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
