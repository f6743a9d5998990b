"""Classes are found by their files; listing their names imports none of them."""

import subprocess
import sys
from pathlib import Path

import pytest

import layerscope.tuning
from layerscope.errors import UnknownNameError
from layerscope.registry import METHODS, Entries, Registry
from layerscope.tuning.method import Method


@pytest.fixture
def animals(tmp_path, monkeypatch):
    """A package of two classes, and one file that holds none."""
    folder = tmp_path / "animals_of_a_test"
    folder.mkdir()
    (folder / "__init__.py").write_text("")
    (folder / "otter.py").write_text("class Base:\n    name = 'otter'\n\n\nclass Otter(Base):\n    name = 'otter'\n")
    (folder / "heron.py").write_text("from .otter import Otter\n\n\nclass Heron:\n    name = 'heron'\n")
    (folder / "stone.py").write_text("from animals_of_a_test.otter import Otter\n\nstone = Otter\n")
    monkeypatch.syspath_prepend(tmp_path)
    yield Registry("animals_of_a_test", "animal")
    for name in [name for name in sys.modules if name.startswith("animals_of_a_test")]:
        del sys.modules[name]


@pytest.fixture
def notes(tmp_path, monkeypatch):
    """A package whose files enter what they have, and what they enter it into."""
    folder = tmp_path / "notes_of_a_test"
    folder.mkdir()
    (folder / "__init__.py").write_text(
        "from layerscope.registry import Entries\n\nNOTES = Entries(__name__, 'note')\n"
    )
    (folder / "low.py").write_text("from . import NOTES\n\nNOTES['c'] = 1\nNOTES['d'] = 2\n")
    (folder / "high.py").write_text("from . import NOTES\n\nNOTES['g'] = 3\n")
    monkeypatch.syspath_prepend(tmp_path)
    from notes_of_a_test import NOTES

    assert isinstance(NOTES, Entries)
    yield NOTES
    for name in [name for name in sys.modules if name.startswith("notes_of_a_test")]:
        del sys.modules[name]


def test_the_first_look_reads_every_file_of_entries(notes):
    assert "notes_of_a_test.low" not in sys.modules
    assert dict(notes) == {"g": 3, "c": 1, "d": 2}
    assert len(notes) == 3
    assert "c" in notes
    assert "e" not in notes
    assert notes.get("e") is None
    with pytest.raises(UnknownNameError, match=r"no note 'e'. Known: c, d, g"):
        notes["e"]


def test_entries_come_and_go(notes):
    notes["e"] = 4
    assert notes["e"] == 4
    del notes["e"]
    assert list(notes) == ["g", "c", "d"]


def test_names_are_read_from_the_folder_alone(animals):
    assert list(animals) == ["heron", "otter", "stone"]
    assert len(animals) == 3
    assert "otter" in animals
    assert "eel" not in animals
    assert "animals_of_a_test.otter" not in sys.modules


def test_a_class_is_that_of_the_file_of_its_name(animals):
    assert animals["heron"].__name__ == "Heron"
    assert animals["heron"].__module__ == "animals_of_a_test.heron"


def test_an_unknown_name_gets_the_near_ones_and_the_whole_list(animals):
    with pytest.raises(UnknownNameError, match=r"no animal 'oter'. Did you mean 'otter'\? Known: heron, otter, stone"):
        animals["oter"]
    assert animals.get("eel") is None


def test_a_file_without_its_class_is_a_programmers_mistake(animals):
    with pytest.raises(TypeError, match="stone defines no class whose name is 'stone'"):
        animals["stone"]


def test_no_class_is_imported_to_list_the_names():
    code = (
        "import sys\n"
        "from layerscope.registry import ALIGNERS, METHODS\n"
        "names = list(METHODS) + list(ALIGNERS)\n"
        "own = [m for m in sys.modules if '.tuning.methods.' in m or '.alignment.aligners.' in m]\n"
        "print(len(names) > 10, own, 'torch' in sys.modules)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "True [] False"


def test_every_file_is_a_method_of_its_name():
    folder = Path(layerscope.tuning.__file__).parent / "methods"
    files = {path.stem for path in folder.glob("*.py")} - {"__init__"}
    assert set(METHODS) == files == {"finetune", "adapter", "lora", "prefix"}
    for name in METHODS:
        assert issubclass(METHODS[name], Method)
        assert METHODS[name].name == name
        assert (METHODS[name].default_size is None) == (not METHODS[name].size_is)
