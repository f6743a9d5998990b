"""The house rules: tests mirror the tree and assert something, no room hides a name, listing names is light."""

import ast
import os
import pkgutil
import re
import subprocess
import sys
from collections.abc import Iterator
from functools import cache
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
    "__main__.py": "every test of the command line runs it (helpers/cli.py)",
    "version.py": "one constant, which test_cli.py compares with --version",
    "extraction/means_triton.py": "needs a GPU: extraction/test_means.py runs it there",
    "similarity/attention/jensen_shannon_triton.py": "needs a GPU: attention/test_heads_cuda.py runs it",
}
OF_SEVERAL_FILES = {
    "store/test_before.py": "a store that an older version filled",
    "test_docstrings.py": "the examples in all docstrings",
    "test_english.py": "the words of everything",
    "test_house.py": "this file",
    "test_keys.py": "keys of all public functions at once",
    "test_neutral.py": "parameters that are no part of a key",
    "test_packages.py": "the packages that make dist builds",
    "test_readme.py": "the README",
    "test_specs.py": "what every noun of a key is called there",
    "test_units.py": "the names of times, wherever they are printed",
    "cli/test_answer.py": "what programs read of any command",
    "cli/test_mistakes.py": "mistakes, whatever the command",
    "cli/test_terminal.py": "what a terminal, a pipe and a key press see of any command",
    "cutting/test_every_head.py": "every head of every family: cut, saved, and opened by plain transformers",
    "extraction/test_cuda.py": "extraction on a GPU",
    "extraction/test_processes.py": "extraction by several processes, and by killed ones",
    "models/test_garden_models.py": "the garden: its models by name, and the command that lists them",
    "models/test_hub.py": "models and data sets of a hub that answers here",
    "reporting/test_browser.py": "the report in a real browser",
    "similarity/attention/test_heads_cuda.py": "attention heads on a GPU",
    "similarity/measures/test_measures_cuda.py": "moments and measures on a GPU",
    "tuning/test_real.py": "tuning of the real model",
}


def mirrors(source: Path) -> list[Path]:
    """What tests a/b.py: the file a/test_b.py or the folder a/b with test files in it."""
    file, folder = TESTS / source.with_name(f"test_{source.name}"), TESTS / source.with_suffix("")
    return [file] * file.is_file() + [folder] * any(folder.glob("test_*.py"))


def sources_of(test: Path) -> list[Path]:
    """What a/test_b.py may test: a/b.py, the package a/b, or as one of several files the module a.py."""
    name = test.stem.removeprefix("test_")
    folder = SOURCE / test.parent
    return [folder / f"{name}.py", folder / name / "__init__.py", folder.with_suffix(".py")]


@pytest.mark.parametrize("source", FILES, ids=str)
def test_every_source_file_has_one_test_file_or_one_folder_of_them(source):
    assert len(mirrors(source)) == (source.as_posix() not in UNTESTED)


@pytest.mark.parametrize("test", MIRRORS, ids=str)
def test_every_test_has_its_source_file(test):
    assert any(path.is_file() for path in sources_of(test)) == (test.as_posix() not in OF_SEVERAL_FILES)


def test_the_exceptions_are_there():
    assert set(UNTESTED) <= {file.as_posix() for file in FILES}
    assert set(OF_SEVERAL_FILES) <= {test.as_posix() for test in MIRRORS}


def test_every_test_file_holds_a_test():
    assert not [test for test in MIRRORS if "\ndef test_" not in (TESTS / test).read_text(encoding="utf-8")]


ASSERTING = ("raises", "warns", "fail", "expect")  # of pytest, and playwright's expect(...)


@cache
def functions(path: Path) -> dict[str, ast.FunctionDef]:
    """The functions at the top of a file, by name."""
    return {n.name: n for n in ast.parse(path.read_text(encoding="utf-8")).body if isinstance(n, ast.FunctionDef)}


@cache
def imported(path: Path) -> dict[str, tuple[Path, str]]:
    """The names that a file imports from the tests, anywhere in it: the file of each, and its name there."""
    nodes = [n for n in ast.walk(ast.parse(path.read_text(encoding="utf-8"))) if isinstance(n, ast.ImportFrom)]
    return {
        name.asname or name.name: (TESTS.parent / f"{node.module.replace('.', '/')}.py", name.name)
        for node in nodes
        if (node.module or "").startswith("tests.")
        for name in node.names
    }


