"""Recipes: the experiments of a paper as lists of calls of public functions, read from YAML.

A call names a function of `layerscope` and its arguments. An argument that begins with `$` stands for a value: one that
the experiment runs over (`$model`, `$task`), a setting or list of the profile, all models (`$models`), or the result of
an earlier call; what follows a dot is an attribute or an entry of it (`$first.model`, `$pair.0`). `*$twins` in a list
stands for the entries of a list, and the arguments in a setting that `**` names are given too. A call with `each` is
made for every value of a list, and `$tunings.model` is then the list of the models. So everything that a recipe does, a
user can write.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import cache
from importlib.resources import files
from itertools import product
from typing import Any

import yaml
from pydantic import BaseModel, ConfigDict, Field, ValidationError, field_validator

from layerscope.errors import InputError, LayerscopeError, choose, unknown
from layerscope.recipes.layout import FigureLayout, TableLayout

REFERENCE, SPREAD, SPLICE = "$", "**", "*$"


class _Data(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid", populate_by_name=True)


class Call(_Data):
    """One call: the name of its result, the function, and the arguments by name."""

    name: str
    call: str
    arguments: dict[str, Any] = Field(alias="with", default_factory=dict)
    each: dict[str, Any] = {}  # variable: a list; the call is made for every value, and its result is a list
    title: str = ""  # what the result is called in the report, where not by its name
    shown: bool = True  # whether the result goes into the report

    def made(self, values: Mapping[str, Any], make: Callable[..., Any]) -> Any:
        """Return what `make` gives for the arguments; with `each`, a list with what it gives for every value."""
        if not self.each:
            return make(**self.resolved(values))
        (name, several), *_ = self.each.items()
        return [make(**self.resolved({**values, name: value})) for value in resolved(several, values)]

    def resolved(self, values: Mapping[str, Any]) -> dict[str, Any]:
        """Return the arguments with every reference replaced by what it stands for."""
        given = {name: resolved(value, values) for name, value in self.arguments.items() if name != SPREAD}
        spread = resolved(self.arguments.get(SPREAD, []), values)
        for more in spread if isinstance(spread, list) else [spread]:
            given |= more
        return given


class Experiment(_Data):
    """A figure or table of a paper: its calls, made for every combination of what it runs over."""

    name: str = ""
    title: str
    where: str  # in the paper
    also: tuple[str, ...] = ()  # further figures and tables that it makes, by which it can be asked for
    over: dict[str, Any] = {}  # variable: a list, or a list of the profile by its name
    given: dict[str, Any] = {}  # arguments that several calls share, by a name for `**`
    calls: tuple[Call, ...]

    @property
    def asked(self) -> set[str]:
        """The names of everything that the calls refer to."""
        each = [call.each for call in self.calls]
        return references([self.given, *each, *(call.arguments for call in self.calls)]) - {n for e in each for n in e}

    def combinations(self, profile: Profile) -> Iterator[dict[str, Any]]:
        """Yield the values of the variables, one dictionary per combination."""
        lists = {name: profile.values(values, f"{self.name}: {name}") for name, values in self.over.items()}
        for chosen in product(*lists.values()):
            yield dict(zip(lists, chosen, strict=True))


class Source(_Data):
    """A model, and the settings that its trainings alone have."""

    source: str
    training: dict[str, Any] = {}


class Profile(_Data):
    """What the experiments run on: models by a short name, tasks, seeds, further lists, and settings of the calls."""

    models: dict[str, Source]
    tasks: tuple[str, ...] = ()
    seeds: tuple[int, ...] = (0,)
    lists: dict[str, tuple[Any, ...]] = {}
    settings: dict[str, Any] = {}
    by_task: dict[str, dict[str, Any]] = {}  # settings that are others for some tasks

    @field_validator("models", mode="before")
    @classmethod
    def _named(cls, models: Any) -> Any:
        """Return models by name; a model may be given by its source alone."""
        return {name: {"source": m} if isinstance(m, str) else m for name, m in dict(models).items()}

    def values(self, given: Any, place: str) -> list[Any]:
        """Return a list as it stands, or the one that `$models`, `$tasks`, `$seeds` or a name of `lists` stands for."""
        if isinstance(given, list):
            return given
        lists = {"models": list(self.models), "tasks": self.tasks, "seeds": self.seeds, **self.lists}
        name = str(given).removeprefix(REFERENCE)
        if name not in lists:
            raise InputError(f"{place} runs over {given}, which the profile does not have; it has {', '.join(lists)}.")
        return list(lists[name])


class Recipe(_Data):
    """A paper: its experiments and the profiles they run under."""

    paper: str
    title: str
    citation: str
    profiles: dict[str, Profile]
    experiments: dict[str, Experiment]
    figures: dict[str, FigureLayout] = {}
    tables: dict[str, TableLayout] = {}

    def chosen(self, only: str | Sequence[str] | None) -> list[Experiment]:
        """Return the experiments of these names, all without any; raise InputError about a name that is not there."""
        owners: dict[str, list[str]] = {}
        for experiment, e in self.experiments.items():
            for name in (experiment, *e.also):
                owners.setdefault(name, []).append(experiment)
        wanted = list(self.experiments) if only is None else listed(only)
        if not wanted:
            raise InputError("only is empty; name at least one experiment, or leave it out for all.")
        for name in wanted:
            if name not in owners:
                raise unknown(f"experiment of {self.paper}", name, owners)
        chosen = {owner for name in wanted for owner in owners[name]}
        return [e.model_copy(update={"name": name}) for name, e in self.experiments.items() if name in chosen]

    def profile(self, name: str) -> Profile:
        """Return the profile of that name."""
        return self.profiles[choose("profile", name, self.profiles)]


def listed(names: str | Sequence[str]) -> list[str]:
    """Return names that stand in a list, or in one text with commas between them."""
    return [part.strip() for part in names.split(",")] if isinstance(names, str) else list(names)


def papers() -> tuple[str, ...]:
    """Return the papers that have a recipe."""
    entries = files("layerscope.recipes").joinpath("papers").iterdir()
    return tuple(sorted(entry.name.removesuffix(".yaml") for entry in entries if entry.name.endswith(".yaml")))


@cache
def read_recipe(paper: str) -> Recipe:
    """Return the recipe of a paper; raise InputError about a paper that has none."""
    if paper not in papers():
        raise unknown("paper", paper, papers())
    text = files("layerscope.recipes").joinpath("papers", f"{paper}.yaml").read_text(encoding="utf-8")
    try:
        return Recipe.model_validate({"paper": paper, **yaml.safe_load(text)})
    except ValidationError as error:
        first = error.errors()[0]
        place = ".".join(map(str, first["loc"]))
        raise InputError(f"The recipe {paper} is wrong at {place}: {first['msg']}.") from error


def resolved(value: Any, values: Mapping[str, Any]) -> Any:
    """Return a value of a recipe with every reference in it replaced."""
    if isinstance(value, str) and value.startswith(REFERENCE):
        name, *attributes = value.removeprefix(REFERENCE).split(".")
        if name not in values:
            raise InputError(f"A recipe asks for {value}, and there is no {name}; there are {', '.join(values)}.")
        return _attribute(values[name], attributes, value)
    if isinstance(value, list):
        parts = [(resolved(item, values) if not _spliced(item) else resolved(item[1:], values), item) for item in value]
        return [each for part, item in parts for each in (part if _spliced(item) else [part])]
    if isinstance(value, dict):
        return {name: resolved(item, values) for name, item in value.items()}
    return value


def _spliced(item: Any) -> bool:
    return isinstance(item, str) and item.startswith(SPLICE)


def references(value: Any) -> set[str]:
    """Return the names that some arguments refer to."""
    if isinstance(value, str) and value.startswith((REFERENCE, SPLICE)):
        return {value.lstrip("*").removeprefix(REFERENCE).split(".")[0]}
    parts = value.values() if isinstance(value, dict) else value if isinstance(value, list) else ()
    return {name for part in parts for name in references(part)}


def _attribute(value: Any, attributes: list[str], asked: str) -> Any:
    """Return an attribute of a value, or of its attributes in turn; raise InputError where there is none."""
    for name in attributes:
        if name.startswith("_"):
            raise InputError(f"A recipe asks for {asked}; only public attributes can be asked for.")
        if (
            isinstance(value, list) and not name.isdecimal()
        ):  # of the results of a call that was made for several values
            value = [_attribute(part, [name], asked) for part in value]
            continue
        try:
            if isinstance(value, Mapping):
                value = value[name]
            else:
                value = value[int(name)] if name.isdecimal() else getattr(value, name)
        except (AttributeError, IndexError, KeyError) as error:
            raise InputError(f"A recipe asks for {asked}, which has no {name}.") from error
    return value


def function(name: str) -> Any:
    """Return the public function of that name.

    It is looked up when it is called, so that imports still point down the house.
    """
    from importlib import import_module

    package = import_module("layerscope")
    first, *parts = name.split(".")
    found = getattr(package, first, None) if first in package.__all__ else None
    for part in parts:
        found = getattr(found, part, None) if not part.startswith("_") else None
    if not callable(found):
        raise LayerscopeError(f"A recipe calls {name}, which is not a public function of layerscope.")
    return found
