"""Tables in a terminal: nothing is broken in two that can be kept whole."""

import pytest
from rich.text import Text

from layerscope.cli.console import Column, Format, show, side_by_side, widths


@pytest.fixture
def terminal(monkeypatch, capsys):
    """What a terminal of some width shows of rows."""

    def shown(rows, room):
        monkeypatch.setattr("sys.stdout.isatty", lambda: True)
        monkeypatch.setenv("COLUMNS", str(room))
        monkeypatch.setenv("TERM", "xterm")
        show(rows, Format.table)
        return Text.from_ansi(capsys.readouterr().out).plain

    return shown


@pytest.mark.parametrize("room", [40, 80, 100, 140, 300])
def test_a_wide_matrix_keeps_its_numbers_whole(room, terminal):
    layers = [str(layer) for layer in range(13)]
    rows = [{"layer": row, **{column: 0.06854 + k for k, column in enumerate(layers)}} for row in layers]
    printed = terminal(rows, room)
    lines = printed.splitlines()
    assert max(map(len, lines)) <= room
    words = printed.split()
    assert all(words.count(f"{0.06854 + k:.4g}") == 13 for k in range(13))
    parts = sum("layer" in line for line in lines)
    assert (parts == 1) == (room >= 140)
    assert words.count("layer") == parts  # the first column stands in each part


def test_text_wraps_between_words(terminal):
    rows = [{"name": "mnli", "labels": "entailment, neutral, contradiction", "n": 392702, "title": "does it " * 10}]
    printed = terminal(rows, 60)
    assert max(map(len, printed.splitlines())) <= 60
    assert {"mnli", "entailment,", "contradiction", "392702"} <= set(printed.split())


def test_what_fits_stays_in_one_table(terminal):
    assert terminal([{"a": 1, "b": "x y"}], 80).split("\n")[3].split() == ["1", "x", "y"]


def test_a_word_longer_than_a_terminal_is_broken():
    columns = [
        Column("path", ["a" * 200]),
        Column(
            "n",
            [
                1,
            ],
        ),
    ]
    assert list(side_by_side(columns, 80)) == [columns]
    assert sum(width + 3 for width in widths(columns, 80)) + 1 == 80


def test_a_missing_number_leaves_a_column_of_numbers():
    assert Column("examples", [872, None]).numeric
    assert not Column("labels", ["872", None]).numeric
