"""What a reproduction will run: the profile as it was asked for, without what is missing, and its cells."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from numbers import Integral
from typing import Any

from pydantic import ValidationError

from layerscope.data.opening import task as open_task
from layerscope.errors import InputError, LayerscopeError, check_seed
from layerscope.models.load import load
from layerscope.recipes.cell import FLOAT, UNTRAINED, Cell
from layerscope.recipes.claims import claims_of
from layerscope.recipes.recipe import REFERENCE, Experiment, Profile, Recipe, Source, listed

Names = str | Sequence[str] | None
Models = Mapping[str, Any] | Names
_LISTS_OF_TASKS = ("tasks", "corpora", "resampled")


def changed(
    profile: Profile,
    models: Models,
    tasks: Names,
    seeds: int | Sequence[int] | None,
    chosen: Sequence[Experiment] = (),
) -> Profile:
    """The profile with what was asked for instead.

    Other models take the place of the profile's in all its lists; pairs are those of neighbours, or of one model with
    itself. Other tasks are what models are tuned on and probed for; where the chosen experiments have only corpora,
    they are those.
    """
    changes: dict[str, Any] = {}
    if models is not None:
        named = _named(models)
        own = {model.source: model for model in profile.models.values()}
        changes["models"] = {
            name: model if model.training else own.get(model.source, model) for name, model in named.items()
        }
        changes["lists"] = {name: _replaced(name, values, list(named)) for name, values in profile.lists.items()}
    if tasks is not None:
        changes["tasks"] = tuple(dict.fromkeys(listed(tasks)))
        lists, replaced = changes.get("lists", profile.lists), {"resampled"}
        if chosen and not any(f"{REFERENCE}tasks" in e.over.values() for e in chosen):
            replaced.add("corpora")
        changes["lists"] = {name: changes["tasks"] if name in replaced else v for name, v in lists.items()}
    if seeds is not None:
        changes["seeds"] = tuple(dict.fromkeys(_seeds(seeds)))
    return profile.model_copy(update=changes)


def _seeds(seeds: int | Sequence[int]) -> Sequence[int]:
    """The first seeds, so many, or these."""
    if isinstance(seeds, (str, float, bool)):
        raise InputError(f"seeds is {seeds!r}; it must be a whole number, or a list of whole numbers.")
    chosen = range(int(seeds)) if isinstance(seeds, (int, Integral)) else [check_seed(seed) for seed in seeds]
    if not chosen:
        raise InputError(f"seeds is {seeds}; at least one is needed.")
    return chosen


def _named(models: Mapping[str, Any] | str | Sequence[str]) -> dict[str, Source]:
    """Models by short names: `name=source`, or the source itself; in a mapping also with what they train with."""
    if isinstance(models, Mapping):
        named = {name: {"source": str(m)} if not isinstance(m, Mapping) else m for name, m in models.items()}
    else:
        pairs = [m.split("=", 1) if "=" in m else (m, m) for m in listed(models)]
        named = {name: {"source": source} for name, source in pairs}
        twice = [name for name, source in pairs if named[name]["source"] != source]
        if twice:
            raise InputError(f"Two models are called {twice[0]}; give each a name of its own: name=source.")
    if not named:
        raise InputError("models is empty; at least one is needed.")
    try:
        return {name: Source.model_validate(model) for name, model in named.items()}
    except ValidationError as error:
        first = error.errors()[0]
        place = ".".join(map(str, first["loc"]))
        raise InputError(
            f"models has an entry that is wrong at {place}: {first['msg']}. An entry is a source, or "
            '{"source": .., "training": {..}}.'
        ) from error


def _replaced(name: str, values: tuple[Any, ...], models: list[str]) -> tuple[Any, ...]:
    if name in _LISTS_OF_TASKS or not values:
        return values
    if isinstance(values[0], list):
        return tuple([a, b] for a, b in zip(models, models[1:] or models, strict=False))
    return tuple(models[: len(values)] if name == "alone" else models)


def available(
    profile: Profile, chosen: Sequence[Experiment], dtype: str = FLOAT, device: str | None = None
) -> tuple[Profile, dict[str, str]]:
    """The profile without the models and tasks of some experiments that cannot be opened here, and why for each.

    Where nothing is left of the models, or of the tasks, that is an error.
    """
    usable, missing = openable(profile, chosen, dtype, device)
    asked = _asked(chosen)
    for what, given, left in (("models", profile.models, usable.models), ("tasks", profile.tasks, usable.tasks)):
        if what in asked and not left:
            reason = next((missing[name] for name in given if name in missing), "there are none")
            raise InputError(f"None of the {what} can be opened here: {reason}")
    return usable, missing


def openable(
    profile: Profile,
    chosen: Sequence[Experiment],
    dtype: str = FLOAT,
    device: str | None = None,
    tried: dict[tuple[str, str], str] | None = None,
) -> tuple[Profile, dict[str, str]]:
    """The same, also where nothing is left.

    `tried` keeps why a source cannot be opened (empty where it can) from one call to the next: without a network every
    try of the hub takes half a minute.
    """
    known = {} if tried is None else tried
    asked = _asked(chosen)
    if UNTRAINED in asked:
        asked.add("twins")
    missing: dict[str, str] = {}
    for task in _tasks(profile, asked):
        missing |= _tried(task, ("task", task), lambda source: open_task(source).split(), known)
    for name in _models(profile, asked):
        missing |= _tried(
            name, ("model", profile.models[name].source), partial(load, dtype=dtype, device=device), known
        )
    models = {name: model for name, model in profile.models.items() if name not in missing}
    tasks = tuple(task for task in profile.tasks if task not in missing)
    lists = {name: tuple(v for v in values if not missing.keys() & _parts(v)) for name, values in profile.lists.items()}
    return profile.model_copy(update={"models": models, "tasks": tasks, "lists": lists}), missing


def _asked(chosen: Sequence[Experiment]) -> set[str]:
    """Every list and setting that some experiments run over or refer to."""
    over = {str(value).removeprefix(REFERENCE) for e in chosen for value in e.over.values()}
    return over | {name for e in chosen for name in e.asked}


def _tasks(profile: Profile, asked: set[str]) -> list[str]:
    lists = {"tasks": profile.tasks, **profile.lists}
    return list(dict.fromkeys(task for name in _LISTS_OF_TASKS if name in asked for task in lists.get(name, ())))


def _models(profile: Profile, asked: set[str]) -> list[str]:
    """The models that some lists name, in the profile's order."""
    lists = {"models": tuple(profile.models), **profile.lists}
    wanted = {part for name, values in lists.items() if name in asked for value in values for part in _parts(value)}
    return [name for name in profile.models if name in wanted]


def _parts(value: Any) -> set[Any]:
    return set(value) if isinstance(value, (list, tuple)) else {value}


def _tried(
    name: str, source: tuple[str, str], opening: Callable[[str], Any], known: dict[tuple[str, str], str]
) -> dict[str, str]:
    if source not in known:
        known[source] = ""
        try:
            opening(source[1])
        except LayerscopeError as error:
            known[source] = str(error)
    return {name: known[source]} if known[source] else {}


def cells_of(
    recipe: Recipe, chosen: Sequence[Experiment], profile: Profile, dtype: str = FLOAT, device: str | None = None
) -> Iterator[Cell]:
    """Every combination of some experiments, in the paper's order."""
    for experiment in chosen:
        claims = tuple(claims_of(recipe.paper, [experiment.name]))
        for values in experiment.combinations(profile):
            yield Cell(recipe.paper, experiment, values, profile, claims, dtype, device)
