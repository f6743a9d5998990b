"""Folders are whole or not there, and never gone where one was."""

import errno
import os
import stat
import threading
from pathlib import Path

import pytest

from layerscope.errors import InputError
from layerscope.store import atomic, atomic_folder, check_free, settled
from layerscope.store.atomic import STAGING
from tests.helpers.jobs import killed_at


def write(target, text="new"):
    with atomic_folder(target, "card") as folder:
        (folder / "card").write_text(text)
        (folder / "deep").mkdir()
        (folder / "deep" / "er").write_text(text)


def names(folder):
    return sorted(path.name for path in folder.iterdir())


def test_a_folder_is_replaced_only_by_its_like(tmp_path):
    target = tmp_path / "out"
    write(target, "1")
    write(target, "2")
    assert (target / "card").read_text() == "2"
    other = tmp_path / "photos"
    other.mkdir()
    (other / "cat.jpg").write_text("meow")
    with pytest.raises(InputError, match="is not overwritten"):
        write(other)
    with pytest.raises(RuntimeError), atomic_folder(target, "card"):
        raise RuntimeError
    assert (target / "card").read_text() == "2"
    assert names(tmp_path) == ["out", "photos"]


@pytest.fixture(params=[True, False], ids=["exchanged", "in two steps"])
def can_exchange(request, monkeypatch):
    if not request.param:
        monkeypatch.setattr(atomic, "_renameat2", lambda: None)
    return request.param


def test_everything_is_on_the_disk_before_the_name_is_taken(can_exchange, tmp_path, monkeypatch):
    """So that a kill at any step leaves the earlier folder or the new one, or (in two steps) what restores it."""
    target, steps = tmp_path / "out", []
    write(target, "old")
    real = {"sync": atomic.sync, "exchange": atomic.exchange}
    monkeypatch.setattr(atomic, "sync", lambda path: (steps.append(("sync", path.name)), real["sync"](path)))
    monkeypatch.setattr(
        atomic, "exchange", lambda *paths: (steps.append(("exchange", "")), real["exchange"](*paths))[1]
    )
    write(target)
    kinds = [kind for kind, _ in steps]
    assert kinds.index("exchange") >= 4
    assert {name for kind, name in steps[: kinds.index("exchange")]} == {"card", "deep", "er", "new"}
    assert (target / "card").read_text() == "new"
    assert names(tmp_path) == ["out"]


def test_a_kill_at_any_step_leaves_one_of_both_whole(can_exchange, tmp_path):
    target, step = tmp_path / "out", 0
    write(target, "old")
    while killed_at(step := step + 1, lambda: write(target, "new")):
        if can_exchange:
            assert target.exists()
        texts = {(settled(target) / name).read_text() for name in ("card", "deep/er")}
        assert texts in ({"old"}, {"new"})
        write(target, "old")
        assert names(tmp_path) == ["out"]
    assert step > 20
    assert (target / "card").read_text() == "new"


def test_a_reader_always_finds_a_folder(tmp_path):
    """Looked at without a pause while it is replaced many times."""
    target, missing, stop = tmp_path / "out", [], threading.Event()
    write(target, "first")
    if not atomic.exchange(tmp_path / "out", tmp_path / "out"):
        pytest.skip("this disk cannot exchange")

    def look():
        while not stop.is_set():
            try:
                os.stat(target)
            except FileNotFoundError:
                missing.append(1)

    reader = threading.Thread(target=look)
    reader.start()
    for k in range(50):
        write(target, str(k))
    stop.set()
    reader.join()
    assert not missing


@pytest.mark.parametrize("at", ["sync", "rename"])
def test_a_folder_that_cannot_be_replaced_is_kept(can_exchange, at, tmp_path, monkeypatch):
    def full(*_):
        raise OSError(errno.ENOSPC, "No space left on device")

    target = tmp_path / "out"
    write(target, "old")
    if at == "sync":
        monkeypatch.setattr(atomic, "sync", full)
    elif can_exchange:
        monkeypatch.setattr(atomic, "exchange", full)
    else:
        real = atomic.Path.rename
        monkeypatch.setattr(atomic.Path, "rename", lambda own, to: full() if own.name == "new" else real(own, to))
    with pytest.raises(OSError, match="No space"):
        write(target)
    assert (target / "card").read_text() == "old"
    assert names(tmp_path) == ["out"]


def test_two_that_write_one_folder_leave_one_of_them_whole(can_exchange, tmp_path, monkeypatch):
    target, once, real = tmp_path / "out", [], atomic.sync_all

    def another_writes(folder):
        real(folder)
        if not once:
            once.append(1)
            write(target, "other")

    monkeypatch.setattr(atomic, "sync_all", another_writes)
    write(target)
    assert (target / "card").read_text() == "new"
    assert names(tmp_path) == ["out"]


def test_a_folder_that_was_moved_away_is_a_sentence(tmp_path, monkeypatch):
    (tmp_path / "out").mkdir()
    monkeypatch.setattr(atomic, "sync_all", lambda _: (tmp_path / "out").rename(tmp_path / "elsewhere"))
    with pytest.raises(InputError, match="does another command write to the same folder"):
        write(tmp_path / "out" / "run")


@pytest.mark.parametrize(
    ("target", "where"),
    [
        *[(name, "is") for name in ("model", "model/", "./model", "other/../model", "link", "link/.", "parent/model")],
        *[("model/small", "lies in"), ("link/small", "lies in"), ("new/../model/a/b", "lies in"), (".", "holds")],
    ],
)
def test_what_is_read_is_not_written_to_however_it_is_spelled(target, where, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    for folder in ("model", "other"):
        write(tmp_path / folder, folder)
    (tmp_path / "link").symlink_to("model")
    (tmp_path / "parent").symlink_to(tmp_path)
    for source in ("model", tmp_path / "model", "link", "parent/model"):
        with pytest.raises(InputError, match=rf"{where} the folder of the model that is read"):
            check_free(Path(target), "card", Path("other/elsewhere"), Path(source))
    check_free(Path("models"), "card", Path("model"), None)
    assert (tmp_path / "model" / "card").read_text() == "model"


def test_a_name_that_no_disk_takes_is_a_sentence(tmp_path):
    with pytest.raises(InputError, match="cannot be written: File name too long"):
        check_free(tmp_path / ("x" * 300), "card")
    write(tmp_path / ("x" * 255))
    assert names(tmp_path) == ["x" * 255]


def test_a_link_is_replaced_and_its_folder_left_alone(can_exchange, tmp_path):
    write(tmp_path / "far" / "away", "precious")
    (tmp_path / "out").symlink_to(tmp_path / "far" / "away")
    write(tmp_path / "out")
    assert (tmp_path / "far" / "away" / "card").read_text() == "precious"
    assert (tmp_path / "out" / "card").read_text() == "new"
    assert names(tmp_path) == ["far", "out"]


def test_others_may_read_what_is_published_but_not_what_is_written(tmp_path):
    before = os.umask(0o022)
    try:
        with atomic_folder(tmp_path / "out", "card") as folder:
            assert folder.parent.name.startswith(STAGING)
            assert stat.S_IMODE(folder.parent.stat().st_mode) == 0o1700
            (folder / "card").write_text("x")
    finally:
        os.umask(before)
    assert stat.S_IMODE((tmp_path / "out").stat().st_mode) == 0o755
