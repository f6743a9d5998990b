"""`ls.reproduce`: runs the experiments of a paper as jobs, and gives their records and a verdict on every claim.

What will run follows from the profile as it was asked for, without models and tasks that cannot be opened here.
"""

from __future__ import annotations

import logging
import re
import shutil
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from numbers import Integral
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pydantic import ValidationError

from layerscope.data.load import task as open_task
from layerscope.engine import Job, check_engine, map_jobs
from layerscope.errors import MOST_SEEDS, InputError, LayerscopeError, check_seed, log
from layerscope.models.devices import check_opening
from layerscope.models.load import load
from layerscope.models.sources import short_names
from layerscope.progress import duration
from layerscope.recipes.claims import claims_of
from layerscope.recipes.experiment_run import FLOAT, UNTRAINED, ExperimentRun
from layerscope.recipes.layout import Assembly, Layout
from layerscope.recipes.paper_page import FIGURES, INDEX, TABLES, write_paper
from layerscope.recipes.recipe import REFERENCE, Experiment, Profile, Recipe, Source, listed, papers, read_recipe
from layerscope.recipes.reproduction import Reproduction, verdicts
from layerscope.recipes.runtime import seconds_of
from layerscope.reporting.page import report
from layerscope.results import Record, provenance_of, read_record, record_folder
from layerscope.results.records import CARD
from layerscope.store import check_free, check_name, read_object, taken, write_json

if TYPE_CHECKING:
    import pandas
    import torch


Names = str | Sequence[str] | None
Models = Mapping[str, Any] | Names
_LISTS_OF_TASKS = ("tasks", "corpora", "resampled")


def changed(
    profile: Profile,
    models: Models,
    tasks: Names,
    seeds: int | Sequence[int] | None,
    chosen: Sequence[Experiment] = (),
    names: Names = None,
) -> Profile:
    """Return the profile with what was asked for instead.

    Other models take the place of the profile's in all its lists; pairs are those of neighbours, or of one model with
    itself. Other tasks are what models are tuned on and probed for; where the chosen experiments have only corpora,
    they are those.
    """
    changes: dict[str, Any] = {}
    if models is None and names is not None:
        raise InputError(
            "names (--names) are those of other models than the profile's; name these with models (--models)."
        )
    if models is not None:
        named = _named(models, names)
        by_source = {model.source: model for model in profile.models.values()}
        changes["models"] = {
            name: model if model.training else by_source.get(model.source, model) for name, model in named.items()
        }
        changes["lists"] = {name: _replaced(name, values, list(named)) for name, values in profile.lists.items()}
    if tasks is not None:
        changes["tasks"] = tuple(dict.fromkeys(listed(tasks)))
        lists, replaced = changes.get("lists", profile.lists), {"resampled"}
        if chosen and "tasks" not in _asked(chosen):
            replaced.add("corpora")
        changes["lists"] = {name: changes["tasks"] if name in replaced else v for name, v in lists.items()}
    if seeds is not None:
        changes["seeds"] = tuple(dict.fromkeys(_seeds(seeds)))
    return profile.model_copy(update=changes)


def _seeds(seeds: int | Sequence[int]) -> Sequence[int]:
    """Return as many seeds as asked for, counted from 0, or those that are named."""
    if isinstance(seeds, (str, float, bool)):
        raise InputError(f"seeds is {seeds!r}; it must be a whole number, or a list of whole numbers.")
    if isinstance(seeds, (int, Integral)) and seeds > MOST_SEEDS:
        raise InputError(f"seeds is {seeds}; at most {MOST_SEEDS:,} can be asked for.")
    chosen = range(int(seeds)) if isinstance(seeds, (int, Integral)) else [check_seed(seed) for seed in seeds]
    if not chosen:
        raise InputError(f"seeds is {seeds}; at least one is needed.")
    return chosen


