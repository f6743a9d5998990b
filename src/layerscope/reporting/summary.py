"""The summary of a page: the questions that were asked, up to six findings, and the command to run next."""

from __future__ import annotations

import re
import shlex
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import PurePath
from typing import TYPE_CHECKING

from layerscope.drawing.captions import listed
from layerscope.results.finding import Finding, NextStep, label, task_name

if TYPE_CHECKING:
    from layerscope.results import Record

QUESTIONS = {
    "compare": "Which layers of {models} represent the same thing{task}?",
    "localization": "How well are the single neurons of {models} found elsewhere{task}?",
    "influence": "How much does each block of {models} change what goes through it{task}?",
    "evaluate": "What does {models} score{task}?",
    "truncate": "How many of its top blocks can {models} lose{task}?",
    "skip": "Which spans of blocks can {models} do without{task}?",
    "cut": "What does {models} score after the cut{task}?",
    "advise": "Which blocks can {models} lose{task}, and what does that cost?",
    "heal": "How much of what the cut costs {models} does a short training bring back{task}?",
    "specialty": "Which layers of {models} are worth tuning{task}?",
    "tune": "What does {models} score when it is tuned{task}?",
    "strategies": "What would each strategy train in {models}, and what would it cost{task}?",
    "study": "Which strategy is the best one for {models}{task}?",
    "align": "Are {models} the same up to a map{task}?",
    "inject": "Does one of {models} work on the other's states{task}?",
    "extract": "What are the states of {models} like{task}?",
    "reproduce": "Which claims of the paper hold{task}?",
}
# The options that say which data is meant; they go with --task into the next command.
_DATA = (
    "--task",
    "--text",
    "--text-pair",
    "--label",
    "--labels",
    "--choices",
    "--tags",
    "--kind",
    "--config",
    "--max-length",
)
_IN_MEMORY = re.compile(r", tuned(?: \(\d+\))?$")  # what a training in Python is called, which no command can open


@dataclass(frozen=True)
class Next:
    """A command to run next, and what it is good for."""

    command: str
    why: str

    @property
    def target(self) -> tuple[str, ...]:
        """The name of the command, and the model that it runs on."""
        return tuple(_split(self.command)[1:3])


def question(record: Record) -> str:
    """Return the question that a record answers; the record's title where its kind is unknown."""
    names = [label(model) for model in record.models]
    task = task_name(record.data.get("task") or "")
    if record.kind not in QUESTIONS or not names:
        return record.title
    return QUESTIONS[record.kind].format(models=listed(names), task=f" on {task}" if task else "")


def next_step(record: Record) -> Next | None:
    """Return the whole command that goes on from a record; None where there is none, or it cannot be filled in."""
    step = record.next
    if step is None:
        return None
    if step.line:
        return Next(step.line, step.why)
    asked, given = _split(record.command), _models(record, step)
    folder = _folder(asked)
    if given and step.again and asked[1:2] == [step.command]:
        return Next(shlex.join([*asked, *step.again, *(["--overwrite"] if folder else [])]), step.why)
    if given and step.saved is not None:
        given = [str(PurePath(folder, step.saved)) if step.saved else folder] if folder else []
    if not given:
        return None
    return Next(shlex.join(["layerscope", step.command, *given, *_task_words(record), *step.arguments]), step.why)


def _models(record: Record, step: NextStep) -> list[str]:
    """Return the names of the models that a step is given; none where a command cannot open all of the record's.

    Arrays have no name that a command takes.
    """
    names = [str(model["name"]) for model in record.models if model.get("name") and model.get("class")]
    if len(names) < len(record.models) or any(map(_IN_MEMORY.search, names)):
        return []
    return list(step.models) or names[:1]


def _task_words(record: Record) -> list[str]:
    """Return `--task` and what belongs to it, as they were given; the task's name where no command is known."""
    given = _split(record.command)
    words: list[str] = []
    for place, token in enumerate(given):
        name, sign, value = token.partition("=")
        if name in _DATA:
            words += [name, value if sign else given[place + 1]] if sign or place + 1 < len(given) else []
    task = task_name(record.data.get("task") or "")
    return words if "--task" in words else (["--task", task] if task else [])


def _split(command: str) -> list[str]:
    """Return the words of a command line; none of one that no shell would take."""
    try:
        return shlex.split(command)
    except ValueError:
        return []


def _folder(asked: Sequence[str]) -> str:
    """Return what stood after `-o` among the words of a command line; an empty text where it did not stand there."""
    for place, token in enumerate(asked):
        name, sign, value = token.partition("=")
        if name in ("-o", "--out"):
            return value if sign else next(iter(asked[place + 1 :]), "")
    return ""


MOST = 6  # findings on top of a page, unless there are more records


@dataclass(frozen=True)
class PlacedFinding:
    """A finding, and the place of its record among those of the page."""

    finding: Finding
    record: int


@dataclass(frozen=True)
class Summary:
    """The summary on top of a page.

    Attributes:
        questions: What was asked, each question once, with the place of the first record that was asked it.
        findings: At most six, or one for every record where there are more; each with the place of its record.
        next: The commands that are recommended: one at most, where nothing else was decided.
    """

    questions: Mapping[str, int]
    findings: Sequence[PlacedFinding]
    next: Sequence[Next]


def by_weight(record: Record) -> list[Finding]:
    """Return the findings of a record, each once, with the answers to what was asked first."""
    return sorted(dict.fromkeys(record.findings), key=lambda finding: -finding.weight)


def summarize(records: Sequence[Record]) -> Summary:
    """Return the summary of some records. Every record has a finding in it before one has a second.

    All findings of a record stand in its section.
    """
    ranked = [
        (rank, PlacedFinding(finding, k))
        for k, record in enumerate(records)
        for rank, finding in enumerate(by_weight(record))
    ]
    ranked.sort(key=lambda part: (part[0], -part[1].finding.weight, part[1].finding.sure is None))  # stable
    chosen = sorted(
        ranked[: max(MOST, sum(rank == 0 for rank, _ in ranked))], key=lambda part: (part[1].record, part[0])
    )
    asked: dict[str, int] = {}
    for k, record in enumerate(records):
        asked.setdefault(question(record), k)
    step = _next(records)
    return Summary(asked, [part for _, part in chosen], [] if step is None else [step])


def _next(records: Sequence[Record]) -> Next | None:
    """Return the command that the last record leads on to, of those that no record of the page has done already."""
    for k, record in reversed(list(enumerate(records))):
        others = {  # what was done already: a command, and the first model that it names
            (other.kind, next((str(model.get("name", "")) for model in other.models), ""))
            for j, other in enumerate(records)
            if j != k
        }
        if (step := next_step(record)) is not None and step.target not in others:
            return step
    return None
