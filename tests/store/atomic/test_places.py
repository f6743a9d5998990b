"""Notes of the folders in which work may be unfinished."""

import os
from pathlib import Path

import pytest

from layerscope.store.atomic import forget, home, remember, remembered


@pytest.fixture(autouse=True)
def store(tmp_path, monkeypatch) -> Path:
    monkeypatch.setenv("LAYERSCOPE_HOME", str(tmp_path / "store"))
    return tmp_path / "store"


def test_a_folder_is_remembered_once_until_it_is_forgotten(tmp_path, monkeypatch):
    strange = tmp_path / os.fsdecode(b"caf\xe9 \n")
    for folder in (tmp_path / "a", strange, tmp_path / "a"):
        remember(folder)
    assert sorted(remembered()) == sorted([tmp_path / "a", strange])
    monkeypatch.chdir(tmp_path)
    forget(Path("a"))
    assert list(remembered()) == [strange]


def test_the_store_itself_needs_no_note(store):
    remember(store / "unfinished" / "moments")
    assert list(remembered()) == []
    assert home() == store


def test_a_note_that_is_not_whole_is_no_place_and_goes(tmp_path, store):
    remember(tmp_path / "out")
    [note] = (store / "places").iterdir()
    note.write_bytes(os.fsencode(tmp_path))
    assert list(remembered()) == []
    assert not note.exists()


def test_a_store_that_cannot_be_written_to_is_no_obstacle(tmp_path, store):
    store.write_text("a file where the folder should be")
    remember(tmp_path / "out")
    forget(tmp_path / "out")
    assert list(remembered()) == []