def _named(models: Mapping[str, Any] | str | Sequence[str], names: Names = None) -> dict[str, Source]:
    """Return models by short names: those given, or `name=source`, or the shortest that tell the sources apart.

    In a mapping models may have their training too.
    """
    if names is not None:
        models = _called(models, listed(names))
    if isinstance(models, Mapping):
        named = {name: {"source": str(m)} if not isinstance(m, Mapping) else m for name, m in models.items()}
    else:
        sources = listed(models)
        plain = [source for source in sources if "=" not in source]
        short = dict(zip(plain, short_names(plain), strict=True))
        pairs = [source.split("=", 1) if "=" in source else (short[source], source) for source in sources]
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


def _called(models: Mapping[str, Any] | str | Sequence[str], names: Sequence[str]) -> dict[str, Any]:
    """Return models by the names that were given for them, which must be as many, and have no other name."""
    sources = [] if isinstance(models, Mapping) else listed(models)
    if not sources or any("=" in source for source in sources):
        raise InputError(
            "The models have names already (name=source, or a mapping), and names (--names) gives others; give one or "
            "the other."
        )
    if len(names) != len(sources):
        raise InputError(
            f"names (--names) gives {', '.join(names)}, and models (--models) are {', '.join(sources)}; give one name "
            "for each, in their order."
        )
    if twice := [name for name in names if list(names).count(name) > 1 or not name]:
        raise InputError(f"names (--names) has {twice[0]!r} twice, or empty; give each model a name of its own.")
    return dict(zip(names, sources, strict=True))


def _replaced(name: str, values: tuple[Any, ...], models: list[str]) -> tuple[Any, ...]:
    """Return a list of the profile with other models in place of its own; lists of tasks stay as they are."""
    if name in _LISTS_OF_TASKS or not values:
        return values
    if isinstance(values[0], list):
        return tuple([a, b] for a, b in zip(models, models[1:] or models, strict=False))
    return tuple(models[: len(values)] if name == "alone" else models)


def available(
    profile: Profile, chosen: Sequence[Experiment], dtype: str = FLOAT, device: str | None = None
) -> tuple[Profile, dict[str, str]]:
    """Return the profile without the models and tasks that cannot be opened here, and the reason for each of these.

    Raises InputError where nothing is left of the models, or of the tasks.
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
    """Return what `available` does, also where nothing is left.

    `tried` keeps why a source cannot be opened (empty where it can) from one call to the next: without a network every
    try of the hub takes half a minute.
    """
    reasons = {} if tried is None else tried
    asked = _asked(chosen)
    if UNTRAINED in asked:
        asked.add("twins")
    missing: dict[str, str] = {}
    lists_of_tasks = {"tasks": profile.tasks, **profile.lists}
    for task in dict.fromkeys(t for name in _LISTS_OF_TASKS if name in asked for t in lists_of_tasks.get(name, ())):
        missing |= _tried(task, ("task", task), lambda source: open_task(source).split(), reasons)
    for name in _models(profile, asked):
        missing |= _tried(
            name, ("model", profile.models[name].source), partial(load, dtype=dtype, device=device), reasons
        )
    models = {name: model for name, model in profile.models.items() if name not in missing}
    tasks = tuple(task for task in profile.tasks if task not in missing)
    lists = {name: tuple(v for v in values if not missing.keys() & _parts(v)) for name, values in profile.lists.items()}
    return profile.model_copy(update={"models": models, "tasks": tasks, "lists": lists}), missing


def _asked(chosen: Sequence[Experiment]) -> set[str]:
    """Return every list and setting that some experiments run over or refer to."""
    over = {str(value).removeprefix(REFERENCE) for e in chosen for value in e.over.values()}
    return over | {name for e in chosen for name in e.asked}


def _models(profile: Profile, asked: set[str]) -> list[str]:
    """Return the models that some lists name, in the profile's order."""
    lists = {"models": tuple(profile.models), **profile.lists}
    wanted = {part for name, values in lists.items() if name in asked for value in values for part in _parts(value)}
    return [name for name in profile.models if name in wanted]


