"""What a record was asked, as a question, and the command that goes on from it."""

from __future__ import annotations

import re
import shlex
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import PurePath
from typing import TYPE_CHECKING, Any

from layerscope.cutting.plan import spans
from layerscope.data.metrics import higher_is_better
from layerscope.drawing.words import listed
from layerscope.reporting.findings.finding import extreme, short, task_name
from layerscope.reporting.findings.readers import DAMAGED, frames_of

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
_OWN = re.compile(r"^(?:Next|On your own model): (.+)$", re.DOTALL)
# What says which data is meant, and goes with --task into the next command.
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
_HEADS = re.compile(r"For[A-Z]|LMHead")
_IN_MEMORY = re.compile(r", tuned(?: \(\d+\))?$")  # what a training in Python is called, which no command can open


@dataclass(frozen=True)
class Next:
    """A command to run next, and what it is good for."""

    command: str
    why: str

    @property
    def target(self) -> tuple[str, ...]:
        """What is run, and on which model."""
        return tuple(_split(self.command)[1:3])


def question(record: Record) -> str:
    """What was asked, as a question; the record's title where its kind is unknown."""
    names = [short(str(model.get("name", ""))) for model in record.models]
    task = task_name(record.data.get("task") or "")
    if record.kind not in QUESTIONS or not names:
        return record.title
    return QUESTIONS[record.kind].format(models=listed(names), task=f" on {task}" if task else "")


def next_step(record: Record) -> Next | None:
    """The command that goes on from a record, or None where there is nothing to go on to."""
    for sentence in reversed(record.findings):
        if match := _OWN.match(sentence):
            why = "Do the same on your own model" if sentence.startswith("On") else "Tune under what is recommended"
            return Next(match.group(1), why)
    step = _STEPS.get(record.kind)
    models = [str(model["name"]) for model in record.models if model.get("name") and model.get("class")]
    known = bool(models) and len(models) == len(record.models)  # arrays have no name that a command takes
    known = known and not any(map(_IN_MEMORY.search, models))
    try:
        return step(record, models) if step is not None and known else None
    except DAMAGED:
        return None


def _words(record: Record) -> list[str]:
    """`--task` and what belongs to it, as they were given; the task's name where no command is known."""
    given = _tokens(record)
    words: list[str] = []
    for place, token in enumerate(given):
        name, sign, value = token.partition("=")
        if name in _DATA:
            words += [name, value if sign else given[place + 1]] if sign or place + 1 < len(given) else []
    task = task_name(record.data.get("task") or "")
    return words if "--task" in words else (["--task", task] if task else [])


def _tokens(record: Record) -> list[str]:
    return _split(record.command)


def _split(command: str) -> list[str]:
    """The words of a command line; none of one that no shell would take."""
    try:
        return shlex.split(command)
    except ValueError:
        return []


def _command(name: str, models: Sequence[str], record: Record, *more: str) -> str:
    return shlex.join(["layerscope", name, *models, *_words(record), *more])


def _folder(record: Record) -> str:
    """What stood after `-o`."""
    given = _tokens(record)
    return next((given[k + 1] for k, token in enumerate(given[:-1]) if token in ("-o", "--out")), "")


def _compare(record: Record, models: list[str]) -> Next | None:
    asked = _tokens(record)
    if asked[1:2] == ["compare"] and "--baseline" not in asked:
        folder = ["--overwrite"] if _folder(record) else []
        more = [*([] if "--ci" in asked else ["--ci", "0.95"]), "--baseline", "200", *folder]
        return Next(shlex.join([*asked, *more]), "Add intervals, and what chance gives")
    if headed := _headed(record):
        why = "See what each cut of the top blocks costs"
        return Next(_command("truncate", headed[:1], record, "--curve", "-o", "truncated"), why)
    return Next(_command("specialty", models[:1], record, "-o", "specialty"), "See which layers are worth tuning")


def _headed(record: Record) -> list[str]:
    """The models that have a head, by their class."""
    return [str(model["name"]) for model in record.models if _HEADS.search(str(model.get("class", "")))]


def _after_influence(record: Record, models: list[str]) -> Next:
    if models[0] in _headed(record):
        return _advise(record, models)
    return Next(_command("specialty", models[:1], record, "-o", "specialty"), "See which layers are worth tuning")


def _advise(record: Record, models: list[str]) -> Next:
    why = "Test what may go: some rows choose the blocks, and others score the choice"
    return Next(_command("advise", models[:1], record, "-o", "advice"), why)


