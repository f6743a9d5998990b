"""Links beside a folder show all files of one run, at any moment; what is somebody else's stays."""

import errno
import os

import pytest

from layerscope.store import atomic, clear, linked_folder, taken
from tests.helpers.jobs import killed_at


def write(target, run, *names, plain=(), adding=False):
    with linked_folder(target, "card", names, plain=plain, adding=adding) as folder:
        (folder / "card").write_text(run)
        for name in names:
            (folder / name).write_text(run)


def seen(out):
    """What each file beside the folder holds, links followed; a link that leads nowhere is none."""
    return {path.name: path.read_text() for path in out.iterdir() if path.is_file()}


def left(out):
    """Every name beside the folder."""
    return sorted(path.name for path in out.iterdir() if path.name != "record")


@pytest.fixture(params=[True, False], ids=["exchanged", "in two steps"])
def can_exchange(request, monkeypatch):
    if not request.param:
        monkeypatch.setattr(atomic, "_renameat2", lambda: None)
    return request.param


def start(out, earlier):
    """An output folder as an earlier run left it; gives what can be seen there."""
    target = out / "record"
    if earlier == "nothing":
        out.mkdir(exist_ok=True)
        return {}
    write(target, "old", "a.csv", "old.csv")
    if earlier == "copies":  # as before there were links
        for name in ("a.csv", "old.csv"):
            (out / name).unlink()
            (out / name).write_text("old")
        (target / "old.csv").unlink()
    return {"a.csv": "old", "old.csv": "old"}


@pytest.mark.parametrize("earlier", ["nothing", "links", pytest.param("copies", marks=pytest.mark.slow)])
def test_a_kill_at_any_step_shows_one_of_both_runs(earlier, can_exchange, tmp_path):
    plain = ("a.csv", "old.csv") if earlier == "copies" else ()
    step, finished = 0, {"a.csv": "new", "new.csv": "new"}
    while True:
        out = tmp_path / f"out{step}"
        before = start(out, earlier)
        step += 1
        if not killed_at(step, lambda out=out: write(out / "record", "new", "a.csv", "new.csv", plain=plain)):
            break
        if can_exchange:  # else there is a moment without any
            assert seen(out) in (before, finished)
        clear(out)
        assert seen(out) in (before, finished)
        assert left(out) == sorted(seen(out))  # no link to nothing, and nothing unfinished
    assert step > 20
    assert seen(out) == finished
    assert os.readlink(out / "new.csv") == "record/new.csv"


def test_what_is_somebody_else_s_stays(tmp_path):
    target = tmp_path / "record"
    (tmp_path / "a.csv").write_text("mine")
    (tmp_path / "b.csv").symlink_to(tmp_path / "a.csv")
    (tmp_path / "c.csv").symlink_to("record/other.csv")
    for run in ("1", "2"):
        assert taken(target, ["a.csv", "b.csv", "c.csv", "d.csv"], ["b.csv"]) == ["a.csv", "b.csv", "c.csv"]
        write(target, run, "a.csv", "b.csv", "c.csv", "d.csv", plain=["b.csv"])
        assert seen(tmp_path) == {"a.csv": "mine", "b.csv": "mine", "d.csv": run}
    assert (target / "a.csv").read_text() == "2"
    assert os.readlink(tmp_path / "c.csv") == "record/other.csv"


def test_where_there_are_no_links_there_are_copies(tmp_path, monkeypatch):
    def no_links(*_, **__):
        raise OSError(errno.EPERM, "Operation not permitted")

    monkeypatch.setattr(os, "symlink", no_links)
    write(tmp_path / "record", "1", "a.csv", "b.csv")
    assert seen(tmp_path) == {"a.csv": "1", "b.csv": "1"}
    write(tmp_path / "record", "2", "a.csv", plain=["a.csv", "b.csv"])
    assert left(tmp_path) == ["a.csv"]
    assert (tmp_path / "a.csv").read_text() == "2"
    assert not (tmp_path / "a.csv").is_symlink()


def test_a_full_disk_leaves_no_link_to_nothing(tmp_path, monkeypatch):
    def full(*_):
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(atomic, "exchange", full)
    write(tmp_path / "record", "old", "a.csv")
    with pytest.raises(OSError, match="No space"):
        write(tmp_path / "record", "new", "a.csv", "b.csv")
    assert left(tmp_path) == ["a.csv"]
    assert seen(tmp_path) == {"a.csv": "old"}


def test_folders_are_shown_too_and_links_replace_those_of_before(tmp_path):
    (tmp_path / "1").mkdir()
    (tmp_path / "1" / "x").write_text("old")
    for run in ("new", "newer"):
        with linked_folder(tmp_path / "record", "card", ["1"], plain=["1"]) as folder:
            (folder / "card").touch()
            (folder / "1").mkdir()
            (folder / "1" / "x").write_text(run)
        assert (tmp_path / "1" / "x").read_text() == run
        assert (tmp_path / "1").is_symlink()


def test_what_others_added_is_kept_until_it_is_removed(tmp_path):
    target = tmp_path / "record"
    write(target, "1", "a.csv", "b.csv", "c.csv", adding=True)
    (tmp_path / "c.csv").unlink()
    write(target, "2", "b.csv", "d.csv", adding=True)
    assert seen(tmp_path) == {"a.csv": "1", "b.csv": "2", "d.csv": "2"}
    assert left(tmp_path) == ["a.csv", "b.csv", "d.csv"]


def test_an_output_that_moves_shows_the_same(tmp_path):
    write(tmp_path / "out" / "record", "1", "a.csv")
    (tmp_path / "out").rename(tmp_path / "elsewhere")
    assert seen(tmp_path / "elsewhere") == {"a.csv": "1"}
