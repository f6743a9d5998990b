"""`ls.study`: the four questions about a model of one's own, on its own texts, in one report within some minutes.

It is a list of parts (`study.yaml`), each a list of calls of public functions, as the papers' experiments are. A part
is a job whose result is kept, so that the same study goes on where it was stopped. How many texts each part reads
follows from what a forward pass takes here and from the time that is left: a sample of a split, where not all.
"""

from __future__ import annotations

import logging
import math
import shutil
import time
import warnings
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar

from layerscope.data import Task, TaskSource
from layerscope.data import task as open_task
from layerscope.drawing.captions import numbers
from layerscope.engine import Job, check_engine, map_jobs
from layerscope.errors import NOTICE, InputError, LayerscopeError, LayerscopeWarning, check_seed, log
from layerscope.models import Model, ModelSource, load
from layerscope.models.lineage import BASE, trained
from layerscope.models.load import stated_by_card
from layerscope.models.peft_adapter import base_name, peft_folder
from layerscope.models.sources import Source, folder_of, short_names
from layerscope.progress import duration
from layerscope.recipes.recipe import function
from layerscope.recipes.study_page import commands_of, first_page, on_sample
from layerscope.recipes.study_subject import StudyPart, Subject, parts
from layerscope.reporting.page import report
from layerscope.reporting.summary import Next, Summary
from layerscope.results import Finding, Record, Result, provenance_of, read_record, write_record
from layerscope.results.records import CARD
from layerscope.store import Artifact, Saved, atomic_folder, check_name, digest, read_json, write_json
from layerscope.version import __version__

if TYPE_CHECKING:
    import pandas

    from layerscope.drawing.figure import Figure

PAGE, PLAN, PARTS = "report.html", "study.json", "parts"
_PILOT_SHARE = 0.03  # of the budget, which the measurement of the speed may take


@dataclass(frozen=True)
class StudyPartRun(Artifact):
    """The calls of a part for some models and texts, as a record."""

    kind: ClassVar[str] = "study"
    version: ClassVar[int] = 2  # raise it when a call comes to mean something else
    part: StudyPart
    values: Mapping[str, Any]

    def spec(self) -> dict[str, Any]:
        asked = self.part.asked
        return {
            "layerscope": __version__,
            "given": self.part.given,
            "calls": [call.model_dump() for call in self.part.calls],
            "values": {name: _described(value) for name, value in sorted(self.values.items()) if name in asked},
        }

    def build(self, folder: Path) -> None:
        values = dict(self.values)
        for call in self.part.calls:
            values[call.name] = function(call.call)(**call.resolved(values))
        results = {call.name: values[call.name] for call in self.part.calls}
        measured = self.values["start" if "start" in self.part.asked else "model"]
        of_base = ", its base" if measured is not self.values["model"] else ""
        title = f"{self.part.title}: {short_names([measured.name])[0]}{of_base}"
        about = {"created": datetime.now(UTC).isoformat(timespec="seconds")}
        write_record(folder / "record", Record.of(self.part.kind, title, results, **about))


def _described(value: Any) -> Any:
    """Return what decides a value, for keys of the store."""
    if isinstance(value, Model):
        return value.spec()
    if isinstance(value, Task):
        return {**value.spec(), "splits": _splits(value), "sample": value.sample}
    if isinstance(value, Mapping):
        return {name: _described(part) for name, part in value.items()}
    return [_described(part) for part in value] if isinstance(value, (list, tuple)) else value


# Every part asks for those of the same task, and a split that is not there may be looked for online.
@lru_cache(maxsize=1)
def _splits(task: Task) -> dict[str, Any]:
    """Return what the splits of a task are known by, without those that no part needs and that cannot be read."""
    described = {}
    for name in task.splits:
        try:
            described[name] = task.split(name).spec()
        except LayerscopeError as error:  # such as a test split without labels that is on the hub alone
            log.info("The split %s of %s cannot be read, so no part uses it: %s", name, task.name, error)
    return described


class PlanCard(Saved):
    """What a study has decided, by the names of its parts: how many texts, which search, how long, in which budget."""

    key: str
    texts: dict[str, int]
    searches: dict[str, int]
    seconds: dict[str, float]
    budgets: dict[str, float]  # in minutes: a part that was reduced for a smaller one is sized anew


