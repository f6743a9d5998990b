"""The page of claims.py: per paper a table and a picture of all claims; every row is in claims.csv beside it."""

from __future__ import annotations

import math
import re
import textwrap
from collections import Counter
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

import pandas
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure

from layerscope.recipes.claims import Claim, Statistic, claims
from layerscope.recipes.experiment_run import ExperimentRun
from layerscope.recipes.recipe import Profile, read_recipe
from layerscope.recipes.reproduction import VERDICTS, verdicts
from layerscope.registry import UNITS
from layerscope.results import csv_text

Jobs = Mapping[str, Mapping[str, Any]]
LITTLE = 3  # rows that are decided: with fewer, a claim has little evidence
COLOURS = {"holds": "#009E73", "does not hold": "#D55E00", "undecided": "#8a8a8a"}
_INTRODUCTION = """
## The verdicts

A claim **holds** in a row (a model on a task) where the whole 95 % interval over texts lies beyond its threshold,
**does not hold** where none of it does, and is **undecided** where the interval spans it or there is none
([how](../howto/reproduce.md#verdicts)). The verdict in the tables is over all rows: *holds* and *fails* where all that
are decided agree, *mostly holds* where two in three or more hold, *mixed* where fewer do, *open* where none is decided.
*Decided* is of all rows that were tried, the others being undecided or not testable. Every row, with its interval and
its reason, is in [claims.csv](claims.csv). These are small models and short trainings: what fails here may hold in the
paper's own models, which `layerscope reproduce PAPER --profile paper` runs.
"""
_READING = """
- `bge` is bge-small-en-v1.5, `mpnet` all-mpnet-base-v2, `smollm2` SmolLM2-135M-Instruct (from a GGUF file of 4 bits per
  weight) and `minilm` all-MiniLM-L6-v2; the others are the models of the [garden](garden.md), a few million parameters
  each, `s0` to `s4` five seeds of its BERT. `all models` are those that the recipe names for wu2020 (three ELMos, two
  BERTs, RoBERTa, ELECTRA, GPT-2 and XLNet) and ren2023 (the five seeds).
- Points are of the task's own metric: accuracy on SST-2, RTE and HellaSwag, F1 on MRPC, Matthews' correlation on CoLA,
  the mean of Pearson's and Spearman's correlation on STS-B.
- A claim is not testable on a model that has not learned its task: if it does not beat always giving the most frequent
  class by more than chance, what cutting it costs says nothing. The same goes for probes.
- Errors of aligners are relative to the spread of what is mapped, unless a claim says otherwise. Linear maps are solved
  in closed form. They decide the claims on section 5 of Ren et al., where the paper has its invertible network.
"""
_COUNTS = {0: "None is decided", 1: "One is", 2: "Two are"}


def page(about: Mapping[str, Any], missing: Mapping[str, str], jobs: Jobs) -> str:
    """The whole page in Markdown."""
    frame = rows_of(jobs)
    lines = ["# Claims of the four papers, put to the test", "", *_little(frame), _INTRODUCTION]
    for paper in dict.fromkeys(claim.paper for claim in claims()):
        recipe = read_recipe(paper)
        own = [claim for claim in claims() if claim.paper == paper]
        lines += [f"## {recipe.citation}: {recipe.title}", "", *_paper(own, frame), ""]
        lines += [f"![A dot per model and task for every claim of {recipe.citation}](claims-{paper}.png)", ""]
        lines += [*_untestable(own, frame), ""]
    lines += ["## How to read it", _READING, "## What was run, and what not", "", *_made(about, jobs), ""]
    return "\n".join([*lines, *_runs(about, missing, jobs)]) + "\n"


def table(jobs: Jobs) -> str:
    """Every row of every claim, as CSV."""
    return csv_text(rows_of(jobs).drop(columns=["models"]))


def draw(jobs: Jobs, folder: Path) -> list[Path]:
    """One picture per paper: a strip per claim, a dot per row with its interval, the threshold as a line."""
    frame, files = rows_of(jobs), []
    for paper in dict.fromkeys(claim.paper for claim in claims()):
        own = [claim for claim in claims() if claim.paper == paper]
        canvas = Figure(figsize=(9, 0.62 * len(own) + 0.6), layout="constrained")
        FigureCanvasAgg(canvas)
        for ax, claim in zip(canvas.subplots(len(own), 1, squeeze=False)[:, 0], own, strict=True):
            _strip(ax, claim, _of(frame, claim))
        marks = [canvas.axes[0].plot([], [], "o", color=c, label=v, markersize=4)[0] for v, c in COLOURS.items()]
        canvas.legend(handles=marks, loc="outside upper right", ncols=3, fontsize=7, frameon=False)
        files.append(folder / f"claims-{paper}.png")
        canvas.savefig(files[-1], dpi=110, metadata={"Software": None})
    return files


