"""What commands that save a smaller model share: check the places, print the plan, cut, save, and publish."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING

from layerscope.cli.command import Given
from layerscope.cli.console import Format, answer, show
from layerscope.cli.record import keep
from layerscope.distributed import Team
from layerscope.errors import InputError

if TYPE_CHECKING:
    from layerscope.cutting.plan import LayerPlan
    from layerscope.models import Model


def check_publishing(repo: str | None, public: bool, folder: Path | None, option: str = "--save") -> None:
    """Raise InputError where nothing could be put on the hub: before the work, not after it."""
    if repo is None:
        if public:
            raise InputError("--public is about a repository on the hub; name that with --push-to-hub.")
        return
    if folder is None:
        raise InputError(f"--push-to-hub puts what is saved on the hub; name a folder to save it in ({option}).")

    from layerscope.cutting.hub import check_push

    check_push(repo, private=not public)


def publish(folder: Path, repo: str | None, public: bool, format: Format) -> None:
    """Put a folder on the hub, and say where."""
    if repo is None:
        return
    import layerscope as ls

    address = ls.push(folder, repo, private=not public)
    answer().saved = {**(answer().saved or {}), "hub": address, "public": public}
    if format is Format.table:
        print(f"Put on the hub as {address}, {'for everyone' if public else 'private'}.")


def check_save(folder: Path | None, model: Model) -> None:
    """Raise an error if no checkpoint can be saved there, or none of this model: before the work, not after it."""
    from layerscope.cutting.cut import refuse_adapters
    from layerscope.models.lineage import RECORD
    from layerscope.models.sources import folder_of
    from layerscope.store import check_free

    if folder is not None:
        check_free(folder, RECORD, folder_of(model))
        refuse_adapters(model)


def saved(folder: Path, format: Format, how: str = "reopened and compared") -> None:
    """Say that a checkpoint is there."""
    answer().saved = {"folder": str(folder), "how": how}
    if format is Format.table:
        print(f"Saved in {folder}, {how}.")


def chosen(plan: LayerPlan, depth: int) -> None:
    """Put a plan into the answer."""
    answer().choice = {"plan": str(plan), "keep": list(plan.keep), "removed": list(plan.removed(depth))}


def print_plan(tool: str, plan: LayerPlan, name: str, depth: int, format: Format) -> None:
    """Print a plan as another tool takes it; beside JSON it goes to the other stream."""
    print(plan.print_as(tool, depth, name), file=sys.stderr if format is Format.json else None)


def cut_and_save(
    given: Given,
    plan: str,
    folder: Path | None,
    hub: tuple[str | None, bool],
    print_as: str | None,
    out: Path | None,
    format: Format,
) -> None:
    """Cut by a plan in words, show what is left beside the whole, and save it: `truncate --keep` and `skip --blocks`.

    `hub` is a repository to put the saved folder in, and whether that is public.
    """
    from layerscope.cutting.plan import check_tool

    check_tool(print_as)
    name = given["model"]
    if "task" not in given:
        if folder is None and print_as is None:
            raise InputError(
                "Name a task to evaluate what is left on (--task), a folder to save it in (--save), or a tool to print "
                "the plan for (--print-as)."
            )
        if out is not None:
            raise InputError(
                "--out keeps what was measured, and without --task nothing is; name a task, or leave it out."
            )
    given.check("cut_study", "plan", "save", "model")
    # A folder that is not scored is cut on disk; the float type of weights can only be changed in memory.
    by_name = "task" not in given and "dtype" not in given
    study = given.call("cut_study", plan=plan, save=folder, model=name if by_name else given.model)
    chosen(study.plan, study.depth)
    if "task" in given:
        title = f"{given.label('model')} on {given.task.name}"
        show(study.frame.to_dict("records"), format, f"{title}, nothing trained")
        if study.patch is not None and format is Format.table:
            print("\n".join(study.patch.sentences()))
        keep(out, "cut", f"{title}: {study.plan}", {"cut": study})
    elif study.patch is not None:  # what was solved, and what it is worth on texts that it was not solved on
        answer().findings += [{"text": str(each), "evidence": "", "sure": None} for each in study.findings()]
        if format is Format.table:
            print("\n".join(map(str, study.findings())))
    if print_as is not None:
        print_plan(print_as, study.plan, name, study.depth, format)
    if folder is not None and not Team.is_helper():
        saved(folder, format, study.how)
        publish(folder, *hub, format)
