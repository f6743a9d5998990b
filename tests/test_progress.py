"""Progress: silent where nobody looks, a bar that names the work where somebody does."""

import io
import sys
from types import SimpleNamespace

import pytest

from layerscope import progress as module
from layerscope.distributed import Team
from layerscope.errors import NOTICE
from layerscope.progress import bar_of, duration, hush, in_notebook, progress


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


def test_a_notebook_gets_a_bar_in_its_page_that_goes_when_the_work_is_done(monkeypatch):
    display = pytest.importorskip("IPython.display", reason="the docs extra is not installed")
    drawn = []

    class Handle:
        def update(self, page):
            drawn.append(page.data)

    def show(page, display_id):
        drawn.append(page.data)
        return Handle()

    monkeypatch.setattr(display, "display", show)
    monkeypatch.setattr("layerscope.progress.in_notebook", lambda: True)
    monkeypatch.setattr("layerscope.progress._EVERY", 0.0)
    with progress("reading <bert>", 4, "texts") as advance:
        advance(1)
        advance(2)
    assert "reading &lt;bert&gt;" in drawn[0]
    assert '<progress value="3" max="4"></progress> 3/4 texts, about' in drawn[2]
    assert drawn[-1] == ""


def test_work_of_unknown_length_has_a_bar_too():
    assert bar_of("work", 3, None, "texts", 1.0) == "<div>work <progress></progress> 3 texts</div>"


def test_only_a_kernel_is_a_notebook(monkeypatch):
    assert not in_notebook()
    shell = SimpleNamespace(kernel=object())
    monkeypatch.setitem(sys.modules, "IPython", SimpleNamespace(get_ipython=lambda: shell))
    assert in_notebook()
    shell.kernel = None
    assert not in_notebook()


@pytest.mark.parametrize(
    ("time", "words"),
    [(3, "3 s"), (80, "80 s"), (100, "1.7 min"), (3600, "60 min"), (9000, "2.5 h"), (2e5, "2.3 days")],
)
def test_times_in_words(time, words):
    assert duration(time) == words


def test_the_time_left_has_a_unit(monkeypatch):
    screen = Screen(terminal=True)
    monkeypatch.setattr(sys, "stderr", screen)
    for name, value in {"TERM": "xterm", "COLUMNS": "100", "LINES": "20"}.items():
        monkeypatch.setenv(name, value)
    monkeypatch.setattr("rich.progress.Task.time_remaining", property(lambda task: 700.0))
    with progress("work", 4, "steps") as advance:
        advance(1)
    assert "about 12 min left" in screen.getvalue()
    assert "0:1" not in screen.getvalue()


def test_without_a_terminal_long_work_is_a_line_for_every_tenth(monkeypatch, caplog):
    monkeypatch.setattr(sys, "stderr", Screen(False))
    clock = iter(range(0, 10_000, 3))
    monkeypatch.setattr(module, "time", SimpleNamespace(monotonic=lambda: next(clock)))
    with caplog.at_level(NOTICE, "layerscope"):
        with progress("texts of m", 40, "texts") as advance:
            for _ in range(40):
                advance(1)
        assert [record.getMessage() for record in caplog.records] == [
            f"texts of m: {10 * tenth}% of 40 texts, about {duration(3 * (40 - 4 * tenth))} left"
            for tenth in range(1, 10)
        ]
        caplog.clear()
        hush()
        try:
            with progress("texts of m", 40) as advance:
                advance(30)
        finally:
            hush(False)
        with progress("short", 40) as advance:  # done before it is worth a line
            advance(40)
        assert not caplog.records
