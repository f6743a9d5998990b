"""What `truncate` and `skip` share: cut a model, show what is left beside the whole, save it."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

from layerscope.cli.output import Format, show
from layerscope.cli.record import keep
from layerscope.errors import InputError

if TYPE_CHECKING:
    from layerscope.cli.options import Columns
    from layerscope.cutting.plan import LayerPlan
    from layerscope.data import Task
    from layerscope.models import Model


def check_save(folder: Path | None, model: Model) -> None:
    """Raise a sentence if no checkpoint can be saved there, or none of this model: before the work, not after it."""
    from layerscope.cutting.cutting import refuse_adapters
    from layerscope.models.lineage import RECORD
    from layerscope.store import check_free

    if folder is not None:
        check_free(folder, RECORD)
        refuse_adapters(model)


def checked_task(task: str | None, columns: Columns, save: Path | None) -> Task | None:
    """The task, where one is named; saving alone needs none."""
    if task is not None:
        return columns.open(task)
    if save is None:
        raise InputError("Name a task to evaluate what is left on (--task), a folder to save it in (--save), or both.")
    return None


def saved(folder: Path, format: Format) -> None:
    """Say that a checkpoint is there."""
    if format is Format.table:
        print(f"Saved in {folder}, reopened and compared.")


def cut_and_save(
    model: Model,
    plan: LayerPlan,
    task: Task | None,
    options: dict[str, Any],
    folder: Path | None,
    out: Path | None,
    format: Format,
) -> None:
    """Cut a model, print what is left of it beside the whole, and save it if a folder is given."""
    import pandas

    import layerscope as ls
    from layerscope.drawing.words import numbers
    from layerscope.results import Table

    check_save(folder, model)
    smaller = ls.cut(model, plan)
    if task is None:
        assert folder is not None
        if out is not None:
            raise InputError(
                "--out keeps what was measured, and without --task nothing is; name a task, or leave it out."
            )
        ls.save(smaller, folder)
        saved(folder, format)
        return
    scores = [ls.evaluate(each, task, **options) for each in (model, smaller)]
    sizes = [sum(p.numel() for p in network.parameters()) for network in (model.network, smaller)]
    names = (f"1-{model.depth}", str(plan))
    table = pandas.DataFrame({"blocks": names, "score": map(float, scores), "parameters": sizes})
    table.insert(1, "metric", scores[0].metric)
    title = f"{model.name} on {task.name}, nothing trained"
    show(table.to_dict("records"), format, title)
    drawn = numbers("The cut model beside the whole", "Score and size; nothing was trained.", table)
    result = Table(table, [drawn], scores[0].provenance, "cut")
    keep(out, "cut", f"{model.name} on {task.name}: {plan}", {"cut": result}, tables="")
    if folder is not None:
        ls.save(smaller, folder, scores=scores[1])
        saved(folder, format)