def called(function: ast.FunctionDef) -> Iterator[str]:
    """The names of what a function calls, without the object or module that it is called of."""
    for node in ast.walk(function):
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Name | ast.Attribute):
            yield node.func.id if isinstance(node.func, ast.Name) else node.func.attr


def asserts(path: Path, name: str, seen: frozenset[tuple[Path, str]] = frozenset()) -> bool:
    """Whether a function of a file asserts something, itself or by a helper of the tests."""
    if (path, name) in seen or not path.is_file() or name not in functions(path):
        return False
    function, others, seen = functions(path)[name], imported(path), seen | {(path, name)}
    return any(isinstance(node, ast.Assert) for node in ast.walk(function)) or any(
        call in ASSERTING or call.startswith("assert_") or asserts(*others.get(call, (path, call)), seen)
        for call in called(function)
    )


def test_every_test_asserts_something():
    tests = [(path, name) for path in TESTS.rglob("test_*.py") for name in functions(path) if name.startswith("test_")]
    assert len(tests) > 1000
    assert [f"{path.relative_to(TESTS)}: {name}" for path, name in tests if not asserts(path, name)] == []


def test_a_test_without_an_assertion_is_found(tmp_path):
    file = tmp_path / "test_x.py"
    file.write_text(
        "import pytest\n"
        "from tests.helpers.figures import assert_same_figure as alike\n"
        "from tests.helpers.models import check_what_changes, random_model\n"
        "def check(x):\n    assert x\n"
        "def walk(x):\n    walk(x)\n"
        "def test_plain():\n    assert 1\n"
        "def test_raised():\n    with pytest.raises(ValueError):\n        int('x')\n"
        "def test_by_numpy():\n    np.testing.assert_allclose(1, 1)\n"
        "def test_by_a_helper():\n    check(1)\n"
        "def test_by_an_imported_helper():\n    check_what_changes()\n"
        "def test_by_another_name():\n    alike(1, 1)\n"
        "def test_called():\n    random_model()\n"
        "def test_around():\n    walk(1)\n"
        "def test_raising():\n    raise ValueError\n"
    )
    found = [name for name in functions(file) if name.startswith("test_") and not asserts(file, name)]
    assert found == ["test_called", "test_around", "test_raising"]


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
        "from layerscope.registry import METHODS; assert len(list(METHODS)) == 4",
        "from layerscope.registry import ALIGNERS; assert 'procrustes' in ALIGNERS and len(list(ALIGNERS)) > 5",
        "from layerscope.registry import FIGURES; assert 'heatmap' in list(FIGURES)",
        "from layerscope.registry import ENGINES, RULES; assert 'local' in list(ENGINES) and 'last' in list(RULES)",
    ],
)
def test_names_are_listed_without_anything_heavy(code):
    told = f"import sys\n{code}\nprint(sorted({HEAVY} & set(sys.modules)))"
    done = subprocess.run([sys.executable, "-c", told], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


def test_gpus_are_asked_for_by_the_marker_alone():
    """So that `make test-gpu` finds every test that is skipped without one."""
    for path in TESTS.rglob("test_*.py"):
        found = re.findall(r"skip(?:if)?\([^\n]*(?:cuda|device_count)", path.read_text(encoding="utf-8"))
        assert not found or path == Path(__file__), path


@pytest.mark.slow
def test_without_a_gpu_the_tests_for_one_are_skipped_and_asking_for_them_fails():
    file = str(TESTS / "models/fingerprint/test_hashing.py")
    environment = {**os.environ, "CUDA_VISIBLE_DEVICES": ""}
    command = [sys.executable, "-m", "pytest", "-p", "no:cacheprovider", "-rs", file]
    options = {"cwd": TESTS.parent, "env": environment, "capture_output": True, "text": True}
    asked, usual = (
        subprocess.run([*command, *more], check=False, **options) for more in (["-m", "gpu"], ["-k", "gpu"])
    )
    assert "0 tests ran on no GPU" in asked.stdout
    assert "5 were skipped" in asked.stdout
    assert asked.returncode == 1
    assert "GPUs needed: 1; GPUs on this machine: 0" in usual.stdout
    assert usual.returncode == 0
