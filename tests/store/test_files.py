"""Files and folders are whole or not there."""

import pytest

from layerscope.errors import InputError
from layerscope.store import atomic_folder, files, is_sealed, seal, whole_file
from layerscope.store.files import remove_seals


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


def test_a_part_counts_only_while_it_is_what_was_sealed(tmp_path, caplog):
    part = tmp_path / "shard-00000.safetensors"
    assert not is_sealed(part)
    part.write_bytes(b"payload")
    assert not is_sealed(part)
    seal(part)
    assert is_sealed(part)
    part.write_bytes(b"paylaod")
    assert not is_sealed(part)
    assert "shard-00000.safetensors" in caplog.text
    remove_seals(tmp_path)
    assert [file.name for file in tmp_path.iterdir()] == [part.name]
