"""The first page of a study: the findings that matter most, and commands to go on with, ready to copy."""

from __future__ import annotations

import math
import re
import shlex
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

from layerscope import metrics
from layerscope.cutting.plan import LayerPlan, integers, spans
from layerscope.progress import duration
from layerscope.recipes.study_subject import Subject
from layerscope.reporting.summary import PlacedFinding, by_weight
from layerscope.results import Finding, Record
from layerscope.results.finding import ANSWER, DETAIL, SUPPORT, number
from layerscope.tuning.changes import EVERY_WEIGHT

if TYPE_CHECKING:
    import pandas

MOST = 5  # findings on the first page
_FRONT = ("score", "changes", "smaller", "tuning", "other", "layers", "cuts")  # whose answers come first
_SENTENCES = 2  # of a finding there; the section of its part has all of it
_END = re.compile(r"(?<=[.!?]) (?=[A-Z]|l\*)")
_HEALING = 300  # steps of a healing
_BATCH, _LONGEST = 16, 128  # texts of a step, and tokens of each where they are no windows
_BACKWARD = 3  # forward passes that a step of training costs


def first_page(shown: Mapping[str, Record], samples: Mapping[str, str]) -> list[PlacedFinding]:
    """Return five findings at most: the answer of each part, then what is sure among what else they found.

    `samples` says which sample of the texts a part read, by its name.
    """
    order = [name for front in _FRONT for name in shown if name.partition("-")[0] == front]
    places = list(shown)
    answers, more = list[tuple[str, Finding]](), list[tuple[str, Finding]]()
    for name in order:
        ranked = by_weight(shown[name])
        first = next((finding for finding in ranked if finding.weight == ANSWER), None)
        answers += [] if first is None else [(name, first)]
        more += [(name, each) for each in ranked if each.weight >= SUPPORT and each.sure and each is not first]
    chosen = [*answers[:MOST], *more[: max(MOST - len(answers), 0)]]
    return [PlacedFinding(_in_short(finding, samples.get(name, "")), places.index(name)) for name, finding in chosen]


def _in_short(finding: Finding, sample: str) -> Finding:
    """Return a finding in two sentences at most, with what it was read on where that is a sample."""
    if finding.evidence == EVERY_WEIGHT:  # which has nothing to do with texts
        sample = ""
    text = " ".join(_END.split(finding.text)[:_SENTENCES])
    return replace(finding, text=text, evidence="; ".join(part for part in (finding.evidence, sample) if part))


def on_sample(record: Record, subject: Subject, sample: str) -> Record:
    """Return a part's record with a sentence on the sample that it read; the record itself where it read all texts."""
    if not sample:
        return record
    how = "as runs of neighbouring texts" if subject.running else "with every class in proportion"
    if not subject.running and not subject.task.label_names:
        how = "at random"
    text = f"This part read {sample}, drawn {how} from {subject.task.name} (seed {subject.seed})."
    return replace(record, findings=(*record.findings, Finding(text, "", None, DETAIL)))


@dataclass(frozen=True)
class Cut:
    """A plan that a study tried, and what it scores beside the whole model on the same rows."""

    gone: tuple[int, ...]
    metric: str
    score: float
    whole: float
    loss: float  # by which plans are picked: on the rows that choose, where there are some
    on: str  # on which rows it was scored
    tolerated: bool = False

    def __str__(self) -> str:
        return f"{self.metric} {number(self.score)}, the whole model {number(self.whole)}, on {self.on}"


def smallest_cut(subject: Subject, shown: Mapping[str, Record]) -> tuple[Cut, int] | None:
    """Return the advised plan, or of all plans that the study tried the one that loses least, and how many there were.

    Single blocks are tried by the skip map too, on more rows than advice has to choose on.
    """
    tried: list[Cut] = []
    if "smaller" in shown:
        tried += _of_advice(shown["smaller"].tables["advice"], subject.model.depth)
    if chosen := next((cut for cut in tried if cut.tolerated), None):
        return chosen, len(tried)
    if "cuts" in shown and "skips" in shown["cuts"].tables:
        tried += _of_map(shown["cuts"].tables["skips"], {cut.gone for cut in tried})
    tried = [cut for cut in tried if math.isfinite(cut.loss) and math.isfinite(cut.score)]
    return (min(tried, key=lambda cut: cut.loss), len(tried)) if tried else None


