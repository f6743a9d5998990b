"""`ls.reproduce`: the experiments of a paper as jobs, their records in one folder, and a verdict on every claim."""

from __future__ import annotations

import logging
import re
import shutil
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from layerscope.engine import Job, check_engine, map_jobs
from layerscope.errors import InputError, log
from layerscope.models.placing import check_opening
from layerscope.progress import duration
from layerscope.recipes.cell import FLOAT, Cell
from layerscope.recipes.claims import claims_of
from layerscope.recipes.estimating import seconds_of
from layerscope.recipes.planning import Models, Names, available, cells_of, changed, openable
from layerscope.recipes.recipe import Recipe, papers, read_recipe
from layerscope.recipes.reproduction import Reproduction, verdicts
from layerscope.reporting.page import report
from layerscope.results import Record, provenance_of, read_record, write_record
from layerscope.results.record_files import CARD
from layerscope.store import atomic_folder, check_free, read_object, write_json

if TYPE_CHECKING:
    import pandas
    import torch

CLAIMS = "claims"  # the record of the verdicts
_LONG = 120  # seconds from which on a sweep says how long it will take


def reproduce(
    paper: str,
    *,
    only: Names = None,
    models: Models = None,
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
        paper: `phang2021`, `wu2020`, `ren2023` or `xie2022`.
        only: Some experiments by the paper's numbering (`fig3`, `table2`), as `layerscope reproduce --list` shows them;
            all if not given.
        models: Other models than the profile's: sources, or sources by short names (`name=source`, or a mapping, where
            `{"source": .., "training": {..}}` says how that model trains).
        tasks: Other tasks than the profile's; where no chosen experiment has any, as `fig1` of wu2020, other corpora.
        seeds: How many seeds, or which, in the experiments that the paper runs over seeds.
        profile: `paper` (the paper's models and hyperparameters), `offline` (small models that need no network) or
            `smoke` (seconds, to see that everything runs).
        engine: `local`, `processes:N`, `ray` or `ray:ADDRESS`.
        gpus: The share of a GPU that a job takes on Ray; a whole one if not given, where this machine has one.
        dtype: The float type that models are opened in, as in `ls.load`; what tunes models needs float32.
        device: Where models run, as in `ls.load`; the first GPU where there is one. The workers of other engines have
            the same, and a GPU of their own where there are several.
        out: The folder for records and the report; `PAPER-PROFILE` if not given.

    Returns:
        A `Reproduction`: `.claims` has a verdict for every claim and combination, `.summary` one row per claim,
        `.missing` what could not be fetched or done, with the reason.

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
    usable, missing = available(changed(recipe.profile(profile), models, tasks, seeds, chosen), chosen, *opening)
    for name, reason in missing.items():
        log.warning("%s is left out: %s", name, reason)
    cells = list(cells_of(recipe, chosen, usable, *opening))
    total = seconds_of(cells)
    said = "%s: %d jobs, about %s one after another if none is done yet."
    log.log(logging.WARNING if total > _LONG else logging.INFO, said, paper, len(cells), duration(total))
    folder = Path(out if out is not None else f"{paper}-{profile}")
    check_free(folder / CLAIMS, CARD)  # before the work, not after it
    outcomes = map_jobs([Job(cell, cell.name, gpus=_gpus(gpus, device)) for cell in cells], engine, title=paper)
    done = []
    for cell, outcome in zip(cells, outcomes, strict=True):
        if outcome.folder is None:
            missing[cell.name] = outcome.reason
        else:
            done.append((cell, cell.statistics(outcome.folder), outcome.folder))
    table = verdicts(claims_of(paper, [e.name for e in chosen]), [(cell, said) for cell, said, _ in done])
    settings = {"paper": paper, "profile": profile, "only": [e.name for e in chosen], "dtype": opening[0]}
    result = Reproduction(table, provenance_of([], None, settings), missing, folder)
    _write(recipe, result, [(cell, where) for cell, _, where in done], folder)
    return result


def _opening(dtype: torch.dtype | str, device: str | torch.device | None, engine: str) -> tuple[str, str | None]:
    """How models are opened, as jobs have it, or a sentence where they cannot be."""
    check_opening(dtype, device)
    place = None if device is None else str(device)
    if engine != "local" and place is not None and place.partition(":")[2]:
        raise InputError(
            f"--device {place} is one GPU, and --engine {engine} spreads jobs over all that there are; say --device "
            "cuda, or let CUDA_VISIBLE_DEVICES name those that may be used."
        )
    return str(dtype).removeprefix("torch."), place


def _gpus(asked: float | None, device: str | torch.device | None) -> float:
    """The share of a GPU that a job takes: none where models run elsewhere."""
    import torch

    if asked is not None:
        return asked
    return float(torch.cuda.is_available() and str(device or "cuda").startswith(("cuda", "auto")))


def listing(
    paper: str | None = None,
    *,
    only: Names = None,
    models: Models = None,
    tasks: Names = None,
    seeds: int | Sequence[int] | None = None,
    profile: str = "offline",
    dtype: torch.dtype | str = FLOAT,
    device: str | torch.device | None = None,
) -> pandas.DataFrame:
    """Every experiment of a paper, or of all: where it stands, what it needs, how many jobs, and about how long.

    Jobs are those that can be done here, without what is `not here`.
    """
    import pandas

    opening = _opening(dtype, device, "local")
    rows: list[dict[str, Any]] = []
    tried: dict[tuple[str, str], str] = {}
    for name in papers() if paper is None else (paper,):
        recipe = read_recipe(name)
        chosen = recipe.chosen(only)
        asked = changed(recipe.profile(profile), models, tasks, seeds, chosen)
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


def needs(cells: Sequence[Cell]) -> str:
    """What some cells run over, in words: `model: bert, roberta; task: sst2`; `models` are those that each takes."""
    values: dict[str, dict[str, None]] = {}
    for cell in cells:
        for name, value in [*(("models", model) for model in cell.models), *cell.chosen.items()]:
            said = " and ".join(map(str, value)) if isinstance(value, (list, tuple)) else str(value)
            values.setdefault(name, {})[said] = None
    return "; ".join(f"{name}: {', '.join(parts)}" for name, parts in values.items())


def _write(recipe: Recipe, result: Reproduction, done: Sequence[tuple[Cell, Path]], folder: Path) -> None:
    """The records in the paper's order, the claims, and the report; what an earlier run left there goes."""
    title = f"{recipe.citation}: {recipe.title}"
    names = [f"{k:03d}-{_slug(cell.experiment.name)}-{_slug(cell.label)}" for k, (cell, _) in enumerate(done, 1)]
    for name in _earlier(folder / CLAIMS):
        if name not in names:
            shutil.rmtree(folder / name, ignore_errors=True)
    records = [write_record(folder / CLAIMS, Record.of("reproduce", title, {CLAIMS: result}, files=names))]
    for name, (cell, kept) in zip(names, done, strict=True):
        for source in cell.records(kept):
            with atomic_folder(folder / name / source.name, CARD) as staging:
                shutil.copytree(source, staging, dirs_exist_ok=True)
                card = read_object(staging / CARD, way_out="run the command again")
                write_json(staging / CARD, {**card, "title": cell.title(source.name)})  # another sweep may have made it
            records.append(folder / name / source.name)
    report(records, folder / "report.html", title=title)


def _earlier(claims: Path) -> list[str]:
    """The folders that an earlier run says it wrote beside its claims: plain names of ours only."""
    try:
        names = read_record(claims).files if claims.exists() else ()
    except InputError:  # of another version, or damaged
        return []
    return [name for name in names if re.fullmatch(r"\d{3,}-[a-z0-9.-]+", name)]


def _slug(text: str) -> str:
    return re.sub(r"[^a-z0-9.]+", "-", text.lower()).strip("-.")[:60] or "all"
