"""`ls.study`: the four questions about a model of one's own, on its own texts, in one report within some minutes.

It is a list of parts (`study.yaml`), each a list of calls of public functions, as the papers' experiments are. A part
is a job whose result is kept, so that the same study goes on where it was stopped. How many texts each part reads
follows from what a forward pass takes here and from the time that is left.
"""

from __future__ import annotations

import logging
import math
import shlex
import shutil
import time
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from functools import cache, cached_property, lru_cache
from importlib.resources import files
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar

import yaml

from layerscope.cutting.plan import LayerPlan, integers, spans
from layerscope.data import Task, TaskSource
from layerscope.data import task as open_task
from layerscope.drawing.captions import listed, numbers
from layerscope.engine import Job, check_engine, map_jobs
from layerscope.errors import NOTICE, InputError, LayerscopeError, LayerscopeWarning, check_seed, log
from layerscope.evaluation.evaluate import evaluate, make_evaluator, select_evaluator
from layerscope.metrics import higher_is_better
from layerscope.models import Model, ModelSource, load
from layerscope.models.lineage import BASE, trained
from layerscope.models.load import stated_by_card
from layerscope.models.sources import folder_of, short_names
from layerscope.progress import duration
from layerscope.recipes.recipe import Experiment, function
from layerscope.reporting.page import report
from layerscope.reporting.summary import Next, PlacedFinding, Summary, by_weight
from layerscope.results import Finding, Record, Result, provenance_of, read_record, write_record
from layerscope.results.finding import ANSWER, number
from layerscope.results.records import CARD
from layerscope.similarity.influence import block_influence
from layerscope.store import Artifact, Saved, atomic_folder, check_name, digest, read_json, write_json
from layerscope.version import __version__

if TYPE_CHECKING:
    import pandas

    from layerscope.drawing.figure import Figure

PAGE, PLAN, PARTS = "report.html", "study.json", "parts"
MOST = 5  # findings on the first page
LEAST_TEXTS, MOST_TEXTS = 40, 4000
_FRONT = ("score", "changes", "smaller", "tuning", "other", "layers", "cuts")  # whose answers come first
# What advice tries, the most first: its rules (None: the usual ones), the plans that a rule which searches may
# evaluate, and about how many forward passes that makes for every block of the model.
_SEARCHES: tuple[tuple[tuple[str, ...] | None, int, float], ...] = (
    (None, 256, 7.0),
    (("angular", "greedy", "last", "random"), 64, 3.5),
    (("angular", "last", "random"), 0, 1.2),
)
_LONGEST = 128  # tokens of a text that is read for its states
_PILOT = 0.7  # seconds that the pilot runs at least
_FIXED, _TIMED = 1.5, 10.0  # seconds of opening, drawing and writing of a call; of measuring latencies
_HEALING = 300  # steps of a healing
_BACKWARD = 3  # forward passes that a step of training costs

# About how many forward passes over `rows` texts a call makes, beside those of one model: (settings, blocks) -> passes.
_PASSES: dict[str, Callable[[Mapping[str, Any], int], float]] = {
    "describe": lambda s, depth: 0,
    "evaluate": lambda s, depth: 1,
    "tuning_changes": lambda s, depth: 6 + 2 * s["attended"] / max(s["limit"], 1),  # states, and both splits for probes
    "compare": lambda s, depth: 1 + (s["other"] is not None),
    "layer_blocks": lambda s, depth: 0,
    "truncation_curve": lambda s, depth: 4,  # where it is patched; less where not
    "skip_map": lambda s, depth: depth / 2,
    "advise": lambda s, depth: _SEARCHES[s["search"]][2] * depth,
    "recommend": lambda s, depth: 3,
    "alignment_study": lambda s, depth: 4,
    "injection_study": lambda s, depth: 5,
}


class StudyPart(Experiment):
    """A part of a study: its calls, what must be there for them, and its share of the time."""

    where: str = ""
    kind: str  # the command that does the same
    needs: tuple[str, ...] = ()
    share: float


