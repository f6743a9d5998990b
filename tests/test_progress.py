"""Progress: silent where nobody looks, a bar that names the work where somebody does."""

import io
import sys

import pytest

from layerscope.progress import progress
from layerscope.team import Team


class Screen(io.StringIO):
    """A stderr that is a terminal, or is none."""

    def __init__(self, terminal):
        super().__init__()
        self._terminal = terminal

    def isatty(self):
        return self._terminal


@pytest.fixture
def shown(monkeypatch):
    """What is shown of four steps of some work."""

    def show(title, terminal=True):
        screen = Screen(terminal)
        monkeypatch.setattr(sys, "stderr", screen)
        for name, value in {"TERM": "xterm", "COLUMNS": "100", "LINES": "20"}.items():
            monkeypatch.setenv(name, value)
        with progress(title, 4, "steps") as advance:
            advance(4)
        return screen.getvalue()

    return show


def test_nothing_is_written_where_stderr_is_no_terminal(shown):
    assert shown("work", terminal=False) == ""


def test_a_terminal_shows_title_count_and_unit(shown):
    said = shown("reading bert")
    assert "reading bert" in said
    assert "4/4" in said
    assert "steps" in said


def test_a_long_title_leaves_room_for_the_numbers(shown):
    said = shown("m" * 300)
    assert "m" * 51 not in said
    assert "…" in said
    assert "4/4" in said


def test_only_the_first_process_shows_a_bar(shown, monkeypatch):
    monkeypatch.setattr(Team, "current", staticmethod(lambda: Team(1, 2)))
    assert shown("work") == ""


def test_an_error_in_the_work_comes_through():
    with pytest.raises(RuntimeError, match="boom"), progress("work", 3):
        raise RuntimeError("boom")


@pytest.mark.parametrize("name", ["[1/2] task", "a[/b]", "runs/[bold]x"])
def test_brackets_in_a_name_are_no_markup(name, shown):
    assert name in shown(name)
