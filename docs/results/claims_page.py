"""The page of claims.py: what was run and what not, a summary, and every verdict."""

from __future__ import annotations

import math
import textwrap
from collections import Counter
from collections.abc import Iterable, Mapping
from typing import Any

import pandas

from layerscope.recipes.claims import Claim, Statistic, claims
from layerscope.recipes.experiment_run import ExperimentRun
from layerscope.recipes.recipe import Profile, read_recipe
from layerscope.recipes.reproduction import VERDICTS, summarised, verdicts
from layerscope.registry import UNITS

Jobs = Mapping[str, Mapping[str, Any]]
_INTRODUCTION = """
A claim holds where the whole 95 % interval over texts lies beyond its threshold, does not hold where none of it does,
and is undecided where the interval spans it ([how](../howto/reproduce.md#verdicts)). Seeds are rows of their own or
stand in the note; two seeds give no interval. These are small models and short trainings: what does not hold here may
hold in the paper's own models, which `layerscope reproduce PAPER --profile paper` runs.

- `bge` is bge-small-en-v1.5, `mpnet` all-mpnet-base-v2, `smollm2` SmolLM2-135M-Instruct (from a GGUF file of 4 bits per
  weight) and `minilm` all-MiniLM-L6-v2; the others are the models of the [garden](garden.md), a few million parameters
  each, `s0` to `s4` five seeds of its BERT. `all models` are those that the recipe names for wu2020 (three ELMos, two
  BERTs, RoBERTa, ELECTRA, GPT-2 and XLNet) and ren2023 (the five seeds).
- Scores are points of the task's own metric: accuracy on SST-2, RTE and HellaSwag, F1 on MRPC, Matthews' correlation on
  CoLA, the mean of Pearson's and Spearman's correlation on STS-B.
- A claim is not testable on a model that has not learned its task: if it does not beat always giving the most frequent
  class by more than chance, what cutting it costs says nothing. The same goes for probes.
- The strength of blocks says how much more alike layers are within than across, which a gradual change from layer to
  layer gives too. Whether there is an edge is a claim of its own, decided by the p-value against gradual change; a
  large one refutes nothing.
- Errors of aligners are relative to the spread of what is mapped. Linear maps are solved in closed form, and the
  invertible network starts as the solved map: where the two differ by next to nothing, training has not found anything
  better.
"""


def page(about: Mapping[str, Any], missing: Mapping[str, str], jobs: Jobs) -> str:
    """The whole page in Markdown."""
    frame = _verdicts(jobs)
    lines = [
        "# Claims of the four papers, put to the test",
        "",
        *_made(about, jobs),
        _INTRODUCTION,
        "## Summary",
        "",
        *_summary(frame),
        "",
        "## What was run, and what not",
        "",
        *_runs(about, missing, jobs),
    ]
    for claim in claims():
        rows = frame[(frame["claim"] == claim.name) & (frame["paper"] == claim.paper)]
        lines += ["", *_claim(claim, rows)]
    return "\n".join(lines) + "\n"


def _made(about: Mapping[str, Any], jobs: Jobs) -> list[str]:
    done, training = [job for job in jobs.values() if job.get("statistics")], about["training"]
    counts = Counter(job["run"] for job in done)
    runs = [_run(counts[number], run) for number, run in enumerate(about["runs"]) if counts[number]]
    how = (
        f"`python docs/results/claims.py` ran {len(done)} jobs of the four [recipes](../howto/reproduce.md), each an "
        f"experiment on some model, task and seed: {'; '.join(runs)}. Settings are those of the offline profile, but "
        f"models are tuned on at most {training['train_limit']:,} texts ({training['epochs']} epochs, batches of "
        f"{training['batch']}, a learning rate of {training['learning_rate']:g}, ten times that for the garden's "
        "narrow models), so that trainings stay short. They are scored on at most 1,000 validation texts."
    )
    remarks = (line for remark in about.get("remarks", ()) for line in ("", *_wrapped(remark)))
    return [*_wrapped(how), *remarks]


def _run(jobs: int, run: Mapping[str, Any]) -> str:
    where = "two cores" if run["device"] == "CPU" else f"one {run['device']}"
    return f"{jobs} in {run['minutes']:.0f} minutes on {where}, {run['workers']} at a time"


def _wrapped(text: str) -> list[str]:
    return textwrap.wrap(text, 118, break_long_words=False, break_on_hyphens=False)