@cache
def parts() -> tuple[StudyPart, ...]:
    """Return the parts of a study, in the order of its report."""
    text = files("layerscope.recipes").joinpath("study.yaml").read_text(encoding="utf-8")
    return tuple(StudyPart(name=name, **fields) for name, fields in yaml.safe_load(text).items())


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
        title = f"{self.part.title}: {short_names([self.values['model'].name])[0]}"
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
    """What a study has decided, by the names of its parts: how many texts, which search, and how long they took."""

    key: str
    texts: dict[str, int]
    searches: dict[str, int]
    seconds: dict[str, float]


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
    beside = [load(other) for other in ([others] if isinstance(others, (str, Path, Model)) else others)]
    origin = load(base) if base is not None else _base_of(opened)
    folder = Path(out if out is not None else f"study-{Path(opened.name).name.replace(':', '-')}")
    check_name(folder)
    subject = _Subject(opened, data, origin, beside, tolerance, split, limit, max_length, seed)
    planned = list(subject.parts())
    asked = (opened, data, origin, beside, str(tolerance), split, limit, max_length)
    card = _card(folder, digest(*(str(_described(each)) for each in asked)))
    with quietly():
        per_text = subject.pilot()
    log.log(
        logging.WARNING if budget >= 1 else logging.INFO,
        "study: %d parts within %s; a forward pass takes %.3g ms for a text here.",
        *(len(planned), duration(60 * budget), 1000 * per_text),
    )
    left = 60 * budget - sum(card.seconds.values()) - (time.monotonic() - started)
    total = sum(part.share for part, _, _ in planned)
    rows = subject.left_out()
    records: dict[str, Path] = {}
    speed = 1.0  # how much longer parts take than counted
    for place, (part, name, other) in enumerate(planned, 1):
        time_for_it, total = left * part.share / total if part.share else 0.0, total - part.share
        kept = name in card.seconds
        size = (card.texts[name], card.searches[name]) if kept else None
        size = size or subject.size(part, other, time_for_it, per_text * speed)
        if size is None:
            why = f"{duration(max(time_for_it, 0))} were left for it, which is too little for {LEAST_TEXTS} texts"
            rows.append(_row(part, name, "left out", note=why))
            continue
        log.log(NOTICE, "%d of %d: %s, %s texts.", place, len(planned), part.title, f"{size[0]:,}")
        run, began = StudyPartRun(part, subject.values(other, *size)), time.monotonic()
        with quietly():
            found = kept and run.find() is not None
            outcome = map_jobs([Job(run, name)], engine, title=part.title)[0]
        took = time.monotonic() - began
        left -= took
        if outcome.folder is None:
            rows.append(_row(part, name, "left out", seconds=took, note=outcome.reason))
            continue
        state, records[name] = "kept from before" if found else "done", outcome.folder / "record"
        rows.append(_row(part, name, state, size[0], took, subject.reduced(part, *size)))
        if not kept:
            card.texts[name], card.searches[name], card.seconds[name] = *size, round(took, 1)
            counted = subject.seconds(part, other, *size, per_text)
            speed = (speed + min(max(took / counted, 0.3), 5.0)) / 2 if counted > 1 else speed
        folder.mkdir(parents=True, exist_ok=True)
        write_json(folder / PLAN, card.model_dump())
        _write(subject, rows, records, folder, per_text * speed)  # so that nothing is lost with a later part
    return _write(subject, rows, records, folder, per_text * speed)