def _parts(value: Any) -> set[Any]:
    return set(value) if isinstance(value, (list, tuple)) else {value}


def _tried(
    name: str, source: tuple[str, str], opening: Callable[[str], Any], reasons: dict[tuple[str, str], str]
) -> dict[str, str]:
    """Return the reason why a source cannot be opened, by its name; nothing where it can. Each source is tried once."""
    if source not in reasons:
        reasons[source] = ""
        try:
            opening(source[1])
        except LayerscopeError as error:
            reasons[source] = str(error)
    return {name: reasons[source]} if reasons[source] else {}


def cells_of(
    recipe: Recipe, chosen: Sequence[Experiment], profile: Profile, dtype: str = FLOAT, device: str | None = None
) -> Iterator[ExperimentRun]:
    """Yield a run for every combination of some experiments, in the paper's order."""
    for experiment in chosen:
        claims = tuple(claims_of(recipe.paper, [experiment.name]))
        for values in experiment.combinations(profile):
            yield ExperimentRun(recipe.paper, experiment, values, profile, claims, dtype, device)


CLAIMS = "claims"  # the record of the verdicts, and the folder that holds everything else
PAGE = "report.html"
_BESIDE = (PAGE, INDEX, FIGURES, TABLES)  # beside the records
_LONG = 120  # seconds from which on a sweep says how long it will take


def reproduce(
    paper: str,
    *,
    only: Names = None,
    models: Models = None,
    names: Names = None,
    tasks: Names = None,
    seeds: int | Sequence[int] | None = None,
    profile: str = "offline",
    engine: str = "local",
    gpus: float | None = None,
    dtype: torch.dtype | str = FLOAT,
    device: str | torch.device | None = None,
    out: str | Path | None = None,
) -> Reproduction:
    """Run the experiments of a paper and say which of its claims hold.

    Every experiment is a list of calls of functions of layerscope, for every combination of models, tasks and seeds;
    each combination is a job whose result is kept, so that what is done is never done again.

    Args:
        paper: `phang2021`, `wu2020`, `ren2023`, `xie2022` or `resi2025`.
        only: Some experiments by the paper's numbering (`fig3`, `table2`), as `layerscope reproduce --list` shows them;
            all if not given.
        models: Other models than the profile's: sources, or sources by short names (`name=source`, or a mapping, where
            `{"source": .., "training": {..}}` says how that model trains).
        names: What these models are called in tables and figures, in their order; a shorter way than `name=source`.
        tasks: Other tasks than the profile's; where no chosen experiment has any, as `fig1` of wu2020, other corpora.
        seeds: How many seeds, or which, in the experiments that the paper runs over seeds.
        profile: `paper` (the paper's models and hyperparameters), `offline` (small models that need no network) or
            `smoke` (seconds, to see that everything runs).
        engine: `local`, `processes:N`, `ray` or `ray:ADDRESS`.
        gpus: The share of a GPU that a job takes on Ray; a whole one if not given, where this machine has one.
        dtype: The float type that models are opened in, as in `ls.load`; what tunes models needs float32.
        device: Where models run, as in `ls.load`; the first GPU where there is one. The workers of other engines have
            the same, and a GPU of their own where there are several.
        out: The folder for the paper's figures and tables, records and the report; `PAPER-PROFILE` if not given.

    Returns:
        A `Reproduction`: `.claims` has a verdict for every claim and combination, `.summary` one row per claim,
        `.figures()` and `.tables()` the paper's own, `.missing` what could not be fetched or done, with the reason.

    Example:
        >>> import tempfile, layerscope as ls
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     done = ls.reproduce("ren2023", only="norms", models="garden:bert-s0", profile="smoke", out=folder)
        >>> len(done.missing)
        0
    """
    check_engine(engine)
    opening = _opening(dtype, device, engine)
    recipe = read_recipe(paper)
    chosen = recipe.chosen(only)
    asked = changed(recipe.profile(profile), models, tasks, seeds, chosen, names)
    usable, missing = available(asked, chosen, *opening)
    for name, reason in missing.items():
        log.warning("%s is left out: %s", name, reason)
    cells = list(cells_of(recipe, chosen, usable, *opening))
    total = seconds_of(cells)
    announcement = "%s: %d jobs, about %s one after another if none is done yet."
    log.log(logging.WARNING if total > _LONG else logging.INFO, announcement, paper, len(cells), duration(total))
    folder = Path(out if out is not None else f"{paper}-{profile}")
    check_name(folder)
    check_free(folder / CLAIMS, CARD)  # before the work, not after it
    if others := taken(folder / CLAIMS, _BESIDE, _earlier(folder / CLAIMS)):
        raise InputError(
            f"{folder / others[0]} is not what reproduce left in that folder, so it is not overwritten; give another "
            "folder or remove it first."
        )
    outcomes = map_jobs([Job(cell, cell.name, gpus=_gpus(gpus, device)) for cell in cells], engine, title=paper)
    done = []
    for cell, outcome in zip(cells, outcomes, strict=True):
        if outcome.folder is None:
            missing[cell.name] = outcome.reason
        else:
            done.append((cell, cell.statistics(outcome.folder), outcome.folder))
    table = verdicts(claims_of(paper, [e.name for e in chosen]), [(cell, statistics) for cell, statistics, _ in done])
    settings = {"paper": paper, "profile": profile, "only": [e.name for e in chosen], "dtype": opening[0]}
    assembly = Assembly(recipe, asked, chosen, [(cell, where) for cell, _, where in done], missing)
    made = assembly.figures(), assembly.tables()
    result = Reproduction(table, provenance_of([], None, settings), missing, folder, *made)
    _write(recipe, result, [(cell, where) for cell, _, where in done], folder)
    return result