def _of_advice(table: pandas.DataFrame, depth: int) -> list[Cut]:
    """Return the plans that advice scored and that can be saved."""
    whole, cuts = table.iloc[0], []
    for row in table[table["savable"] & (table["removed"] > 0)].to_dict("records"):
        metric = str(row["metric"])
        gone = LayerPlan(integers(row["blocks"])).removed(depth)
        loss = _loss(metric, row["chosen_on"], whole["chosen_on"])
        on = "the rows that did not choose it"
        cuts.append(Cut(gone, metric, row["score"], whole["score"], loss, on, bool(row["chosen"])))
    return cuts


def _of_map(table: pandas.DataFrame, known: set[tuple[int, ...]]) -> list[Cut]:
    """Return the single blocks of a skip map, without those that advice has tried."""
    cuts = []
    for row in table[table["first"] == table["last"]].to_dict("records"):
        metric, gone = str(row["metric"]), (int(row["first"]),)
        if gone not in known:
            on = "the rows that it was picked on, so a little too good"
            cuts.append(Cut(gone, metric, row["score"], row["whole"], _loss(metric, row["score"], row["whole"]), on))
    return cuts


def _loss(metric: str, score: float, whole: float) -> float:
    """Return what a plan loses: the share by which a loss grows, since rows differ in how hard they are."""
    if metric in metrics.LOSSES:
        return score / whole if whole else math.inf
    return whole - score


def commands_of(subject: Subject, shown: Mapping[str, Record], per_text: float) -> dict[str, str]:
    """Return the commands to go on with, by what they do, filled in with what was found."""
    commands: dict[str, str] = {}
    model, words = subject.model.name, [*subject.task.words]
    scored = [*words, *([] if subject.split is None else ["--split", subject.split]), *_length(subject)]
    if subject.scored:
        found = smallest_cut(subject, shown)
        if found is None:
            line = ["layerscope", "advise", model, *scored, "--save", _free("smaller")]
            commands["Cut it (find out which blocks can go, and save what is left)"] = shlex.join(line)
        else:
            cut, count = found
            gone = spans(cut.gone).replace(" ", "")
            verdict = "within the tolerance" if cut.tolerated else f"picked of {count} plans as losing least"
            rows = f"; the command scores all {subject.whole:,} texts"
            why = f"Cut it (without {gone}, {verdict}: {cut}{rows}), and save it"
            line = ["layerscope", "skip", model, "--blocks", gone, *scored, "--save", _free("smaller")]
            commands[why] = shlex.join(line)
            steps = duration(_HEALING * _step(subject, per_text))
            why = f"Heal the cut model ({_HEALING} steps take about {steps} here)"
            line = ["layerscope", "heal", model, "--without", gone, *words, "--steps", f"{_HEALING}"]
            commands[why] = shlex.join([*line, "-o", _free("healed")])
    return commands | _tuning(subject, shown, per_text)


def _tuning(subject: Subject, shown: Mapping[str, Record], per_text: float) -> dict[str, str]:
    """Return the command that tunes: under the recommended strategy, or a language model or tagger on its own texts."""
    words = [*subject.task.words]
    if "tuning" in shown and (step := shown["tuning"].next) is not None:
        start = subject.base or subject.model
        line = ["layerscope", "tune", start.name, *words, *step.arguments, "-o", _free("tuned")]
        of_base = f" (of {start.label}, the base)" if subject.base is not None else ""
        return {f"{step.why}{of_base}": shlex.join(line)}
    if subject.scored and subject.model.head in ("next", "masked", "tags"):
        took = duration(_HEALING * _step(subject, per_text))
        why = f"Tune it (LoRA in every block on these texts; {_HEALING} steps take about {took} here)"
        line = ["layerscope", "heal", subject.model.name, *words, "--steps", f"{_HEALING}", "-o", _free("tuned")]
        return {why: shlex.join(line)}
    return {}


def _length(subject: Subject) -> list[str]:
    """Return the option that reads texts as the study did: a perplexity is of windows of one length."""
    return [] if subject.window is None else ["--max-length", f"{subject.window}"]


def _step(subject: Subject, per_text: float) -> float:
    """Return about how many seconds a step of training takes."""
    if subject.running:
        window = min(512, subject.model.positions or 512)
        return _BATCH * _BACKWARD * window * per_text / max(subject.tokens_per_text, 1)
    return _BATCH * _BACKWARD * per_text


def _free(name: str) -> str:
    """Return a name for a folder that is not there, so that the command can be run as it stands."""
    return next(free for k in range(1, 1000) if not Path(free := name if k == 1 else f"{name}-{k}").exists())
