"""How help texts look."""

import pytest
import typer

from layerscope.cli import app, console
from tests.helpers.cli import run_here

QUESTIONS = (console.ALL, console.ALIKE, console.LOSE, console.TUNE, console.STAND, console.REST)


def walk(group, before=()):
    yield before, group
    for name in group.list_commands(None) if hasattr(group, "list_commands") else ():
        yield from walk(group.get_command(None, name), (*before, name))


@pytest.mark.parametrize(
    ("names", "command"), [pytest.param(*found, id=" ".join(found[0])) for found in walk(typer.main.get_command(app))]
)
def test_an_option_without_a_value_shows_none(names, command):
    context = typer.Context(command, info_name=" ".join(names))
    flags = [parameter for parameter in command.get_params(context) if getattr(parameter, "is_flag", False)]
    assert "help" in {flag.name for flag in flags}
    assert {flag.metavar for flag in flags} == {""}


def test_every_command_stands_under_its_question():
    group = typer.main.get_command(app)
    panels = {name: group.get_command(None, name).rich_help_panel for name in group.list_commands(None)}
    assert set(panels.values()) == set(QUESTIONS)
    assert {name for name, panel in panels.items() if panel == console.STAND} == {"align", "inject"}


def test_the_columns_of_data_stand_apart_from_a_command_s_own_options():
    said = run_here("specialty", "--help").stdout
    assert "<bool>" not in said
    own, _, data = said.partition(console.DATA)
    assert "--null" in own
    assert "--text-pair" not in own
    columns, _, asked = data.partition(console.ASKED)
    assert "--text-pair" in columns
    assert "--stride" in asked


def test_what_other_programs_call_so_is_understood():
    done = run_here("tasks", "--json")
    assert done.returncode == 2
    assert "--format json" in done.stderr