@dataclass(frozen=True)
class _Subject:
    """What is studied: the model on its texts, its base, other models, and what was asked for."""

    model: Model
    task: Task
    base: Model | None
    others: Sequence[Model]
    tolerance: float | str
    split: str | None
    limit: int | None
    max_length: int | None
    seed: int

    @cached_property
    def unscored(self) -> str:
        """Why the model's head cannot be scored on the texts; empty where it can."""
        try:
            make_evaluator(self.model, self.task, split=self.split, limit=2, max_length=self.max_length)
        except LayerscopeError as error:
            return str(error)
        return ""

    @property
    def scored(self) -> bool:
        return not self.unscored

    @cached_property
    def running(self) -> bool:
        """Whether the texts are scored as running text."""
        return self.scored and select_evaluator(self.model, self.task)[1].kind == "text"

    @cached_property
    def twin(self) -> str | None:
        """The untrained twin, where a score of running text needs one to be set beside."""
        return f"random:{self.model.name}" if self.running and folder_of(self.model) is not None else None

    @cached_property
    def whole(self) -> int:
        """How many texts the split has that is scored."""
        return len(self.task.split(self.split))

    @property
    def available(self) -> int:
        """How many of them are read at most."""
        return min(self.whole, MOST_TEXTS, self.limit or MOST_TEXTS)

    def sampled(self, part: StudyPart, texts: int) -> str:
        """Return which sample of the texts a part read, in words; nothing where it read all, or none."""
        if not part.share or texts >= self.whole:
            return ""
        return f"a sample of {texts:,} of {self.whole:,} texts"

    def parts(self) -> Iterator[tuple[StudyPart, str, Model | None]]:
        """Yield the parts that make sense, the name of each, and the other model that it is about."""
        classes = self.task.labelled and not self.task.regression and self.task.kind in ("single", "pair")
        there = {
            "base": self.base is not None,
            "other": bool(self.others),
            "scored": self.scored,
            "classes": classes and not self.running,
            "trained": len(self.task.splits) > 1,
            "twin": self.twin is not None,
        }
        for part in parts():
            if not all(there[need] for need in part.needs):
                continue
            if part.over:
                for number_, other in enumerate(self.others, 1):
                    yield part, f"{part.name}-{number_}", other
            else:
                yield part, part.name, None

    def left_out(self) -> list[dict[str, Any]]:
        """Return the rows of parts that a head could have and this one cannot: it does not fit the texts."""
        if self.scored or not self.model.has_head:
            return []
        log.warning("Nothing is scored: %s", self.unscored)
        left = [part for part in parts() if "scored" in part.needs and "twin" not in part.needs]
        return [_row(part, part.name, "left out", note=self.unscored) for part in left]

    def values(self, other: Model | None, texts: int, search: int) -> dict[str, Any]:
        """Return what the calls can refer to."""
        length = self.max_length or _LONGEST
        alike = other is not None and other.depth == self.model.depth
        return {
            "model": self.model,
            "base": self.base,
            "other": other,
            "twin": self.twin,
            "start": self.base or self.model,
            "task": self.task,
            "seed": self.seed,
            "tolerance": self.tolerance,
            "pool": "cls" if self.model.head == "classes" else "mean",
            "limit": texts,
            "learned": texts,
            "length": length,
            "attended": min(texts, 60),
            "search": search,
            "rules": _SEARCHES[search][0],
            "evaluations": _SEARCHES[search][1],
            "target_layers": "same" if alike else "every",
            "reading": {"limit": texts, "max_length": length},
            "scored": {"task": self.task, "split": self.split, "limit": texts, "max_length": self.max_length},
        }

    def seconds(self, part: StudyPart, other: Model | None, texts: int, search: int, per_text: float) -> float:
        """Return about how long a part takes with so many texts, where a forward pass takes so long for one."""
        values = self.values(other, texts, search)
        total = 0.0
        for call in part.calls:
            passes = _PASSES[call.call](values, self.model.depth)
            total += _FIXED * (passes > 0) + _TIMED * (call.call == "advise") + passes * texts * per_text
        return total

    def size(self, part: StudyPart, other: Model | None, time_for_it: float, per_text: float) -> tuple[int, int] | None:
        """Return how many texts a part may read in some time, and which search it makes; None where it is too little.

        Rules and evaluations go first, then texts: a score of few texts decides nothing.
        """
        least = min(LEAST_TEXTS, self.available)
        best: tuple[int, int] | None = None
        for search in range(len(_SEARCHES)) if _advises(part) else (0,):
            fixed = self.seconds(part, other, 0, search, per_text)
            each = (self.seconds(part, other, 1000, search, per_text) - fixed) / 1000
            texts = self.available if each <= 0 else int(min(self.available, (time_for_it - fixed) / each))
            if texts >= least and (best is None or best[0] < min(_ENOUGH, self.available)):
                best = (_rounded(texts) if texts < self.available else texts, search)
        return (least, 0) if best is None and not part.share else best

    def reduced(self, part: StudyPart, texts: int, search: int) -> str:
        """Return what was reduced to hold the time, in words."""
        words = []
        if sample := self.sampled(part, texts):
            words.append(sample)
        if search and _advises(part):
            rules, evaluations, _ = _SEARCHES[search]
            words.append(f"the rules {listed(rules or ())}, with at most {evaluations} plans searched")
        return listed(words) if words else ""

    def pilot(self) -> float:
        """Return how long a forward pass takes for one text, measured on some of them."""
        count, took = min(8, self.available), 0.0
        while True:
            began = time.monotonic()
            if self.scored:
                evaluate(self.model, self.task, split=self.split, limit=count, max_length=self.max_length)
            else:
                block_influence(self.model, self.task, split=self.split, limit=count, max_length=_LONGEST)
            before, took = took, time.monotonic() - began
            if (took >= _PILOT and before) or count >= self.available:
                return took / count
            count = min(4 * count, self.available)