class ModelStudy(Result):
    """Everything that the four questions say of a model; `ls.study` makes one.

    `frame` has one row per part: part, title, texts, seconds, state (done, kept from before, left out), note (what was
    reduced, or why it was left out).

    Attributes:
        folder: Where records and the report are.
        records: The folders of the parts' records, by their names.
        commands: What to go on with: commands that are ready to copy, by what they do.

    Example:
        >>> import tempfile, layerscope as ls
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     done = ls.study("garden:bert-s0", "pydocs", budget=0.5, max_length=16, out=folder)
        >>> "layers" in done.records
        True
    """

    name = "study"

    def __init__(
        self,
        frame: pandas.DataFrame,
        provenance: Mapping[str, Any],
        folder: Path,
        records: Mapping[str, Path],
        commands: Mapping[str, str],
        findings: Sequence[Finding],
    ) -> None:
        self._frame, self.provenance, self.folder = frame, provenance, folder
        self.records, self.commands, self._findings = dict(records), dict(commands), list(findings)

    @property
    def frame(self) -> pandas.DataFrame:
        return self._frame

    def figures(self) -> list[Figure]:
        shows = "What each part read and took, what was reduced to hold the time, and what was left out and why."
        return [numbers("The parts of the study", shows, self._frame)]

    def findings(self) -> list[Finding]:
        """Five findings at most: the answer of each part."""
        return self._findings

    def __repr__(self) -> str:
        done = int((self._frame["state"] != "left out").sum())
        return f"ModelStudy({done} of {len(self._frame)} parts, {self.folder / PAGE})"


def study(
    model: ModelSource,
    task: TaskSource,
    *,
    base: ModelSource | None = None,
    others: ModelSource | Sequence[ModelSource] = (),
    budget: float = 10,
    tolerance: float | str = 0.01,
    split: str | None = None,
    limit: int | None = None,
    max_length: int | None = None,
    seed: int = 0,
    engine: str = "local",
    out: str | Path | None = None,
) -> ModelStudy:
    """Say everything that the four questions can say of a model on some texts, in one report.

    What it is and scores; with a base what tuning changed; which layers are alike; what each block is worth and how
    small the model can be made; which layers to tune the next time; and, beside other models, which layers correspond.
    A part that makes no sense for the model or the texts is left out. The same call goes on where it was stopped.

    Args:
        model: A checkpoint: a folder, a hub id, `id@revision`, a GGUF file, `demo:minilm`, `demo:smollm2`,
            `garden:NAME`, `random:` and one of these, or a `Model`.
        task: A task of the registry (`layerscope tasks` lists them), a file, a folder, a hub id, or a `Task`.
        base: The model that it was tuned from; if not given, the one that its own files name, where that can be opened.
        others: Other models to set beside it: seeds, other sizes.
        budget: Minutes that it may take here. Texts and evaluations are reduced before a part is left out.
        tolerance: What the smaller model may lose, as in `ls.advise`.
        split: The split that models are scored and compared on; `validation` where there is one, else the only one.
        limit: At most so many texts, however much time there is: a sample of the split, and not its first rows.
        max_length: The longest text in tokens; the rest is cut off.
        seed: Decides what is drawn: which texts are read where not all are, halves of the texts, random plans, groups.
        engine: `local`, `processes:N`, `ray` or `ray:ADDRESS`.
        out: The folder for records and the report; `study` and the model's name if not given.

    Returns:
        A `ModelStudy`: `.frame` has one row per part, `.findings()` the five that matter most, `.commands` what to go
        on with; the report is `.folder / "report.html"`.

    Example:
        >>> import tempfile, layerscope as ls
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     done = ls.study("garden:bert-s0", "pydocs", budget=0.5, max_length=16, out=folder)
        ...     page = (done.folder / "report.html").is_file()
        >>> page
        True
    """
    started = time.monotonic()
    check_seed(seed)
    check_engine(engine)
    if not (isinstance(budget, (int, float)) and math.isfinite(budget) and budget > 0):
        raise InputError(f"budget is {budget}; give the minutes that the study may take, such as 10.")
    opened, data = load(model), open_task(task).sampled(seed)
    if isinstance(task, (str, Path)):
        data.words = ("--task", str(task))  # so that the commands of the page find a file again
    beside = [load(other) for other in ([others] if isinstance(others, (str, Path, Model)) else others)]
    origin = load(base) if base is not None else _base_of(opened)
    folder = Path(out if out is not None else f"study-{Path(opened.name).name.replace(':', '-')}")
    check_name(folder)
    subject = Subject(opened, data, origin, beside, tolerance, split, limit, max_length, seed)
    planned = list(subject.parts())
    asked = (opened, data, origin, beside, str(tolerance), split, limit, max_length)
    card = _card(folder, digest(*(str(_described(each)) for each in asked)))
    with quietly():
        per_text = subject.pilot(_PILOT_SHARE * 60 * budget)
    log.log(
        logging.WARNING if budget >= 1 else logging.INFO,
        "study: %d parts within %s; a forward pass takes %.3g ms for a text here.",
        *(len(planned), duration(60 * budget), 1000 * per_text),
    )
    work = _Work(subject, card, folder, engine, 60 * budget, started, per_text)
    for place, (part, name, other) in enumerate(planned, 1):
        total = sum(later.share for later, called, _ in planned[place - 1 :] if not work.is_settled(called))
        time_for_it = work.left * part.share / total if total else work.left
        # The score is what every other number is held against, so that it may take half of the time.
        size = work.size(part, name, other, time_for_it, work.left / 2 if part.name == "score" else time_for_it)
        work.do(part, name, other, size, f"{place} of {len(planned)}")
    # What others left of their shares is given to those that had too little, in the order of the report.
    for part, name, other in planned:
        if name in work.too_little:
            total = sum(later.share for later, called, _ in planned if called in work.too_little)
            size = work.size(part, name, other, work.left * part.share / total, work.left)
            work.do(part, name, other, size, "With the time that is left")
    return work.write()


