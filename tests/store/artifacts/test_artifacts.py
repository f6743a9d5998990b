import errno
import functools
import json
import multiprocessing
import os
import time
from pathlib import Path

import pytest

from layerscope.errors import StoreError
from layerscope.store import Store, full_disk
from tests.helpers.jobs import abandoned_staging

SPEC = {"a": 1, "b": "x"}


def builder(text="payload", calls=None):
    def build(folder: Path) -> None:
        if calls is not None:
            calls.append(folder)
        (folder / "data.txt").write_text(text)

    return build


def test_present_means_done(tmp_path):
    store, calls = Store(tmp_path), []
    first = store.produce("thing", SPEC, builder(calls=calls))
    second = store.produce("thing", {"b": "x", "a": 1}, builder(calls=calls))
    assert first == second
    assert len(calls) == 1
    assert (first / "data.txt").read_text() == "payload"
    assert json.loads((first / "artifact.json").read_text())["spec"] == SPEC


@pytest.mark.parametrize("damage", ["flip", "cut", "remove", "card"])
def test_a_damaged_artifact_is_noticed_set_aside_and_rebuilt(damage, tmp_path, caplog):
    store = Store(tmp_path)
    folder = store.produce("thing", SPEC, builder())
    file = folder / "data.txt"
    if damage == "flip":
        file.write_text("pAyload")
    elif damage == "cut":
        file.write_text("pay")
    elif damage == "remove":
        file.unlink()
    else:
        (folder / "artifact.json").write_text("{")
    assert store.entries()[0].fault() is not None
    again = store.produce("thing", SPEC, builder())
    assert (again / "data.txt").read_text() == "payload"
    assert "damaged" in caplog.text
    assert sorted(e.state for e in store.entries()) == ["damaged", "done"]


def test_an_interrupted_build_leaves_nothing_that_counts_and_goes_on_later(tmp_path):
    store = Store(tmp_path)

    def half(folder):
        (folder / "first.txt").write_text("kept")
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        store.produce("thing", SPEC, half)
    assert [e.state for e in store.entries()] == ["unfinished"]
    seen = []

    def rest(folder):
        seen.append((folder / "first.txt").read_text())
        (folder / "second.txt").write_text("new")

    folder = store.produce("thing", SPEC, rest)
    assert seen == ["kept"]
    assert {p.name for p in folder.iterdir()} == {"first.txt", "second.txt", "artifact.json"}
    assert [e.state for e in store.entries()] == ["done"]


def test_a_build_that_leaves_nothing_is_an_error(tmp_path):
    with pytest.raises(StoreError, match="left no file"):
        Store(tmp_path).produce("thing", SPEC, lambda folder: None)


def _produce(root, log):
    def build(folder):
        with open(log, "a") as file:
            file.write(f"{os.getpid()}\n")
        time.sleep(0.5)
        (folder / "data.txt").write_text("payload")

    Store(root).produce("thing", SPEC, build)


def in_two_processes(root, log):
    context = multiprocessing.get_context("fork")
    workers = [context.Process(target=_produce, args=(root, log)) for _ in range(2)]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join(30)
        assert worker.exitcode == 0


def test_two_processes_do_the_work_once(tmp_path):
    log = tmp_path / "log"
    in_two_processes(tmp_path / "store", log)
    assert len(log.read_text().split()) == 1


def test_removing(tmp_path):
    store = Store(tmp_path)
    store.produce("thing", SPEC, builder())
    entry = store.entries()[0]
    store.remove(entry)
    assert store.entries() == []
    store.remove(entry)  # gone meanwhile


def test_two_that_find_the_same_damage_rebuild_once(tmp_path):
    store = Store(tmp_path)
    folder = store.produce("thing", SPEC, builder())
    (folder / "data.txt").write_text("damaged")
    log = tmp_path / "log"
    in_two_processes(tmp_path, log)
    assert len(log.read_text().split()) == 1


def test_a_store_that_is_a_file_gives_a_sentence(tmp_path):
    (tmp_path / "file").write_text("x")
    with pytest.raises(StoreError, match="LAYERSCOPE_HOME"):
        Store(tmp_path / "file").produce("thing", SPEC, builder())


@pytest.mark.skipif(os.geteuid() == 0, reason="root may write anywhere")
def test_a_folder_that_may_not_be_written_gives_a_sentence(tmp_path):
    tmp_path.chmod(0o500)
    with pytest.raises(StoreError, match="LAYERSCOPE_HOME"):
        Store(tmp_path / "x").produce("thing", SPEC, builder())


def test_a_full_disk_gives_a_sentence_and_no_artifact(tmp_path):
    def full(folder):
        (folder / "part.txt").write_text("x")
        raise OSError(errno.ENOSPC, "No space left on device")

    with pytest.raises(StoreError, match="disk is full"):
        Store(tmp_path).produce("thing", SPEC, full)
    assert [e.state for e in Store(tmp_path).entries()] == ["unfinished"]


