"""How help texts look."""

import pytest
import typer
from command import run_here

from layerscope.cli import app, helptext

QUESTIONS = (helptext.ALIKE, helptext.LOSE, helptext.TUNE, helptext.STAND, helptext.REST)


def walk(group, before=()):
    yield before, group
    for name, command in getattr(group, "commands", {}).items():
        yield from walk(command, (*before, name))


@pytest.mark.parametrize(
    ("names", "command"), [pytest.param(*found, id=" ".join(found[0])) for found in walk(typer.main.get_command(app))]
)
def test_an_option_without_a_value_shows_none(names, command):
    context = typer.Context(command, info_name=" ".join(names))
    flags = [parameter for parameter in command.get_params(context) if getattr(parameter, "is_flag", False)]
    assert "help" in {flag.name for flag in flags}
    assert {flag.metavar for flag in flags} == {""}


def test_every_command_stands_under_its_question():
    commands = typer.main.get_command(app).commands
    panels = {name: command.rich_help_panel for name, command in commands.items()}
    assert set(panels.values()) == set(QUESTIONS)
    assert {name for name, panel in panels.items() if panel == helptext.STAND} == {"align", "inject"}


def test_the_columns_of_data_stand_apart_from_a_command_s_own_options():
    said = run_here("specialty", "--help").stdout
    assert "<bool>" not in said
    own, _, data = said.partition(helptext.DATA)
    assert "--null" in own
    assert "--text-pair" not in own
    columns, _, asked = data.partition(helptext.RUNNING)
    assert "--text-pair" in columns
    assert "--stride" in asked


def test_what_other_programs_call_so_is_understood():
    done = run_here("tasks", "--json")
    assert done.returncode == 2
    assert "--format json" in done.stderr
