"""Commands are made of the public functions that they call."""

import re
from pathlib import Path

import pytest
import typer

from layerscope import cli
from layerscope.cli import COMMANDS, app
from layerscope.cli.command import MODEL, NOT_OF_LOAD, NOT_OF_TASK, TASK, Given, columns, names, read
from layerscope.cli.signature import Parameter, function
from layerscope.errors import InputError
from tests.helpers.cli import run_here

OF_THE_STORE = {"cache"}  # which works on what is stored, and calls no function of the package
OF_NO_FUNCTION = {"demo"}  # a show of several
OPEN_NO_MODEL = {"cache", "figures", "measures", "report", "tasks"}
GROUP = typer.main.get_command(app)
DERIVED = sorted(set(COMMANDS) - OF_THE_STORE - OF_NO_FUNCTION)


def declared(name):
    """The names of a command's parameters, and their help texts."""
    return {p.name: getattr(p, "help", None) for p in GROUP.get_command(None, name).params}


@pytest.mark.parametrize("name", DERIVED)
def test_every_parameter_of_its_functions_is_an_option_or_left_out_for_a_reason(name):
    command = GROUP.get_command(None, name)
    options = declared(name)
    assert command.modes
    for called in command.modes.values():
        for parameter in function(called).parameters.values():
            if parameter.name in command.left_out:
                assert len(command.left_out[parameter.name]) > 5
            else:
                assert parameter.name in options, f"{called}({parameter.name}=) is no option of {name}"
    known = {name for called in command.modes.values() for name in function(called).parameters}
    assert set(command.left_out) <= known


@pytest.mark.parametrize("name", DERIVED)
def test_help_texts_are_those_of_the_docstrings(name):
    command = GROUP.get_command(None, name)
    for called in command.modes.values():
        for parameter in function(called).parameters.values():
            text = declared(name).get(parameter.name)
            if parameter.name not in command.derived:
                continue
            texts = [p.help for m in command.modes.values() if (p := function(m).parameters.get(parameter.name))]
            assert any(text[-len(each) + 1 :] == each[1:] or text == each for each in texts)


def test_no_help_text_is_written_twice():
    """What belongs to the terminal is declared once, and repeats no docstring."""
    called = {mode for name in DERIVED for mode in GROUP.get_command(None, name).modes.values()} | {"load", "task"}
    derived = {parameter.help for name in called for parameter in function(name).parameters.values()}
    sources = {path.name: path.read_text(encoding="utf-8") for path in Path(cli.__file__).parent.rglob("*.py")}
    written = [text for source in sources.values() for text in re.findall(r'help="([^"]+)"', source)]
    assert len(written) == len(set(written))
    assert not derived & set(written)


@pytest.mark.parametrize("name", DERIVED)
def test_the_help_ends_with_the_same_calls_in_python(name):
    command = GROUP.get_command(None, name)
    end = command.epilog.split("In Python:")[1]
    for called in command.modes.values():
        assert function(called).call in end


def test_every_command_that_opens_a_model_lets_its_float_type_and_device_be_chosen():
    without = {name for name in COMMANDS if not {"dtype", "device"} <= set(declared(name))}
    assert without == OPEN_NO_MODEL


def test_tasks_and_models_bring_their_own_options():
    assert set(columns()) == set(function("task").parameters) - set(NOT_OF_TASK)
    for name in DERIVED:
        called = [function(mode) for mode in GROUP.get_command(None, name).modes.values()]
        types = {each for one in called for parameter in one.parameters.values() for each in parameter.types}
        if TASK in types:
            assert set(columns()) <= set(declared(name))
        if MODEL in types:
            assert set(function("load").parameters) - set(NOT_OF_LOAD) <= {*declared(name), "seed"}


def test_names_in_angle_brackets_are_not_lost():
    assert "garden:NAME" in run_here("specialty", "--help").stdout


def parameter(annotation, name="values"):
    return Parameter(name, annotation, "None", "")


def test_texts_are_read_as_the_annotation_says():
    assert read(parameter("Sequence[int] | None"), "0-2,5") == [0, 1, 2, 5]
    assert read(parameter("int | Sequence[int] | None"), "4") == 4
    assert read(parameter("int | Sequence[int] | None"), "1,2") == [1, 2]
    assert read(parameter("Sequence[int] | str | None"), "all") == "all"
    assert read(parameter("float | Sequence[float] | None"), "1e-5") == 1e-5
    assert read(parameter("Sequence[float]"), "0.5,0.25") == [0.5, 0.25]
    assert read(parameter("str | Sequence[str]"), " cka, svcca ,") == ["cka", "svcca"]
    assert read(parameter("float | str"), "5%") == "5%"
    assert read(parameter("bool"), True) is True
    with pytest.raises(InputError, match="--values is 'half'; write a number"):
        read(parameter("Sequence[float]"), "half")
    with pytest.raises(InputError, match="is not a list of numbers"):
        read(parameter("Sequence[int]"), "1-")
    with pytest.raises(InputError, match="No measure was named"):
        names(" , ", "measure")


def test_what_a_command_does_not_change_is_read_as_it_was_given():
    given = Given(
        {"one training": "tune", "--study": "strategy_study"}, {"seeds": "1,2", "epochs": None, "methods": "a,b"}
    )
    assert given.arguments("strategy_study", seeds=None) == {"methods": ["a", "b"], "seeds": [1, 2]}
    assert given.arguments("strategy_study", seeds=[0])["seeds"] == [0]
    with pytest.raises(InputError, match="--methods is for --study"):
        given.arguments("tune")


def test_an_option_of_another_mode_is_refused_by_name(tmp_path):
    done = run_here("truncate", tmp_path, "--keep", "2", "--task", "sst2", "--train-limit", "5")
    assert done.returncode == 2
    assert "--train-limit is for --curve; give that, or leave --train-limit out." in done.stderr
