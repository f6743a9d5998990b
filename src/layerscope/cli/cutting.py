"""What `truncate` and `skip` share: cut a model, show what is left beside the whole, save it, print the plan."""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import typer

from layerscope.cli.output import Format, show
from layerscope.cli.publishing import publish
from layerscope.cli.record import keep
from layerscope.errors import InputError, LayerscopeError, first_line
from layerscope.team import Team

if TYPE_CHECKING:
    from layerscope.cli.options import Columns
    from layerscope.cutting.folders import FolderCut
    from layerscope.cutting.plan import LayerPlan
    from layerscope.data import Task
    from layerscope.models import Model

FLOAT = "float32"  # what weights are opened in, where nothing else is asked for
DTYPE = typer.Option(
    None, "--dtype", help="The float type to open weights in: float32 (usual), bfloat16, float16. On disk: as it is."
)
PRINT_AS = typer.Option(None, "--print-as", help="Print the plan in the format of another tool: mergekit or llama.cpp.")


def check_save(folder: Path | None, model: Model) -> None:
    """Raise a sentence if no checkpoint can be saved there, or none of this model: before the work, not after it."""
    from layerscope.cutting.cutting import refuse_adapters
    from layerscope.models.lineage import RECORD
    from layerscope.store import check_free

    if folder is not None:
        check_free(folder, RECORD)
        refuse_adapters(model)


def checked_task(task: str | None, columns: Columns, save: Path | None, print_as: str | None) -> Task | None:
    """The task, where one is named; saving and printing the plan need none."""
    from layerscope.cutting.exports import check_tool

    check_tool(print_as)
    if task is not None:
        return columns.open(task)
    if save is None and print_as is None:
        raise InputError(
            "Name a task to evaluate what is left on (--task), a folder to save it in (--save), or a tool to print the "
            "plan for (--print-as)."
        )
    return None


def saved(folder: Path, format: Format, how: str = "reopened and compared") -> None:
    """Say that a checkpoint is there."""
    if format is Format.table:
        print(f"Saved in {folder}, {how}.")


def print_plan(tool: str, plan: LayerPlan, name: str, depth: int, format: Format) -> None:
    """Print a plan as another tool takes it; beside JSON it goes to the other stream."""
    print(plan.print_as(tool, depth, name), file=sys.stderr if format is Format.json else None)


def cut_without_task(
    model: str,
    plan_of: Callable[[int], LayerPlan],
    *,
    device: str | None,
    dtype: str | None,
    place: tuple[Path | None, str | None, bool],
    out: Path | None,
    print_as: str | None,
    format: Format,
) -> None:
    """Print and save the plan for a model of its depth: on disk where that can be, else opened in memory.

    `place` is the folder, a repository on the hub to put it in too, and whether that is public.
    """
    import layerscope as ls

    if out is not None:
        raise InputError("--out keeps what was measured, and without --task nothing is; name a task, or leave it out.")
    save, repo, public = place
    folder, reason = _on_disk(model, dtype)
    opened = ls.load(model, device=device, dtype=dtype or FLOAT) if folder is None else folder.model
    plan = plan_of(opened.depth)
    if folder is not None and (reason := _fault(folder, plan)):
        folder, opened = None, ls.load(model, device=device, dtype=dtype or FLOAT)
    if print_as is not None:
        print_plan(print_as, plan, model, opened.depth, format)
    if save is None:
        return
    if Team.is_helper():  # one of several processes writes
        return
    if folder is not None:
        compared = folder.write(plan, save)
        saved(save, format, f"cut on disk, every tensor compared by its hash{', reopened and compared' * compared}")
    else:
        check_save(save, opened)
        ls.save(ls.cut(opened, plan), save)
        saved(save, format, f"cut in memory ({reason}), reopened and compared")
    publish(save, repo, public, format)


def _on_disk(model: str, dtype: str | None) -> tuple[FolderCut | None, str]:
    """The checkpoint, where it can be cut on disk; otherwise the reason why it is opened in memory."""
    from layerscope.cutting.folders import FolderCut

    if dtype is not None:
        return None, f"--dtype {dtype} may convert the weights"
    try:
        return FolderCut(model), ""
    except LayerscopeError as error:
        return None, first_line(error).rstrip(".")


def _fault(folder: FolderCut, plan: LayerPlan) -> str:
    """Why a plan cannot be cut on disk; nothing where it can."""
    try:
        folder.kept(plan)
    except LayerscopeError as error:
        return first_line(error).rstrip(".")
    return ""


def _save(network: Any, folder: Path, format: Format, **about: Any) -> None:
    """Save a checkpoint, once where several processes work together."""
    import layerscope as ls

    if not Team.is_helper():
        ls.save(network, folder, **about)
        saved(folder, format)


def cut_and_save(
    model: Model,
    plan: LayerPlan,
    task: Task,
    options: dict[str, Any],
    place: tuple[Path | None, str | None, bool],
    out: Path | None,
    format: Format,
    name: str,
    print_as: str | None = None,
) -> None:
    """Cut a model, print what is left of it beside the whole, and save it if a folder is given.

    `place` is that folder, a repository on the hub to put it in too, and whether that is public.
    """
    import pandas

    import layerscope as ls
    from layerscope.drawing.words import numbers
    from layerscope.results import Table

    folder, repo, public = place
    check_save(folder, model)
    smaller = ls.cut(model, plan)
    scores = [ls.evaluate(each, task, **options) for each in (model, smaller)]
    sizes = [sum(p.numel() for p in network.parameters()) for network in (model.network, smaller)]
    names = (f"1-{model.depth}", str(plan))
    table = pandas.DataFrame({"blocks": names, "score": map(float, scores), "parameters": sizes})
    table.insert(1, "metric", scores[0].metric)
    for k, end in enumerate(("low", "high")):
        table.insert(3 + k, end, [each.interval[k] for each in scores])
    title = f"{model.name} on {task.name}, nothing trained"
    show(table.to_dict("records"), format, title)
    if print_as is not None:
        print_plan(print_as, plan, name, model.depth, format)
    drawn = numbers("The cut model beside the whole", "Score and size; nothing was trained.", table)
    result = Table(table, [drawn], scores[0].provenance, "cut")
    keep(out, "cut", f"{model.name} on {task.name}: {plan}", {"cut": result})
    if folder is not None:
        _save(smaller, folder, format, scores=scores[1])
        if not Team.is_helper():
            publish(folder, repo, public, format)