class _Work:
    """The parts that were done, and the time that is left for others."""

    def __init__(
        self,
        subject: Subject,
        card: PlanCard,
        folder: Path,
        engine: str,
        budget: float,
        started: float,
        per_text: float,
    ) -> None:
        self.subject, self.card, self.folder, self.engine = subject, card, folder, engine
        self.budget, self.started, self.per_text = budget, started, per_text
        self.earlier = sum(card.seconds.values())  # of earlier runs of the same study
        self.speed = 1.0  # how much longer parts take than counted
        self.rows: dict[str, dict[str, Any]] = {}
        self.records: dict[str, Path] = {}
        self.too_little: dict[str, str] = {}  # the parts that there was too little time for, with the reason
        self.order = [name for _, name, _ in subject.parts()]
        self.unscored = [_row(part, part.name, "left out", note=subject.unscored) for part in subject.left_out()]

    @property
    def left(self) -> float:
        """The seconds that are left, with all that was spent on opening, timing and writing."""
        return self.budget - self.earlier - (time.monotonic() - self.started)

    def is_settled(self, name: str) -> bool:
        """Whether a part was done in an earlier run, in a budget that was no smaller."""
        return name in self.card.seconds and 60 * self.card.budgets[name] >= self.budget

    def size(
        self, part: StudyPart, name: str, other: Model | None, time_for_it: float, most: float
    ) -> tuple[int, int] | None:
        """Return how many texts a part reads and which search it makes; None where there is too little time.

        It is what was decided in an earlier run, unless there is more time now and the part was reduced. Where the time
        for it is too little, it may take `most` for the fewest texts.
        """
        subject, card, per_text = self.subject, self.card, self.per_text * self.speed
        before = (card.texts[name], card.searches[name]) if name in card.seconds else None
        if before is not None and (self.is_settled(name) or not subject.reduced(part, *before)):
            return before
        freed = card.seconds.get(name, 0.0)
        found = subject.size(part, other, time_for_it + freed, per_text)
        if before is None and found is None:
            found = subject.size(part, other, most, per_text)
            found = None if found is None else (subject.least(part), found[1])
        if before is not None and (found is None or found[0] < before[0] or found == before):
            card.budgets[name] = self.budget / 60  # the time that there is now allows no more
            return before
        if before is not None:
            self.earlier -= freed
            for decided in (card.texts, card.searches, card.seconds, card.budgets):
                decided.pop(name, None)
        if found is None:
            had = duration(max(most, 0))
            texts = subject.least(part)
            self.too_little[name] = f"{had} were left for it, which is too little for {texts} texts"
        return found

    def do(self, part: StudyPart, name: str, other: Model | None, size: tuple[int, int] | None, which: str) -> None:
        """Do a part, or take what was kept of it, and write the report of what there is."""
        subject, card = self.subject, self.card
        if size is None:
            self.rows[name] = _row(part, name, "left out", note=self.too_little[name])
            return
        self.too_little.pop(name, None)
        kept = name in card.seconds
        texts = size[0] if part.share else 0
        log.log(NOTICE, "%s: %s%s.", which, part.title, f", {texts:,} texts" if texts else "")
        run, began = StudyPartRun(part, subject.values(other, *size)), time.monotonic()
        with quietly():
            found = kept and run.find() is not None
            outcome = map_jobs([Job(run, name)], self.engine, title=part.title)[0]
        took = time.monotonic() - began
        if outcome.folder is None:
            self.rows[name] = _row(part, name, "left out", seconds=took, note=outcome.reason)
            return
        self.records[name] = outcome.folder / "record"
        note = subject.reduced(part, *size)
        self.rows[name] = _row(part, name, "kept from before" if found else "done", texts, took, note)
        if kept:
            return
        card.texts[name], card.searches[name], card.seconds[name] = *size, round(took, 1)
        card.budgets[name] = self.budget / 60
        counted = subject.seconds(part, other, *size, self.per_text)
        self.speed = (self.speed + min(max(took / counted, 0.3), 5.0)) / 2 if counted > 1 else self.speed
        self.write()  # so that nothing is lost with a later part

    def write(self) -> ModelStudy:
        """Write what was decided, and the report of what there is."""
        self.folder.mkdir(parents=True, exist_ok=True)
        write_json(self.folder / PLAN, self.card.model_dump())
        names = [name for name in self.order if name in self.rows]
        rows = [*self.unscored, *(self.rows[name] for name in names)]
        records = {name: self.records[name] for name in names if name in self.records}
        return _write(self.subject, rows, records, self.folder, self.per_text * self.speed)