_ENOUGH = 400  # texts from which on more plans are worth more than further texts


def _advises(part: StudyPart) -> bool:
    return any(call.call == "advise" for call in part.calls)


def _rounded(texts: int) -> int:
    """Return a number of texts with two digits that count."""
    step = 10 ** max(int(math.log10(texts)) - 1, 0)
    return texts // step * step


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


def _card(folder: Path, key: str) -> PlanCard:
    """Return what an earlier run of the same study in that folder decided, or an empty plan."""
    try:
        card = read_json(folder / PLAN, PlanCard) if (folder / PLAN).is_file() else None
    except LayerscopeError:
        card = None
    return card if card is not None and card.key == key else PlanCard(key=key, texts={}, searches={}, seconds={})


def _row(
    part: StudyPart, name: str, state: str, texts: int = 0, seconds: float = 0.0, note: str = ""
) -> dict[str, Any]:
    """Return a row of the table."""
    about = {"part": name, "title": part.title, "texts": texts}
    return {**about, "seconds": round(seconds, 1), "state": state, "note": note}


def _write(
    subject: _Subject, rows: Sequence[Mapping[str, Any]], records: Mapping[str, Path], folder: Path, per_text: float
) -> ModelStudy:
    """Write the report of what there is, with its first page, and return the result."""
    import pandas

    shown = {name: read_record(place) for name, place in records.items()}
    answers = [
        PlacedFinding(finding, list(shown).index(name))
        for front in _FRONT
        for name in shown
        if name.partition("-")[0] == front and (finding := _answer(shown[name])) is not None
    ][:MOST]
    models = [subject.model, *([subject.base] if subject.base else []), *subject.others]
    origin = provenance_of(models, None, {"tolerance": subject.tolerance, "seed": subject.seed})
    commands = _commands(subject, shown, per_text)
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


def _answer(record: Record) -> Finding | None:
    """Return what a record answers first."""
    return next((finding for finding in by_weight(record) if finding.weight == ANSWER), None)


def _commands(subject: _Subject, shown: Mapping[str, Record], per_text: float) -> dict[str, str]:
    """Return the commands to go on with, by what they do, filled in with what was found."""
    commands: dict[str, str] = {}
    model, words = subject.model.name, subject.task.words
    if "smaller" in shown:
        row = _smaller(shown["smaller"].tables["advice"])
        if row is not None:
            gone = spans(LayerPlan(integers(row["blocks"])).removed(subject.model.depth)).replace(" ", "")
            scored = f"{row['metric']} {number(row['score'])}"
            verdict = f"within the tolerance: {scored}" if row["chosen"] else f"loses least: {scored}"
            why = f"Cut it (without {gone}, {verdict}), and save it"
            commands[why] = shlex.join(["layerscope", "skip", model, "--blocks", gone, *words, "--save", "smaller"])
            steps = duration(_HEALING * 16 * _BACKWARD * per_text)
            why = f"Heal the cut model ({_HEALING} steps take about {steps} here)"
            line = ["layerscope", "heal", model, "--without", gone, *words, "--steps", f"{_HEALING}", "-o", "healed"]
            commands[why] = shlex.join(line)
    if "tuning" in shown and (step := shown["tuning"].next) is not None:
        start = (subject.base or subject.model).name
        line = ["layerscope", "tune", start, *words, *step.arguments, "-o", "tuned"]
        commands["Tune only the layers worth tuning"] = shlex.join(line)
    return commands


def _smaller(table: pandas.DataFrame) -> Mapping[Any, Any] | None:
    """Return the row of the advised plan, or of the one that loses least where none is within the tolerance."""
    chosen = table[table["chosen"] & (table["removed"] > 0)]
    if len(chosen):
        return dict(chosen.iloc[0])
    rest = table[table["savable"] & (table["removed"] > 0) & table["chosen_on"].notna()]
    if not len(rest):
        return None
    up = higher_is_better(str(rest["metric"].iloc[0]))
    return dict(rest.sort_values("chosen_on", ascending=not up, kind="stable").iloc[0])