def _opening(dtype: torch.dtype | str, device: str | torch.device | None, engine: str) -> tuple[str, str | None]:
    """Return float type and device in the form that jobs take; raise InputError where models cannot be opened so."""
    check_opening(dtype, device)
    place = None if device is None else str(device)
    if engine != "local" and place is not None and place.partition(":")[2]:
        raise InputError(
            f"--device {place} is one GPU, and --engine {engine} spreads jobs over all that there are; say --device "
            "cuda, or let CUDA_VISIBLE_DEVICES name those that may be used."
        )
    return str(dtype).removeprefix("torch."), place


def _gpus(asked: float | None, device: str | torch.device | None) -> float:
    """Return the share of a GPU that a job takes: none where models run elsewhere."""
    import torch

    if asked is not None:
        return asked
    return float(torch.cuda.is_available() and str(device or "cuda").startswith(("cuda", "auto")))


def experiments(
    paper: str | None = None,
    *,
    only: Names = None,
    models: Models = None,
    names: Names = None,
    tasks: Names = None,
    seeds: int | Sequence[int] | None = None,
    profile: str = "offline",
    dtype: torch.dtype | str = FLOAT,
    device: str | torch.device | None = None,
) -> pandas.DataFrame:
    """List the experiments of a paper, or of all: where each stands, what it needs, how many jobs, about how long.

    Jobs are those that can be done here, without what is `not here`.

    Args:
        paper: `phang2021`, `wu2020`, `ren2023`, `xie2022` or `resi2025`; all if not given.
        only: Some experiments by the paper's numbering: `fig3,table2`.
        models: Other models than the profile's, as in `ls.reproduce`.
        names: What these models are called, as in `ls.reproduce`.
        tasks: Other tasks than the profile's, as in `ls.reproduce`.
        seeds: How many seeds, or which, in the experiments that the paper runs over seeds.
        profile: `paper`, `offline` or `smoke`, as in `ls.reproduce`.
        dtype: The float type that models are opened in, as in `ls.load`.
        device: Where models run, as in `ls.load`.

    Returns:
        A table with one row per experiment.

    Example:
        >>> import layerscope as ls
        >>> ls.experiments("ren2023", only="norms", profile="smoke")["experiment"].tolist()
        ['norms']
    """
    import pandas

    opening = _opening(dtype, device, "local")
    rows: list[dict[str, Any]] = []
    tried: dict[tuple[str, str], str] = {}
    for name in papers() if paper is None else (paper,):
        recipe = read_recipe(name)
        chosen = recipe.chosen(only)
        asked = changed(recipe.profile(profile), models, tasks, seeds, chosen, names)
        for experiment in chosen:
            usable, missing = openable(asked, [experiment], *opening, tried)
            cells = list(cells_of(recipe, [experiment], usable, *opening)) if usable.models else []
            rows.append(
                {
                    "paper": name,
                    "experiment": ", ".join([experiment.name, *experiment.also]),
                    "title": experiment.title,
                    "where": experiment.where,
                    "needs": needs(list(cells_of(recipe, [experiment], asked, *opening))),
                    "not here": ", ".join(missing),
                    "jobs": len(cells),
                    "time": duration(seconds_of(cells)),
                    "claims": len(claims_of(name, [experiment.name])),
                }
            )
    return pandas.DataFrame(rows)


