"""Cells: one combination of an experiment, as an artifact that holds its records and what they say of the claims."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from functools import cache, cached_property
from pathlib import Path
from typing import Any, ClassVar

from layerscope.data.load import task as open_task
from layerscope.models.load import Model, load
from layerscope.recipes.claims import Claim, Statistic, verdict
from layerscope.recipes.recipe import Call, Experiment, Profile, function, references, resolved
from layerscope.recipes.statistics.learning import unlearned
from layerscope.registry import STATISTICS, UNITS
from layerscope.results import Finding, Record, Result, write_record
from layerscope.results.finding import SUPPORT
from layerscope.store import Artifact, Saved, read_json, write_json
from layerscope.tuning.training import Training
from layerscope.version import __version__

_FILE = "statistics.json"
RECORDS = "records"
TRAININGS = "trainings"  # the value that has the setting `training` for each model of a pair
UNTRAINED = "untrained"  # the value that stands for the untrained models of the list `twins`
FLOAT, RANDOM = "float32", "random:"  # the usual float type; how sources of untrained models begin
_TASKS = ("task", "corpus")
_SPLITS = ("train", "validation")  # what recipes learn from and score; a test split need not be there


class StatisticsCard(Saved):
    """The statistics of a run, by the names of their claims."""

    statistics: dict[str, dict[str, Any]]


@dataclass(frozen=True)
class ExperimentRun(Artifact):
    """The calls of an experiment for one combination of models, tasks and seeds."""

    kind: ClassVar[str] = "reproduction"
    version: ClassVar[int] = 5  # raise it when a statistic or a column comes to mean something else
    paper: str
    experiment: Experiment
    chosen: Mapping[str, Any]  # what the experiment runs over: names of models, tasks, pairs, seeds
    profile: Profile
    claims: tuple[Claim, ...] = ()
    dtype: str = FLOAT  # the float type that models are opened in
    device: str | None = None  # where they run; it changes results by rounding only

    @property
    def name(self) -> str:
        """What the job is called in messages."""
        return f"{self.paper} {self.experiment.name}" + (f" ({self.label})" if self.label else "")

    @property
    def label(self) -> str:
        """The combination in words."""
        return ", ".join(f"seed {v}" if name == "seed" else _in_words(v) for name, v in self.chosen.items())

    @property
    def subject(self) -> str:
        """The model or models that the run is about: those of the combination, or all of the profile."""
        models = [_in_words(v) for name, v in self.chosen.items() if name not in (*_TASKS, "seed")]
        return ", ".join(models) or "all models"

    @property
    def models(self) -> list[str]:
        """The short names of the models that the calls take as whole lists, without those of the combination."""
        asked, lists = self._asked, {"models": tuple(self.profile.models), **self.profile.lists}
        lists[UNTRAINED] = lists.get("twins", ())
        named = {part for name, values in lists.items() if name in asked for part in values if isinstance(part, str)}
        return [name for name in self.profile.models if name in named]

    def spec(self) -> dict[str, Any]:
        """Return the calls, everything they are called with, and the version of the package that answers them."""
        return self._spec

    @cached_property
    def _spec(self) -> dict[str, Any]:  # models are opened for it, and it is asked for several times
        asked = self._asked
        every = {"models": list(self.profile.models), "tasks": list(self.profile.tasks), **self.profile.lists}
        if UNTRAINED in asked:
            asked.add("twins")
        lists = {name: list(values) for name, values in every.items() if name in asked}
        return {
            "layerscope": __version__,
            "given": self.experiment.given,
            "calls": [call.model_dump() for call in self.experiment.calls],
            "claims": [claim.model_dump() for claim in self.claims],
            "values": {name: self._described(name, value) for name, value in {**lists, **self.chosen}.items()},
            "settings": {name: value for name, value in sorted(self._settings.items()) if name in asked},
            "seeds": list(self.profile.seeds) if "seeds" in asked else None,
        }

    def build(self, folder: Path) -> None:
        """Make the calls, write a record of each result that is shown, and the statistics of the claims."""
        values = self._opened(self.values())
        for call in self.experiment.calls:
            values[call.name] = call.made(values, function(call.call))
        decided = [(claim, self._decided(claim, values)) for claim in self.claims]
        for call in self.experiment.calls:
            record = self._record(call, values[call.name], decided) if call.shown else None
            if record is not None:
                write_record(folder / RECORDS / call.name, record)
        statistics = {claim.name: _plain(asdict(value)) for claim, value in decided}
        write_json(folder / _FILE, {"statistics": statistics})

    def statistics(self, folder: Path) -> dict[str, Statistic]:
        """Return the statistics that a finished run holds."""
        entries = read_json(folder / _FILE, StatisticsCard).statistics
        # JSON has no NaN: what was undefined was written as null.
        numbers: dict[str, dict[str, Any]] = {
            name: {key: math.nan if value is None else value for key, value in entry.items()}
            for name, entry in entries.items()
        }
        return {name: Statistic(**fields) for name, fields in numbers.items()}

    def records(self, folder: Path) -> list[Path]:
        """Return the records of a finished run, in the order of its calls."""
        places = [folder / RECORDS / call.name for call in self.experiment.calls]
        return [place for place in places if place.is_dir()]

    def title(self, name: str) -> str:
        """Return the title of a call's record, with the names of this sweep, which the key of the run does not have."""
        where = self.experiment.where
        call = next(call for call in self.experiment.calls if call.name == name)
        what = call.title or name.replace("_", " ")
        return f"{where[0].upper()}{where[1:]}. {self.experiment.title}: {self.label}; {what}"

    def values(self) -> dict[str, Any]:
        """Return what the calls can refer to before any is made."""
        lists = {name: self._source(list(values)) for name, values in self.profile.lists.items()}
        lists["models"] = [model.source for model in self.profile.models.values()]
        lists["tasks"] = list(self.profile.tasks)
        lists[UNTRAINED] = [f"{RANDOM}{source}" for source in lists.get("twins", ())]
        chosen = {name: self._source(value) for name, value in self.chosen.items()}
        values = {**self._settings, "seeds": list(self.profile.seeds), **lists, **chosen}
        return {**values, **{name: resolved(given, values) for name, given in self.experiment.given.items()}}

    @property
    def _asked(self) -> set[str]:
        """The names of everything that calls and claims refer to."""
        return self.experiment.asked | references([claim.options for claim in self.claims])

    def _opened(self, values: Mapping[str, Any]) -> dict[str, Any]:
        """Return the values with their models opened in the float type and on the device that were asked for.

        Where neither was asked for, every call opens its models by itself.
        """
        if self.device is None and self.dtype == FLOAT:
            return dict(values)
        sources = {model.source for model in self.profile.models.values()}

        @cache
        def opened(source: str) -> Model:
            return load(source, dtype=self.dtype, device=self.device)

        def replaced(value: Any) -> Any:
            if isinstance(value, Mapping):
                return {name: replaced(part) for name, part in value.items()}
            if isinstance(value, (list, tuple)):
                return [replaced(part) for part in value]
            named = isinstance(value, str) and value.removeprefix(RANDOM) in sources
            return opened(value) if named else value

        asked = self._asked
        return {name: replaced(value) if name in asked else value for name, value in values.items()}

    def _decided(self, claim: Claim, values: Mapping[str, Any]) -> Statistic:
        """Return the statistic of a claim, or the reason why there is none.

        A tuned model that has not learned shows nothing, nor does a model beside itself show how two differ.
        """
        pairs = [self._source(value) for value in self.chosen.values() if isinstance(value, (list, tuple))]
        if twice := [pair[0] for pair in pairs if len(pair) > len(set(pair))]:
            return Statistic.missing(f"it is about two models, and {twice[0]} was given as both")
        reasons = [unlearned(value) for value in values.values() if isinstance(value, Training)]
        if any(reasons):
            return Statistic.missing(next(filter(None, reasons)))
        return STATISTICS[claim.statistic](values, **resolved(claim.options, values))

    def _record(self, call: Call, value: Any, decided: Sequence[tuple[Claim, Statistic]]) -> Record | None:
        """Return the record of a call's results with its claims as findings; None where it gave no result."""
        results = dict(value) if isinstance(value, Mapping) else {call.name: value}
        results = {key: result for key, result in results.items() if isinstance(result, Result)}
        if not results:
            return None
        # An interval decides a claim either way; what is undecided is not sure, what is not testable has no evidence.
        decides = {"holds": True, "does not hold": True, "undecided": False}
        claims = [
            Finding(sentence(claim, value), "", decides.get(verdict(claim, value)), SUPPORT)
            for claim, value in decided
            if claim.about == call.name and not claim.over
        ]
        return Record.of(call.call, self.title(call.name), results, findings=claims)

    @property
    def _settings(self) -> dict[str, Any]:
        """The profile's settings, as the task of this run has them, and those of trainings as its model has."""
        settings, models = dict(self.profile.settings), self.profile.models
        settings |= self.profile.by_task.get(str(self.chosen.get("task")), {})
        usual = settings.get("training", {})
        for value in self.chosen.values():
            if isinstance(value, str) and value in models:
                settings["training"] = {**usual, **models[value].training}
            elif isinstance(value, (list, tuple)):
                settings[TRAININGS] = [{**usual, **models[name].training} for name in value if name in models]
        return settings

    def _source(self, value: Any) -> Any:
        """Return the source of a model's short name; lists part by part, other values as they are."""
        if isinstance(value, (list, tuple)):
            return [self._source(part) for part in value]
        model = self.profile.models.get(value) if isinstance(value, str) else None
        return value if model is None else model.source

    def _described(self, name: str, value: Any) -> Any:
        """Return what decides a value, for keys of the store: weights of models, rows of tasks."""
        if isinstance(value, (list, tuple)):
            return [self._described(name, part) for part in value]
        if isinstance(value, str) and value in self.profile.models:
            return load(self.profile.models[value].source, dtype=self.dtype, device=self.device).spec()
        if isinstance(value, str) and name in (*_TASKS, "tasks"):
            opened = open_task(value)
            used = [part for part in _SPLITS if part in opened.splits] or list(opened.splits)
            return {**opened.spec(), "splits": {part: opened.split(part).spec() for part in used}}
        return value


def sentence(claim: Claim, value: Statistic) -> str:
    """Return what came out for a claim, in words."""
    if value.reason:
        return f"Claim: {claim.says} Not testable: {value.reason}."
    bounds = "no interval" if math.isnan(value.low) else f"{value.low:.3g} to {value.high:.3g}"
    number = f"{UNITS[claim.statistic]} {value.value:.3g} ({bounds})"
    outcome = f"{verdict(claim, value).capitalize()}: {number}, {claim.threshold} is asked"
    paper = f" The paper's number: {claim.number}." if claim.number else ""
    return f"Claim: {claim.says} {outcome}{f'; {value.note}' if value.note else ''}. Refuted if: {claim.refuted}{paper}"


def _plain(entry: Mapping[str, Any]) -> dict[str, Any]:
    """Return the fields of a statistic for JSON: what is not a finite number becomes null."""
    return {name: None if isinstance(v, float) and not math.isfinite(v) else v for name, v in entry.items()}


def _in_words(value: Any) -> str:
    """Return a value of a combination in words; the parts of a pair are joined."""
    return " and ".join(map(str, value)) if isinstance(value, (list, tuple)) else str(value)
