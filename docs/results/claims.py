"""Which claims of the four papers hold here. Writes claims.json, and claims.md beside it.

Run with: python docs/results/claims.py --minutes 25 [--models bge=FOLDER,mpnet=FOLDER] [--engine local]

The work goes in steps, the most telling ones first: one paper on one task with all models. What a step gave is in
claims.json, so that a later run goes on with the next one, on this machine or another; jobs inside a step are kept in
the store. `--minutes` starts no step after so long; `--page` only writes the page.
"""

from __future__ import annotations

import argparse
import json
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pandas

import layerscope as ls
from layerscope.recipes.claims import claims
from layerscope.recipes.reproduction import COLUMNS, VERDICTS, summarised

HERE = Path(__file__).parent
DATA, PAGE = HERE / "claims.json", HERE / "claims.md"
GARDEN = {"learning_rate": 3e-4}  # narrow models learn faster
MODELS: dict[str, Any] = {
    name: {"source": f"garden:{name}-s0", "training": GARDEN} for name in ("bert", "roberta", "albert", "electra")
}
WIDER: dict[str, Any] = {
    "minilm": "demo:minilm",
    **{name: {"source": f"garden:{name}-s0", "training": GARDEN} for name in ("gpt2", "xlnet")},
}
SEEDS: dict[str, Any] = {f"s{k}": {"source": f"garden:bert-s{k}", "training": GARDEN} for k in range(5)}
TASKS, MORE_TASKS = ("sst2", "mrpc", "stsb"), ("cola", "rte", "hellaswag")
OF_CLASSES = ("sst2", "mrpc", "cola", "rte")  # nu is of classes


def steps(given: dict[str, Any]) -> Iterator[dict[str, Any]]:
    """What is run, in this order: {paper, models, tasks} as `ls.reproduce` takes them."""
    first = {**given, **MODELS}
    for task in TASKS:
        for only in ("fig1", "fig3", "fig4", "fig7"):
            yield {"paper": "phang2021", "only": only, "models": first, "tasks": [task]}
    for task in OF_CLASSES[:2]:
        for only in ("fig3", "table2", "fig6", "fig12"):
            yield {"paper": "xie2022", "only": only, "models": first, "tasks": [task]}
    for only in ("fig1", "fig2", "fig3", "fig4"):
        yield {"paper": "wu2020", "only": only}
    for task in TASKS[:2]:
        for only in ("table3", "fig2", "fig3", "fig4", "fig5", "table5", "norms"):
            yield {"paper": "ren2023", "only": only, "models": SEEDS, "tasks": [task]}
    for task in TASKS[:2]:
        for only in ("fig5", "fig7", "table1"):
            yield {"paper": "wu2020", "only": only, "models": {**given, "bert": MODELS["bert"]}, "tasks": [task]}
        yield {"paper": "xie2022", "only": "table6,table10", "models": first, "tasks": [task]}
    for task in (*TASKS, *MORE_TASKS):
        models = first if task in MORE_TASKS else WIDER
        for only in ("fig1", "fig3", "fig4"):
            yield {"paper": "phang2021", "only": only, "models": models, "tasks": [task]}
        if task in OF_CLASSES:
            yield {"paper": "xie2022", "only": "fig3,fig12", "models": models, "tasks": [task]}


def name_of(step: dict[str, Any]) -> str:
    """A step in words, by which claims.json knows it."""
    parts = [step["paper"], step["only"], *step.get("tasks", ()), ", ".join(step.get("models", {}))]
    return "; ".join(part for part in parts if part)


def run(step: dict[str, Any], engine: str) -> dict[str, Any]:
    """What a step gives, as JSON has it."""
    start = time.monotonic()
    with tempfile.TemporaryDirectory() as folder:
        done = ls.reproduce(**step, seeds=2, engine=engine, out=folder)
    rows = json.loads(done.claims.to_json(orient="records"))
    return {"rows": rows, "missing": done.missing, "seconds": round(time.monotonic() - start), "device": device()}


def device() -> str:
    import torch

    return torch.cuda.get_device_name() if torch.cuda.is_available() else "CPU"