def needs(cells: Sequence[ExperimentRun]) -> str:
    """Return what some runs need, in words: `model: bert, roberta; task: sst2`; `models` are those that each takes."""
    values: dict[str, dict[str, None]] = {}
    for cell in cells:
        for name, value in [*(("models", model) for model in cell.models), *cell.chosen.items()]:
            text = " and ".join(map(str, value)) if isinstance(value, (list, tuple)) else str(value)
            values.setdefault(name, {})[text] = None
    return "; ".join(f"{name}: {', '.join(parts)}" for name, parts in values.items())


def _write(recipe: Recipe, result: Reproduction, done: Sequence[tuple[ExperimentRun, Path]], folder: Path) -> None:
    """Write the claims, and beside them links to the records in the paper's order and to the report."""
    title = f"{recipe.citation}: {recipe.title}"
    names = [f"{k:03d}-{_slug(cell.experiment.name)}-{_slug(cell.label)}" for k, (cell, _) in enumerate(done, 1)]
    shown = [*names, *_BESIDE]
    claims = Record.of("reproduce", title, {CLAIMS: result}, files=shown)
    with record_folder(folder / CLAIMS, claims, shown, _earlier(folder / CLAIMS)) as staging:
        records = [staging]
        for name, (cell, kept) in zip(names, done, strict=True):
            for source in cell.records(kept):
                record = shutil.copytree(source, staging / name / source.name)
                card = read_object(record / CARD, way_out="run the command again")
                write_json(record / CARD, {**card, "title": cell.title(source.name)})  # another sweep may have made it
                records.append(record)
        report(records, staging / PAGE, title=title)
        stated = claims_of(recipe.paper, list({cell.experiment.name for cell, _ in done}))
        layouts: dict[str, Layout] = {**recipe.figures, **recipe.tables}
        write_paper(staging, title, result.paper_figures, result.paper_tables, stated, result.frame, layouts)
        for name in (FIGURES, TABLES):
            (staging / name).mkdir(exist_ok=True)


def _earlier(claims: Path) -> list[str]:
    """Return what an earlier run left beside its claims: the page, and folders with plain names of ours only."""
    if not claims.exists():
        return []
    try:
        names = read_record(claims).files
    except InputError:  # of another version, or damaged
        return [*_BESIDE]
    return [*_BESIDE, *(name for name in names if re.fullmatch(r"\d{3,}-[a-z0-9.-]+", name))]


def _slug(text: str) -> str:
    return re.sub(r"[^a-z0-9.]+", "-", text.lower()).strip("-.")[:60] or "all"
