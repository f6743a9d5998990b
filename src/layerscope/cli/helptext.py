"""How help texts look: an option that takes no value shows none."""

from __future__ import annotations

from typing import Any

import typer
from typer.core import TyperCommand, TyperGroup

ALIKE = "Which layers represent the same thing?"  # panels of `layerscope --help`
LOSE = "Which blocks can a model lose, and what does each cost?"
TUNE = "Which layers are worth tuning for a task?"
STAND = "Can one model stand in for another?"
REST = "Reports, papers, and what there is"
DATA = "What the data set holds"  # panels of a command's help text: options that most readers skip
RUNNING = "How language and embedding models are asked"


_MEANT = {"--json": "--format json", "--csv": "--out FOLDER", "--parquet": "--out FOLDER"}  # what others call so


class Command(TyperCommand):
    """A command whose flags are shown without `<bool>`, which would read as a value to give."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        try:
            return super().parse_args(ctx, args)
        except Exception as error:  # typer has its own copy of click's error for an unknown option
            if meant := _MEANT.get(getattr(error, "option_name", "")):
                error.possibilities = [meant]  # type: ignore[attr-defined]
            raise

    def get_params(self, ctx: Any) -> list[Any]:
        return _without_values(super().get_params(ctx))


class Group(TyperGroup):
    """The same for what holds commands."""

    def get_params(self, ctx: Any) -> list[Any]:
        return _without_values(super().get_params(ctx))


def _without_values(parameters: list[Any]) -> list[Any]:
    for parameter in parameters:
        if getattr(parameter, "is_flag", False):
            parameter.metavar = ""
    return parameters


def dress(app: typer.Typer, panel: str | None = None) -> None:
    """Make every command of an app, and of the apps in it, one of these; those that have no panel yet get this one."""
    for command in app.registered_commands:
        command.cls, command.rich_help_panel = Command, command.rich_help_panel or panel
    for group in app.registered_groups:
        group.cls, group.rich_help_panel = Group, group.rich_help_panel or panel
        if group.typer_instance is not None:
            dress(group.typer_instance)