@contextmanager
def quietly() -> Iterator[None]:
    """Without the notes of single calls, such as how many texts are cut off; `--verbose` keeps them."""
    level = log.level
    if level != logging.INFO:
        log.setLevel(logging.ERROR)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", LayerscopeWarning)
            yield
    finally:
        log.setLevel(level)


def _base_of(model: Model) -> Model | None:
    """Return the model that a model was tuned from, as its own files name it, where it can be opened; else None."""
    names = [recorded.name] if trained(model.network) and (recorded := getattr(model.network, BASE, None)) else []
    folder = folder_of(model)
    named = stated_by_card(folder).get("base_model") if folder is not None else None
    if folder is not None and not (folder / "config.json").is_file():
        names += _of_adapter(folder)
    names += [each for each in (named if isinstance(named, list) else [named]) if isinstance(each, str)]
    for name in names:
        try:
            base = load(name)
        except LayerscopeError as error:
            log.warning(
                "%s names %s as its base, which cannot be opened (%s); give it with --base.", model.name, name, error
            )
            continue
        if base.depth == model.depth:
            return base
        log.warning(
            "%s names %s as its base, which has %d blocks and not %d.", model.name, name, base.depth, model.depth
        )
    return None


def _of_adapter(folder: Path) -> list[str]:
    """Return the base of a peft adapter in a folder, where it is one."""
    try:
        return [base_name(folder)] if peft_folder(Source(str(folder))) is not None else []
    except LayerscopeError as error:
        log.info("%s", error)
        return []


def _card(folder: Path, key: str) -> PlanCard:
    """Return what an earlier run of the same study in that folder decided, or an empty plan."""
    try:
        card = read_json(folder / PLAN, PlanCard) if (folder / PLAN).is_file() else None
    except LayerscopeError:
        card = None
    if card is not None and card.key == key:
        return card
    return PlanCard(key=key, texts={}, searches={}, seconds={}, budgets={})


def _row(
    part: StudyPart, name: str, state: str, texts: int = 0, seconds: float = 0.0, note: str = ""
) -> dict[str, Any]:
    """Return a row of the table."""
    about = {"part": name, "title": part.title, "texts": texts}
    return {**about, "seconds": round(seconds, 1), "state": state, "note": note}


def _write(
    subject: Subject, rows: Sequence[Mapping[str, Any]], records: Mapping[str, Path], folder: Path, per_text: float
) -> ModelStudy:
    """Write the report of what there is, with its first page, and return the result."""
    import pandas

    given = {part.name: part for part in parts()}
    samples = {row["part"]: subject.sampled(given[_kind(row["part"])], row["texts"]) for row in rows if row["texts"]}
    shown = {name: on_sample(read_record(place), subject, samples.get(name, "")) for name, place in records.items()}
    answers = first_page(shown, samples)
    models = [subject.model, *([subject.base] if subject.base else []), *subject.others]
    origin = provenance_of(models, None, {"tolerance": subject.tolerance, "seed": subject.seed})
    commands = commands_of(subject, shown, per_text)
    frame = pandas.DataFrame(rows)
    there = {name: folder / PARTS / name for name in records}
    result = ModelStudy(frame, origin, folder, there, commands, [answer.finding for answer in answers])
    (folder / PARTS).mkdir(parents=True, exist_ok=True)
    for name, place in records.items():
        card = there[name] / CARD
        if not card.is_file() or card.read_bytes() != (place / CARD).read_bytes():
            with atomic_folder(there[name], CARD) as staging:
                shutil.copytree(place, staging, dirs_exist_ok=True)
    about = Record.of("study", f"What {subject.model.name} is", {"parts": result})
    page = [*shown.values(), replace(about, findings=())]
    summary = Summary({}, answers, [Next(command, why) for why, command in commands.items()])
    report(page, folder / PAGE, title=f"{subject.model.name} on {subject.task.name}", summary=summary)
    return result


def _kind(name: str) -> str:
    """Return the name of the part that a record is of, without the number of the other model."""
    return name.rpartition("-")[0] or name
