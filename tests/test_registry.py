"""Classes are found by their files; listing their names imports none of them."""

import subprocess
import sys

import pytest

from layerscope.errors import UnknownNameError
from layerscope.registry import Registry


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
        "from layerscope.tuning.registry import METHODS\nfrom layerscope.alignment.methods import METHODS as ALIGNERS\n"
        "names = list(METHODS) + list(ALIGNERS)\n"
        "own = [m for m in sys.modules if '.tuning.methods.' in m or '.alignment.aligners.' in m]\n"
        "print(len(names) > 10, own, 'torch' in sys.modules)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "True [] False"
