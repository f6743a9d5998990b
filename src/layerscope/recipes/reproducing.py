"""`ls.reproduce`: the experiments of a paper as jobs, their records in one folder, and a verdict on every claim."""

from __future__ import annotations

import re
import shutil
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from layerscope.data.opening import task as open_task
from layerscope.engine import Job, map_jobs
from layerscope.engine.mapping import check_engine
from layerscope.errors import InputError, LayerscopeError, log
from layerscope.models.load import load
from layerscope.recipes.cell import RECORDS, Cell
from layerscope.recipes.claims import claims_of
from layerscope.recipes.recipe import Experiment, Profile, Recipe, Source, read_recipe
from layerscope.recipes.reproduction import Reproduction, verdicts
from layerscope.reporting.page import report
from layerscope.results import Record, provenance_of, write_record
from layerscope.results.record import CARD
from layerscope.store import atomic_folder

Names = str | Sequence[str] | None


def reproduce(
    paper: str,
    *,
    only: Names = None,
    models: Mapping[str, str] | Names = None,
    tasks: Names = None,
    seeds: int | Sequence[int] | None = None,
    profile: str = "offline",
    engine: str = "local",
    out: str | Path | None = None,
) -> Reproduction:
    """Run the experiments of a paper and say which of its claims hold.

    Every experiment is a list of calls of functions of layerscope, for every combination of models and tasks; each
    combination is a job whose result is kept, so that what is done is never done again.

    Args:
        paper: `phang2021`, `wu2020`, `ren2023` or `xie2022`.
        only: Some experiments by their names, as `layerscope reproduce PAPER --list` shows them; all if not given.
        models: Other models than the profile's: sources, or sources by short names.
        tasks: Other tasks than the profile's.
        seeds: How many seeds, or which.
        profile: `paper` (the paper's models and hyperparameters), `offline` (small models that need no network) or
            `smoke` (seconds, to see that everything runs).
        engine: `local`, `processes:N`, `ray` or `ray:ADDRESS`.
        out: The folder for records and the report; `PAPER-PROFILE` if not given.

    Returns:
        A `Reproduction`: `.claims` has a verdict for every claim and combination, `.summary` one row per claim,
        `.missing` what could not be had or done, with the reason.

    Example:
        >>> import tempfile, layerscope as ls
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     done = ls.reproduce("ren2023", only="norms", models=["garden:bert-s0"], profile="smoke", out=folder)
        >>> len(done.missing)
        0
    """
    check_engine(engine)
    recipe = read_recipe(paper)
    chosen = recipe.chosen(only)
    usual = _changed(recipe.profile(profile), models, tasks, seeds)
    usable, missing = available(usual, chosen)
    cells = list(cells_of(recipe, chosen, usable))
    outcomes = map_jobs([Job(cell, cell.name) for cell in cells], engine, title=paper)
    folder = Path(out if out is not None else f"{paper}-{profile}")
    done = []
    for cell, outcome in zip(cells, outcomes, strict=True):
        if outcome.folder is None:
            missing[cell.name] = outcome.reason
        else:
            done.append((cell, cell.statistics(outcome.folder), outcome.folder))
    table = verdicts(claims_of(paper, [e.name for e in chosen]), [(cell, said) for cell, said, _ in done])
    settings = {"paper": paper, "profile": profile, "only": [e.name for e in chosen]}
    result = Reproduction(table, provenance_of([], None, settings), missing, folder)
    _write(recipe, result, [(cell, where) for cell, _, where in done], folder)
    return result


def cells_of(recipe: Recipe, chosen: Sequence[Experiment], profile: Profile) -> Iterator[Cell]:
    """Every combination of some experiments, in the paper's order."""
    for experiment in chosen:
        claims = tuple(claims_of(recipe.paper, [experiment.name]))
        for values in experiment.combinations(profile):
            yield Cell(recipe.paper, experiment, values, profile, claims)


def available(profile: Profile, chosen: Sequence[Experiment]) -> tuple[Profile, dict[str, str]]:
    """The profile without what cannot be opened here, and the reason for each."""
    missing: dict[str, str] = {}
    asked = [str(value) for e in chosen for value in e.over.values()]
    for task in dict.fromkeys([*profile.tasks, *profile.lists.get("corpora", ())]):
        missing |= _tried(task, open_task)
    for name, model in profile.models.items():
        missing |= {name: reason for reason in _tried(model.source, load).values()}
    for name, reason in missing.items():
        log.warning("%s is left out: %s", name, reason)
    lists = {
        name: tuple(value for value in values if not missing.keys() & set(value if isinstance(value, list) else [value]))
        for name, values in profile.lists.items()
    }
    models = {name: model for name, model in profile.models.items() if name not in missing}
    tasks = tuple(task for task in profile.tasks if task not in missing)
    if not models or ("$tasks" in asked and not tasks):
        what = "models" if not models else "tasks"
        raise InputError(f"None of the {what} can be opened here: {next(iter(missing.values()))}")
    return profile.model_copy(update={"models": models, "tasks": tasks, "lists": lists}), missing


def _tried(source: str, opening: Any) -> dict[str, str]:
    try:
        opening(source)
    except LayerscopeError as error:
        return {source: str(error)}
    return {}


def _changed(profile: Profile, models: Any, tasks: Names, seeds: int | Sequence[int] | None) -> Profile:
    """The profile with what was asked for instead."""
    changes: dict[str, Any] = {}
    if models is not None:
        named = models if isinstance(models, Mapping) else {m: m for m in _listed(models)}
        own = {model.source: model for model in profile.models.values()}
        changes["models"] = {name: own.get(source, Source(source=source)) for name, source in named.items()}
        pairs = [list(pair) for pair in zip(named, list(named)[1:], strict=False)]
        lists = {name: tuple(pairs) if values and isinstance(values[0], list) else values for name, values in profile.lists.items()}
        changes["lists"] = {n: tuple(named) if set(v) <= set(profile.models) and v and isinstance(v[0], str) else v for n, v in lists.items()}
    if tasks is not None:
        changes["tasks"] = tuple(_listed(tasks))
    if seeds is not None:
        changes["seeds"] = tuple(range(seeds)) if isinstance(seeds, int) else tuple(seeds)
    return profile.model_copy(update=changes)


def _listed(names: str | Sequence[str]) -> list[str]:
    return [part.strip() for part in names.split(",")] if isinstance(names, str) else list(names)


def _write(recipe: Recipe, result: Reproduction, done: Sequence[tuple[Cell, Path]], folder: Path) -> None:
    """The records in the paper's order, the claims, and the report."""
    folder.mkdir(parents=True, exist_ok=True)
    title = f"{recipe.citation}: {recipe.title}"
    records = [write_record(folder / "claims", Record.of("reproduce", title, {"claims": result}))]
    for number, (cell, kept) in enumerate(done, 1):
        for source in sorted((kept / RECORDS).iterdir()) if (kept / RECORDS).is_dir() else ():
            target = folder / f"{number:03d}-{_slug(cell.experiment.name)}-{_slug(cell.label)}" / source.name
            with atomic_folder(target, CARD) as staging:
                shutil.copytree(source, staging, dirs_exist_ok=True)
            records.append(target)
    report(records, folder / "report.html", title=title)


def _slug(text: str) -> str:
    return re.sub(r"[^a-z0-9.]+", "-", text.lower()).strip("-.")[:60] or "all"
