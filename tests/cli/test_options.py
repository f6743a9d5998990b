"""Options that several commands share."""

import inspect
from dataclasses import asdict

import pytest
import typer
from command import run_here

from layerscope.cli import app
from layerscope.cli.options import COLUMNS, Columns, aligner_options, integers, names, shares, with_columns
from layerscope.errors import InputError


def test_names_in_angle_brackets_are_not_lost():
    assert "garden:NAME" in run_here("specialty", "--help").stdout


def test_numbers_and_ranges():
    assert integers("0,3,6") == [0, 3, 6]
    assert integers("0-2, 5") == [0, 1, 2, 5]
    for text in ("a", "1-", "-1", "1,,2", ""):
        with pytest.raises(InputError, match="is not a list of numbers"):
            integers(text)


def test_names_and_shares():
    assert names(" cka, svcca ,", "measure") == ["cka", "svcca"]
    assert shares("0.5,0.25") == [0.5, 0.25]
    with pytest.raises(InputError, match="'half' is not a list of shares"):
        shares("half")


def test_columns_are_written_as_they_were_given():
    columns = Columns(text="words", text_pair="more words", skip_bad=True)
    assert columns.words() == ["--text", "words", "--text-pair", "more words", "--skip-bad"]
    assert Columns().words() == []


def test_a_command_has_an_option_for_every_column():
    @with_columns
    def command(model: str, columns: Columns = COLUMNS, limit: int = 3) -> None:
        seen.append((model, columns, limit))

    seen = []
    assert list(inspect.signature(command).parameters) == ["model", *asdict(Columns()), "limit"]
    command(model="m", limit=4, **{**asdict(Columns()), "label": "stars"})
    assert seen == [("m", Columns(label="stars"), 4)]


def test_options_of_aligners_go_to_those_that_have_them():
    assert aligner_options(None, "linear") == {}
    assert aligner_options(["linear", "inn"], "plain") == {"inn": {"start": "plain"}}
    assert set(aligner_options(None, "linear", pad=True)) >= {"identity", "procrustes"}
    with pytest.raises(InputError, match=r"--start plain is for .*, and only linear was asked for"):
        aligner_options(["linear"], "plain")


OPEN_NO_MODEL = {"cache ls", "cache verify", "cache rm", "figures", "measures", "report", "tasks"}


def _commands(group, before=()):
    for name, command in group.commands.items():
        if hasattr(command, "commands"):
            yield from _commands(command, (*before, name))
        else:
            yield " ".join((*before, name)), {option for p in command.params for option in p.opts}


def test_every_command_that_opens_a_model_lets_its_float_type_and_device_be_chosen():
    known = dict(_commands(typer.main.get_command(app)))
    without = {name for name, options in known.items() if not {"--dtype", "--device"} <= options}
    assert without == OPEN_NO_MODEL
