"""The house rules: tests mirror the tree, no room hides a public name, and nothing heavy is imported to list names."""

import pkgutil
import subprocess
import sys
from importlib import import_module
from pathlib import Path
from types import ModuleType

import pytest

import layerscope as ls

SOURCE = Path(ls.__file__).parent
TESTS = Path(__file__).parent
ROOMS = sorted(path.parent.name for path in SOURCE.glob("*/__init__.py"))
FILES = sorted(path.relative_to(SOURCE) for path in SOURCE.rglob("*.py") if path.name != "__init__.py")
MIRRORS = sorted(
    path.relative_to(TESTS)
    for path in TESTS.rglob("test_*.py")
    if path.parent == TESTS or path.relative_to(TESTS).parts[0] in ROOMS
)
UNTESTED = {
    "__main__.py": "every test of the command line runs it (command.py)",
    "version.py": "one constant, which test_cli.py compares with --version",
    "extraction/means_triton.py": "needs a GPU: extraction/test_means.py runs it there",
    "similarity/attention/jensen_shannon_triton.py": "needs a GPU: attention/test_heads_cuda.py runs it",
}
OF_SEVERAL_FILES = {
    "test_docstrings.py": "the examples in all docstrings",
    "test_english.py": "the words of everything",
    "test_house.py": "this file",
    "test_keys.py": "keys of all public functions at once",
    "test_neutral.py": "parameters that are no part of a key",
    "test_packages.py": "the packages that make dist builds",
    "test_readme.py": "the README",
    "test_specs.py": "what every noun of a key is called there",
    "test_units.py": "the names of times, wherever they are printed",
    "cli/test_mistakes.py": "mistakes, whatever the command",
    "cli/test_terminal.py": "what a terminal, a pipe and a key press see of any command",
    "cutting/test_every_head.py": "every head of every family: cut, saved, and opened by plain transformers",
    "extraction/test_cuda.py": "extraction on a GPU",
    "extraction/test_processes.py": "extraction by several processes, and by killed ones",
    "models/test_garden_models.py": "the garden: its models by name, and the command that lists them",
    "models/test_hub.py": "models and data sets of a hub that answers here",
    "models/test_families.py": "every family of transformers that can be built small, by docs/families.py",
    "reporting/test_browser.py": "the report in a real browser",
    "similarity/attention/test_heads_cuda.py": "attention heads on a GPU",
    "similarity/measures/test_measures_cuda.py": "moments and measures on a GPU",
    "tuning/test_real.py": "tuning of the real model",
}


def mirror(source: Path) -> Path:
    """a/b.py is tested in a/test_b.py."""
    return TESTS / source.with_name(f"test_{source.name}")


def sources_of(test: Path) -> list[Path]:
    """What a/test_b.py may test: a/b.py, or the package a/b."""
    name = test.stem.removeprefix("test_")
    return [SOURCE / test.with_name(f"{name}.py"), SOURCE / test.parent / name / "__init__.py"]


@pytest.mark.parametrize("source", FILES, ids=str)
def test_every_source_file_has_its_test(source):
    assert mirror(source).is_file() == (source.as_posix() not in UNTESTED)


@pytest.mark.parametrize("test", MIRRORS, ids=str)
def test_every_test_has_its_source_file(test):
    assert any(path.is_file() for path in sources_of(test)) == (test.as_posix() not in OF_SEVERAL_FILES)


def test_the_exceptions_are_there():
    assert set(UNTESTED) <= {file.as_posix() for file in FILES}
    assert set(OF_SEVERAL_FILES) <= {test.as_posix() for test in MIRRORS}


def test_every_test_file_holds_a_test():
    assert not [test for test in MIRRORS if "\ndef test_" not in (TESTS / test).read_text(encoding="utf-8")]


def test_no_room_has_the_name_of_anything_public():
    files = {path.stem for path in SOURCE.glob("*.py")} - {"__init__", "__main__"}
    assert not {*ROOMS, *files} & set(ls.__all__)


def test_importing_every_module_hides_no_public_name():
    for module in pkgutil.walk_packages(ls.__path__, "layerscope."):
        if not module.name.endswith(("__main__", "_triton")):
            import_module(module.name)
    assert [name for name in ls.__all__ if isinstance(getattr(ls, name), ModuleType)] == []
    for room in ROOMS:
        assert isinstance(getattr(ls, room), ModuleType)


def test_a_room_is_imported_under_its_name():
    import layerscope.similarity as room

    assert isinstance(room, ModuleType)
    assert room.__name__ == "layerscope.similarity"


HEAVY = "{'torch', 'transformers', 'pandas', 'matplotlib'}"


@pytest.mark.parametrize(
    "code",
    [
        "import layerscope",
        "import layerscope.cli",
        "from layerscope.tuning.registry import METHODS; assert len(list(METHODS)) == 4",
        "from layerscope.alignment.methods import METHODS; assert 'procrustes' in METHODS and len(list(METHODS)) > 5",
        "from layerscope.drawing.figure import KINDS; assert 'heatmap' in list(KINDS)",
    ],
)
def test_names_are_listed_without_anything_heavy(code):
    told = f"import sys\n{code}\nprint(sorted({HEAVY} & set(sys.modules)))"
    done = subprocess.run([sys.executable, "-c", told], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"