def table(frame: pandas.DataFrame) -> list[str]:
    """A table in Markdown."""
    lines = [list(frame), ["---"] * len(frame.columns), *frame.to_numpy().tolist()]
    return ["| " + " | ".join(_spelled(value) for value in line) + " |" for line in lines]


def _spelled(value: Any) -> str:
    if pandas.isna(value):
        return ""
    return (f"{value:.3g}" if isinstance(value, float) else str(value)).replace("|", "\\|")


def page(runs: dict[str, Any], steps_in_all: list[str]) -> str:
    """The page: what was run and what not, the summary, and every verdict."""
    frame = pandas.DataFrame([row for done in runs.values() for row in done["rows"]], columns=COLUMNS)
    frame = frame[~((frame["verdict"] == VERDICTS[3]) & frame["note"].str.contains("none of the models that were run"))]
    known = {claim.name: claim for claim in claims()}
    order = [name for name in known if name in set(frame["claim"])]
    frame = frame.assign(claim=pandas.Categorical(frame["claim"], order)).sort_values("claim", kind="stable")
    frame["claim"] = frame["claim"].astype(str)
    hours = sum(done["seconds"] for done in runs.values()) / 3600
    devices = ", ".join(dict.fromkeys(done["device"] for done in runs.values()))
    left = [name for name in steps_in_all if name not in runs]
    missing = {name: reason for done in runs.values() for name, reason in done["missing"].items()}
    lines = [
        "# Claims of the four papers, put to the test",
        "",
        "Made by `python docs/results/claims.py`: `ls.reproduce` with the offline profile's settings (up to 8,000",
        f"training texts, 3 epochs, two seeds) on other models. {len(runs)} steps took {hours:.1f} h ({devices}).",
        "",
        "A claim holds where the whole 95 % interval over texts lies beyond its threshold, does not hold where none of",
        "it does, and is undecided where the interval spans it; [how](../howto/reproduce.md#verdicts). These are small",
        "models: what does not hold here may hold in the paper's own.",
        "",
        "## Summary",
        "",
        *table(summarised(frame).drop(columns=["where"])),
        "",
        "## What was run, and what not",
        "",
        *(f"- run: {name} ({done['seconds']} s)" for name, done in runs.items()),
        *(f"- not run: {name}" for name in left),
        *(f"- missing: {name}: {reason}" for name, reason in missing.items()),
    ]
    for name, part in frame.groupby("claim", sort=False):
        claim = known[str(name)]
        number = f" The paper's number: {claim.number}." if claim.number else ""
        lines += [
            "",
            f"## {str(name)[0].upper()}{str(name)[1:]}",
            "",
            f"{claim.says} ({claim.paper}, {claim.where}.){number} Asked for: {claim.threshold}. What would refute it: "
            f"{claim.refuted}",
            "",
            *table(part[["on", "value", "low", "high", "verdict", "n", "note"]]),
        ]
    return "\n".join(lines) + "\n"


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--minutes", type=float, default=25)
    parser.add_argument("--models", default="", help="further models, the most telling first: name=folder,name=folder")
    parser.add_argument("--engine", default="local")
    parser.add_argument("--page", action="store_true")
    given = parser.parse_args()
    further = dict(part.split("=", 1) for part in given.models.split(",") if part)
    runs: dict[str, Any] = json.loads(DATA.read_text(encoding="utf-8")) if DATA.exists() else {}
    planned, start = list(steps(further)), time.monotonic()
    for step in planned if not given.page else ():
        if time.monotonic() - start > 60 * given.minutes:
            break
        if name_of(step) not in runs:
            runs[name_of(step)] = run(step, given.engine)
            DATA.write_text(json.dumps(runs, indent=1) + "\n", encoding="utf-8")
            print(name_of(step), runs[name_of(step)]["seconds"], "s", flush=True)
    if any(done["rows"] for done in runs.values()):
        PAGE.write_text(page(runs, [name_of(step) for step in planned]), encoding="utf-8")


if __name__ == "__main__":
    main()
