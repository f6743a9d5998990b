"""Cells: one combination of an experiment, as a job whose records and statistics are kept."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, ClassVar

from layerscope.data.task import task as open_task
from layerscope.models.load import load
from layerscope.recipes.claims import Claim, Statistic
from layerscope.recipes.recipe import REFERENCE, Experiment, Profile, function
from layerscope.recipes.statistics import statistic
from layerscope.results import Record, Result, write_record
from layerscope.store import write_json
from layerscope.store.producers import Artifact
from layerscope.version import __version__

STATISTICS = "statistics.json"


@dataclass(frozen=True)
class Cell(Artifact):
    """The calls of an experiment for one combination of models, tasks and seeds."""

    kind: ClassVar[str] = "reproduction"
    paper: str
    experiment: Experiment
    values: Mapping[str, Any]
    profile: Profile
    claims: tuple[Claim, ...] = ()

    @property
    def name(self) -> str:
        """What the job is called in messages."""
        said = ", ".join(_said(value) for value in self.values.values())
        return f"{self.paper} {self.experiment.name}" + (f" ({said})" if said else "")

    def spec(self) -> dict[str, Any]:
        """The calls, everything they are called with, and the version of the package that answers them."""
        return {
            "layerscope": __version__,
            "paper": self.paper,
            "calls": [call.model_dump() for call in self.experiment.calls],
            "claims": [claim.model_dump() for claim in self.claims],
            "values": {name: self._described(value) for name, value in self.values.items()},
            "settings": {name: self.profile.settings.get(name) for name in sorted(self._settings())},
        }

    def build(self, folder: Path) -> None:
        """Make the calls, write a record of each result that is shown, and the statistics of the claims."""
        values = {**self.profile.settings, **{name: self._source(value) for name, value in self.values.items()}}
        for call in self.experiment.calls:
            values[call.name] = function(call.call)(**call.resolved(values))
            if call.shown:
                write_record(folder / call.name, self._record(call.name, call.call, values[call.name]))
        said = {claim.name: asdict(_tried(claim, values)) for claim in self.claims}
        write_json(folder / STATISTICS, {name: _plain(entry) for name, entry in said.items()})

    def _record(self, name: str, kind: str, value: Any) -> Record:
        results = dict(value) if isinstance(value, Mapping) else {name: value}
        title = f"{self.experiment.title}: {', '.join(_said(v) for v in self.values.values())}".rstrip(": ")
        return Record.of(kind, title, {n: r for n, r in results.items() if isinstance(r, Result)})

    def _settings(self) -> set[str]:
        """The settings that the calls use."""
        asked = {part for call in self.experiment.calls for part in _references(call.arguments)}
        return {name for name in asked if name in self.profile.settings}

    def _source(self, value: Any) -> Any:
        """A model's short name as its source; lists part by part."""
        if isinstance(value, (list, tuple)):
            return [self._source(part) for part in value]
        return self.profile.models.get(value, value) if isinstance(value, str) else value

    def _described(self, value: Any) -> Any:
        """What a value is, as keys have it: weights of models, rows of tasks."""
        if isinstance(value, (list, tuple)):
            return [self._described(part) for part in value]
        if isinstance(value, str) and value in self.profile.models:
            return load(self.profile.models[value]).spec()
        if isinstance(value, str) and value in self.profile.tasks:
            opened = open_task(value)
            return {**opened.spec(), "splits": {name: opened.split(name).spec() for name in opened.splits}}
        return value


def _tried(claim: Claim, values: Mapping[str, Any]) -> Statistic:
    return statistic(claim.statistic)(values, **claim.options)


def _references(value: Any) -> set[str]:
    if isinstance(value, str) and value.startswith(REFERENCE):
        return {value.removeprefix(REFERENCE).split(".")[0]}
    parts = value.values() if isinstance(value, dict) else value if isinstance(value, list) else ()
    return {name for part in parts for name in _references(part)}


def _plain(entry: Mapping[str, Any]) -> dict[str, Any]:
    """NaN as JSON has it."""
    return {name: None if isinstance(v, float) and math.isnan(v) else v for name, v in entry.items()}


def _said(value: Any) -> str:
    return " and ".join(map(str, value)) if isinstance(value, (list, tuple)) else str(value)