def test_a_full_disk_is_known_in_another_librarys_words(tmp_path):
    from safetensors import SafetensorError

    def build(folder: Path) -> None:
        raise SafetensorError("Error while serializing: I/O error: No space left on device (os error 28)")

    with pytest.raises(StoreError, match="disk is full"):
        Store(tmp_path).produce("thing", SPEC, build)


@pytest.mark.parametrize(
    "change",
    [
        lambda card: [card],
        lambda card: {name: value for name, value in card.items() if name != "files"},
        lambda card: {**card, "files": {}},
        lambda card: {**card, "files": {"data.txt": None}},
        lambda card: {**card, "files": {"data.txt": {"size": [], "checksum": {}}}},
        lambda card: {**card, "files": {"../../../secret": {"size": 1, "checksum": ""}}},
        lambda card: {**card, "files": {"a\0b": {"size": 1, "checksum": ""}}},
        lambda card: {**card, "files": {"x" * 300: {"size": 1, "checksum": ""}}},
        lambda card: {**card, "key": 7},
        lambda card: {**card, "spec": 7},
        lambda card: {**card, "created": {}},
        lambda card: {**card, "kind": "\ud800"},
        lambda card: functools.reduce(lambda inner, _: [inner], range(100), card),
    ],
    ids=[
        *("a list", "no files", "empty", "no checksum", "sizes", "elsewhere", "null", "long", "key", "spec"),
        *("created", "surrogate", "deep"),
    ],
)
def test_a_card_of_another_shape_is_damage(change, tmp_path, caplog):
    store = Store(tmp_path)
    card = store.produce("thing", SPEC, builder()) / "artifact.json"
    card.write_text(json.dumps(change(json.loads(card.read_text()))))
    assert store.entries()[0].fault() is not None
    assert (store.produce("thing", SPEC, builder()) / "data.txt").read_text() == "payload"
    assert sorted(e.state for e in store.entries()) == ["damaged", "done"]


def test_what_a_killed_try_left_in_the_folder_is_not_published(tmp_path):
    store = Store(tmp_path)

    def build(folder: Path) -> None:
        for parent in (folder, folder / "checkpoint"):
            parent.mkdir(exist_ok=True)
            (abandoned_staging(parent) / "config.json").write_text("{}")
        (folder / "checkpoint" / "model").write_text("whole")

    folder = store.produce("thing", SPEC, build)
    assert sorted(path.name for path in folder.rglob("*")) == ["artifact.json", "checkpoint", "model"]
    assert store.entries()[0].fault() is None


def test_a_removal_that_is_killed_leaves_nothing_damaged(tmp_path, monkeypatch):
    store = Store(tmp_path)
    store.produce("thing", SPEC, builder())
    monkeypatch.setattr("layerscope.store.atomic.shutil.rmtree", lambda *_, **__: None)  # as a kill just before it
    store.remove(store.entries()[0])
    assert store.entries() == []


@pytest.mark.parametrize("make", ["a file", "a link", "a pipe"])
def test_what_is_no_artifact_at_all_is_set_aside(make, tmp_path):
    store = Store(tmp_path)
    folder = store.produce("thing", SPEC, builder())
    if make == "a pipe":
        (folder / "data.txt").unlink()
        os.mkfifo(folder / "data.txt")
    else:
        folder.rename(tmp_path / "elsewhere")
        if make == "a file":
            folder.write_text("x")
        else:
            (tmp_path / "elsewhere" / "data.txt").write_text("another")
            folder.symlink_to(tmp_path / "elsewhere")
    assert (store.produce("thing", SPEC, builder()) / "data.txt").read_text() == "payload"


@pytest.mark.parametrize(
    "words",
    [
        "[enforce fail at inline_container.cc:672] . unexpected pos 42115 vs 42068",
        "basic_ios::clear: iostream error",
        "PytorchStreamWriter failed writing file data/3: file write failed",
    ],
)
def test_an_archive_that_torch_cannot_end_is_a_full_disk(words):
    assert full_disk(RuntimeError(words)) == errno.ENOSPC
    assert full_disk(RuntimeError("PytorchStreamReader failed reading zip archive")) is None


@pytest.mark.parametrize("code", [errno.ENOSPC, errno.EDQUOT, errno.EFBIG])
def test_every_way_to_be_full_is_one(code, tmp_path):
    from safetensors import SafetensorError

    for error in (OSError(code, os.strerror(code)), SafetensorError(f"I/O error: {os.strerror(code)} (os error)")):
        with pytest.raises(StoreError, match=r"disk is full|ulimit -f"):
            Store(tmp_path).produce("thing", SPEC, _raising(error))
        assert full_disk(error) == code
    assert full_disk(OSError(errno.ENOENT, "gone")) is None


def _raising(error):
    def build(folder: Path) -> None:
        raise error

    return build


def test_what_is_there_and_whole_is_kept(tmp_path):
    store = Store(tmp_path)
    assert store.find("thing", SPEC) is None
    folder = store.produce("thing", SPEC, builder())
    assert store.find("thing", SPEC) == folder
    (folder / "data.txt").write_text("damaged")
    assert store.find("thing", SPEC) is None