def _strip(ax: Any, claim: Claim, rows: pandas.DataFrame) -> None:
    tested = rows[rows["verdict"].isin(VERDICTS[:3])]
    count = max(len(tested), 1)
    for k, row in enumerate(tested.itertuples()):
        y, colour = 1 - (k + 0.5) / count, COLOURS[row.verdict]
        if not math.isnan(row.low) and math.isfinite(row.high):
            ax.plot([row.low, row.high], [y, y], color=colour, linewidth=0.7, alpha=0.7)
        ax.plot([row.value], [y], "o", color=colour, markersize=2.6)
    threshold = claim.above if claim.above is not None else claim.below
    ax.axvline(threshold, color="black", linewidth=0.8)
    ax.set_ylim(-0.06, 1.06)
    ax.set_yticks([])
    ax.tick_params(labelsize=5.5, length=2)
    side = "right" if claim.above is not None else "left"
    ax.set_ylabel("\n".join(textwrap.wrap(claim.name, 40)), rotation=0, ha="right", va="center", fontsize=6.5)
    ax.text(1.005, 0.5, f"holds to\nthe {side}", transform=ax.transAxes, fontsize=5, va="center")
    for spine in ("top", "right", "left"):
        ax.spines[spine].set_visible(False)
    if not len(tested):  # there is no scale, so the threshold goes into the middle and the words beside it
        ax.set_xlim(threshold - 1, threshold + 1)
        ax.text(0.53, 0.5, "no row could be tested", transform=ax.transAxes, ha="left", va="center", fontsize=6)


def _of(frame: pandas.DataFrame, claim: Claim) -> pandas.DataFrame:
    return frame[(frame["claim"] == claim.name) & (frame["paper"] == claim.paper)]


def word(rows: pandas.DataFrame) -> str:
    """The verdict over all rows of a claim, in a word."""
    decided = rows[rows["verdict"].isin(VERDICTS[:2])]
    if not len(decided):
        return "open"
    share = float((decided["verdict"] == VERDICTS[0]).mean())
    return {1.0: "holds", 0.0: "fails"}.get(share, "mostly holds" if share >= 2 / 3 else "mixed")


def _little(frame: pandas.DataFrame) -> list[str]:
    """Which claims have little evidence, which is said before anything else."""
    named: dict[int, list[str]] = {}
    for claim in claims():
        decided = int(_of(frame, claim)["verdict"].isin(VERDICTS[:2]).sum())
        if decided < LITTLE:
            named.setdefault(decided, []).append(claim.name)
    lines = [
        f"Of {len(claims())} claims {sum(map(len, named.values()))} rest on fewer than {LITTLE} rows that are decided."
    ]
    lines += [f"{_COUNTS[count]} for: {'; '.join(named[count])}." for count in sorted(named)]
    lines.append(
        "Claims about all models at once have one row per corpus or task; measures of attention have no intervals, so "
        "that claims on them stay open. `python docs/results/claims.py --evidence` runs what claims about strategies, "
        "freezing, networks of both starts and attention beside states lack."
    )
    return ["## Where there is little evidence", "", *(part for line in lines for part in (*_wrapped(line), ""))][:-1]


def _paper(own: Iterable[Claim], frame: pandas.DataFrame) -> list[str]:
    """The table of a paper: a line per claim."""
    lines = []
    for claim in own:
        rows = _of(frame, claim)
        tested = rows[rows["verdict"].isin(VERDICTS[:3])]
        values = tested["value"]
        middle = f"{values.median():.3g} ({values.min():.3g} to {values.max():.3g})" if len(values) else ""
        decided = int(rows["verdict"].isin(VERDICTS[:2]).sum())
        lines.append(
            {
                "claim": f"{claim.says} ({claim.where})",
                "verdict": word(rows),
                "decided": f"{decided} of {len(rows)}",
                "median (range)": middle,
                "asked for": f"{claim.threshold} ({UNITS[claim.statistic]})",
                "the paper's number": claim.number,
            }
        )
    return _table(pandas.DataFrame(lines))


def _untestable(own: Iterable[Claim], frame: pandas.DataFrame) -> list[str]:
    """What could not be tested, in one sentence."""
    names = {claim.name for claim in own}
    rows = frame[frame["claim"].isin(names) & (frame["verdict"] == VERDICTS[3])]
    absent = [claim.name for claim in own if not len(_of(frame, claim))]
    parts = [f"{count} for {why}" for why, count in Counter(map(_kind, rows["note"])).most_common()]
    text = f"Not testable were {len(rows)} rows: {'; '.join(parts)}." if len(rows) else "Every row could be tested."
    if absent:
        text += f" Not run here: {'; '.join(absent)}."
    return _wrapped(text)


_KINDS = {
    "has not learned": "a tuned model that has not learned its task",
    "same strategy": "two strategies that are the same, since nu picks an end",
    "was not trained": "a strategy that the model cannot have, or that was not trained",
    "as many blocks": "two strategies that do not tune as many blocks, since l* is below 3",
    "paper's rule": "freezing that was run under another rule than the paper's",
    "not run, or failed": "a model beside which there is no other",
    "go with probes": "nu that does not go with probes in the first place",
    "any one of its blocks": "a model that scores the same without any one of its blocks",
    "none that this model can have": "a strategy that the model cannot have, or that was not trained",
    "probes": "probes that tell no layers apart",
}


def _kind(note: str) -> str:
    """A reason without its numbers and names, by which rows are counted."""
    return next((kind for part, kind in _KINDS.items() if part in note), re.sub(r"[-\d.]+", "..", note))


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


def rows_of(jobs: Jobs) -> pandas.DataFrame:
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
    name = job["experiment"]
    experiment = next(e for e in read_recipe(job["paper"]).chosen(name) if e.name == name)
    return ExperimentRun(job["paper"], experiment, job["chosen"], Profile(models={}))


def _statistics(said: Mapping[str, Any]) -> dict[str, Statistic]:
    return {
        name: Statistic(**{key: math.nan if value is None else value for key, value in entry.items()})
        for name, entry in said.items()
    }


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