def _verdicts(jobs: Jobs) -> pandas.DataFrame:
    """One row per claim and combination."""
    done = [(_cell(job), _statistics(job["statistics"])) for job in jobs.values() if job.get("statistics")]
    frames = []
    for paper in dict.fromkeys(claim.paper for claim in claims()):
        own = [(cell, said) for cell, said in done if cell.paper == paper]
        frames.append(verdicts([claim for claim in claims() if claim.paper == paper], own))
    frame = pandas.concat(frames, ignore_index=True)
    absent = (frame["verdict"] == VERDICTS[3]) & frame["note"].str.contains("none of the models that were run")
    return frame[~absent]


def _cell(job: Mapping[str, Any]) -> ExperimentRun:
    """A job's cell, as far as verdicts ask for it."""
    (experiment,) = read_recipe(job["paper"]).chosen(job["experiment"])
    return ExperimentRun(job["paper"], experiment, job["chosen"], Profile(models={}))


def _statistics(said: Mapping[str, Any]) -> dict[str, Statistic]:
    return {
        name: Statistic(**{key: math.nan if value is None else value for key, value in entry.items()})
        for name, entry in said.items()
    }


def _summary(frame: pandas.DataFrame) -> list[str]:
    table = summarised(frame).drop(columns=["where"])
    table["claim"] = [f"[{name}](#{_anchor(name)})" for name in table["claim"]]
    return _table(table)


def _anchor(name: str) -> str:
    """As Markdown makes it of a heading."""
    kept = "".join(letter for letter in name.lower() if letter.isalnum() or letter in " -")
    return "-".join(kept.split())


def _claim(claim: Claim, rows: pandas.DataFrame) -> list[str]:
    number = f" The paper's number: {claim.number}." if claim.number else ""
    said = [
        f"## {claim.name[0].upper()}{claim.name[1:]}",
        "",
        f"{claim.says} ({claim.paper}, {claim.where}.){number} Asked for: {claim.threshold} "
        f"({UNITS[claim.statistic]}). What would refute it: "
        f"{claim.refuted}",
        "",
    ]
    if not len(rows):
        return [*said, "It was not tested here."]
    return [*said, *_table(rows[["on", "value", "low", "high", "verdict", "n", "note"]])]


def _runs(about: Mapping[str, Any], missing: Mapping[str, str], jobs: Jobs) -> list[str]:
    """Every experiment with what it was run on; what was planned and not reached; what failed or is missing."""
    done = {name for name, job in jobs.items() if "statistics" in job}
    planned = {name: None for name in (*about.get("planned", ()), *jobs) if _is_experiment(name)}
    lines = ["| experiment | run | not run |", "| --- | --- | --- |"]
    for head in dict.fromkeys(_head(name) for name in planned):
        own = [name for name in planned if _head(name) == head]
        parts = [_grouped(_inner(n) for n in own if (n in done) == ran) for ran in (True, False)]
        lines.append(f"| {head} | {' | '.join(parts)} |")
    failures = {name: job["reason"] for name, job in jobs.items() if job.get("reason") and _is_experiment(name)}
    failed = [f"- {name} failed: {reason}" for name, reason in failures.items()]
    left = [f"- {name} could not be fetched: {reason}" for name, reason in missing.items()]
    return [*lines, *([""] if failed or left else []), *failed, *left]


def _is_experiment(name: str) -> bool:
    return name.endswith(")") and name.count("(") == 1


def _head(name: str) -> str:
    return name.partition(" (")[0]


def _inner(name: str) -> str:
    return name.partition(" (")[2].removesuffix(")")


def _grouped(names: Iterable[str]) -> str:
    """`sst2: bge, bert (seeds 0, 1)`: combinations by what follows their models."""
    groups: dict[str, list[str]] = {}
    for name in names:
        first, *rest = name.split(", ")
        groups.setdefault(", ".join(rest), []).append(first)
    return "; ".join(f"{rest}: {', '.join(own)}" if rest else ", ".join(own) for rest, own in groups.items())


def _table(frame: pandas.DataFrame) -> list[str]:
    lines = [list(frame), ["---"] * len(frame.columns), *frame.to_numpy().tolist()]
    return ["| " + " | ".join(_spelled(value) for value in line) + " |" for line in lines]


def _spelled(value: Any) -> str:
    if pandas.isna(value):
        return ""
    return (f"{value:.3g}" if isinstance(value, float) else str(value)).replace("|", "\\|")