def _after_advice(record: Record, models: list[str]) -> Next | None:
    for name, frame in sorted(frames_of(record).items(), key=lambda part: part[0] != "healed"):
        if not {"blocks", "removed", "chosen"} <= set(frame.columns) or not frame["chosen"].any():
            continue
        row, depth = frame[frame["chosen"]].iloc[0], max(numbers_in(str(frame["blocks"].iloc[0])))
        if row["removed"]:
            gone = spans(sorted(set(range(1, depth + 1)) - numbers_in(str(row["blocks"])))).replace(" ", "")
            more = ["--without", gone, "-o", "healed"]
            why = "Heal the cut model for longer" if name == "healed" else "Train the cut model a little, and save it"
            return Next(_command("heal", models[:1], record, *more), why)
    return Next(
        _command("advise", models[:1], record, "--heal", "300", "-o", "healed-advice"), "See what healing would allow"
    )


def numbers_in(blocks: str) -> set[int]:
    """The blocks that `1-3, 5` names."""
    kept: set[int] = set()
    for first, last in re.findall(r"(\d+)(?:-(\d+))?", blocks):
        kept |= set(range(int(first), int(last or first) + 1))
    return kept


def _after_cut(record: Record, models: list[str]) -> Next | None:
    blocks = re.search(r"keep ([\d, -]+)", record.title)
    depth = max((int(model.get("blocks", 0)) for model in record.models), default=0)
    gone = sorted(set(range(1, depth + 1)) - numbers_in(blocks.group(1))) if blocks else []
    if not gone:
        return None
    more = ["--without", spans(gone).replace(" ", ""), "-o", "healed"]
    return Next(_command("heal", models[:1], record, *more), "Train the cut model a little, and save it")


def _after_healing(record: Record, models: list[str]) -> Next | None:
    if folder := _folder(record):
        return Next(_command("evaluate", [folder], record), "Score what was saved on the texts that matter to you")
    asked = _tokens(record)
    return Next(shlex.join([*asked, "-o", "healed"]), "Save it; nothing is trained again") if asked else None


def _after_tuning(record: Record, models: list[str]) -> Next | None:
    folder = _folder(record)
    if not folder:
        return None
    several = any(len(frame) > 1 for frame in frames_of(record).values() if "seed" in frame)
    tuned = str(PurePath(folder) / "seed-0") if several else folder
    return Next(_command("advise", [tuned], record, "-o", "advice"), "See which blocks the tuned model can lose")


def _after_study(record: Record, models: list[str]) -> Next | None:
    for frame in frames_of(record).values():
        if {"resolved", "method", "score", "metric"} <= set(frame.columns) and frame["score"].notna().any():
            best = extreme(frame, "score", most=higher_is_better(str(frame["metric"].iloc[0])))
            more = ["--strategy", str(best["resolved"]), "--method", str(best["method"]), "--seeds", "5", "-o", "tuned"]
            return Next(_command("tune", models[:1], record, *more), "Train the best one with more seeds")
    return None


def _after_strategies(record: Record, models: list[str]) -> Next:
    more = ["--study", "--seeds", "3", "-o", "study"]
    return Next(_command("tune", models[:1], record, *more), "Train them, and compare their scores")


def _after_alignment(record: Record, models: list[str]) -> Next | None:
    pair = list(dict.fromkeys(models))[:2]
    if len(pair) < 2:
        return None
    return Next(_command("inject", pair, record, "-o", "injected"), "See whether one works on the other's states")


def _after_injection(record: Record, models: list[str]) -> Next:
    more = ["--measure", "cka_debiased,mutual_knn", "--ci", "0.95", "-o", "compared"]
    return Next(_command("compare", models[:2], record, *more), "See where the two models part")


def _after_extraction(record: Record, models: list[str]) -> Next:
    more = ["--measure", "cka_debiased", "--ci", "0.95", "-o", "compared"]
    return Next(_command("compare", models[:1], record, *more), "Compare the layers")


_STEPS: dict[str, Callable[[Any, list[str]], Next | None]] = {
    "compare": _compare,
    "influence": _after_influence,
    "evaluate": _advise,
    "truncate": _advise,
    "skip": _advise,
    "cut": _after_cut,
    "advise": _after_advice,
    "heal": _after_healing,
    "tune": _after_tuning,
    "strategies": _after_strategies,
    "study": _after_study,
    "align": _after_alignment,
    "inject": _after_injection,
    "extract": _after_extraction,
}
