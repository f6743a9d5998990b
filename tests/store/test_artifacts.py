import json
import multiprocessing
import os
import time
from pathlib import Path

import pytest

from layerscope.errors import InputError, StoreError
from layerscope.store import Store, atomic_folder, digest, files, whole_file
from layerscope.store.keys import key_of

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


def test_any_change_of_the_spec_is_another_artifact():
    keys = {key_of("k", s) for s in (SPEC, {**SPEC, "a": 2}, {**SPEC, "c": None}, {"a": 1})}
    assert len(keys) == 4
    assert key_of("other", SPEC) != key_of("k", SPEC)
    assert digest("ab", "c") != digest("a", "bc")


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


def test_two_processes_do_the_work_once(tmp_path):
    log = tmp_path / "log"
    context = multiprocessing.get_context("fork")
    workers = [context.Process(target=_produce, args=(tmp_path / "store", log)) for _ in range(2)]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join(30)
        assert worker.exitcode == 0
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
    context = multiprocessing.get_context("fork")
    workers = [context.Process(target=_produce, args=(tmp_path, log)) for _ in range(2)]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join(30)
        assert worker.exitcode == 0
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
    import errno

    def full(folder):
        (folder / "part.txt").write_text("x")
        raise OSError(errno.ENOSPC, "No space left on device")

    with pytest.raises(StoreError, match="disk is full"):
        Store(tmp_path).produce("thing", SPEC, full)
    assert [e.state for e in Store(tmp_path).entries()] == ["unfinished"]


def test_a_folder_is_replaced_only_by_its_like(tmp_path):
    target = tmp_path / "out"
    with atomic_folder(target, "card.json") as folder:
        (folder / "card.json").write_text("1")
    with atomic_folder(target, "card.json") as folder:
        (folder / "card.json").write_text("2")
    assert (target / "card.json").read_text() == "2"
    other = tmp_path / "photos"
    other.mkdir()
    (other / "cat.jpg").write_text("meow")
    with pytest.raises(InputError, match="is not overwritten"), atomic_folder(other, "card.json"):
        pass
    with pytest.raises(RuntimeError), atomic_folder(target, "card.json") as folder:
        raise RuntimeError
    assert (target / "card.json").read_text() == "2"
    assert sorted(p.name for p in tmp_path.iterdir()) == ["out", "photos"]


def test_a_full_disk_is_known_in_another_librarys_words(tmp_path):
    from safetensors import SafetensorError

    def build(folder: Path) -> None:
        raise SafetensorError("Error while serializing: I/O error: No space left on device (os error 28)")

    with pytest.raises(StoreError, match="disk is full"):
        Store(tmp_path).produce("thing", SPEC, build)


def test_a_file_is_whole_or_not_there(tmp_path):
    def fail() -> None:
        with whole_file(tmp_path / "a.csv") as temporary:
            temporary.write_text("half of what")
            raise OSError("full")

    (tmp_path / "a.csv").write_text("old")
    with pytest.raises(OSError, match="full"):
        fail()
    assert [path.name for path in tmp_path.iterdir()] == ["a.csv"]
    assert (tmp_path / "a.csv").read_text() == "old"
    with whole_file(tmp_path / "a.csv") as temporary:
        temporary.write_text("new")
    assert [path.name for path in tmp_path.iterdir()] == ["a.csv"]
    assert (tmp_path / "a.csv").read_text() == "new"


def replaced(target, monkeypatch, before):
    """Write `target` anew while `before` happens just as it is about to take its name."""
    real = files.publish

    def publish(source, place):
        before(place)
        real(source, place)

    monkeypatch.setattr(files, "publish", publish)
    with atomic_folder(target, "card") as folder:
        (folder / "card").write_text("new")


def test_two_that_write_one_folder_leave_one_of_them_whole(tmp_path, monkeypatch):
    target, once = tmp_path / "out", []

    def another_writes(place):
        if not once:
            once.append(place.mkdir())
            (place / "other").write_text("x")

    with atomic_folder(target, "card") as folder:
        (folder / "card").write_text("old")
    replaced(target, monkeypatch, another_writes)
    assert (target / "card").read_text() == "new"
    assert [path.name for path in tmp_path.iterdir()] == ["out"]


def test_a_folder_that_cannot_be_replaced_is_put_back(tmp_path, monkeypatch):
    def full(_):
        raise OSError(28, "No space left on device")

    target = tmp_path / "out"
    with atomic_folder(target, "card") as folder:
        (folder / "card").write_text("old")
    with pytest.raises(OSError, match="No space"):
        replaced(target, monkeypatch, full)
    assert (target / "card").read_text() == "old"
    assert [path.name for path in tmp_path.iterdir()] == ["out"]


def test_a_folder_that_was_moved_away_is_a_sentence(tmp_path, monkeypatch):
    (tmp_path / "out").mkdir()
    with pytest.raises(InputError, match="does another command write to the same folder"):
        replaced(tmp_path / "out" / "run", monkeypatch, lambda _: (tmp_path / "out").rename(tmp_path / "elsewhere"))
