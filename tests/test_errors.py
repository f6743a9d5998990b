"""Errors are sentences with the near names in them."""

import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from layerscope.errors import (
    DataError,
    InputError,
    LayerscopeError,
    LayerscopeWarning,
    ModelError,
    StoreError,
    UnknownNameError,
    check_count,
    check_level,
    check_seed,
    choose,
    near,
    some,
    unknown,
    whole,
)


def test_every_error_is_a_layerscope_error():
    assert issubclass(InputError, LayerscopeError)
    assert issubclass(InputError, ValueError)


def test_every_kind_is_caught_as_one():
    for kind in (UnknownNameError, DataError, ModelError, StoreError):
        assert issubclass(kind, LayerscopeError)
    assert issubclass(UnknownNameError, KeyError)
    assert issubclass(LayerscopeWarning, UserWarning)


def test_a_near_miss_is_named_whatever_its_case():
    assert near("SST2", ["sst2", "mnli"]) == " Did you mean 'sst2'?"
    assert near("zzz", ["sst2"]) == ""
    assert near("mea", ["mean", "Meal"]) == " Did you mean 'mean' or 'Meal'?"


def test_an_unknown_name_is_a_sentence_and_not_its_repr():
    error = unknown("task", "sst", ["sst2", "mnli"])
    assert str(error) == "There is no task 'sst'. Did you mean 'sst2'? Known: mnli, sst2."


def test_a_choice_is_given_back_or_refused_with_what_is_allowed():
    assert choose("pool", "mean", ("cls", "mean")) == "mean"
    with pytest.raises(InputError, match=r"^There is no pool 'means'; allowed: cls, mean. Did you mean 'mean'\?$"):
        choose("pool", "means", ("cls", "mean"))


@pytest.mark.parametrize("seed", [-1, 1 << 32, 1.5, None, "1"])
def test_seeds_that_numpy_and_torch_do_not_take(seed):
    with pytest.raises(InputError, match=f"seed is {seed}; it must be a whole number from 0 to 4294967295"):
        check_seed(seed)


def test_seeds_of_numpy_are_seeds():
    assert check_seed(np.int64(7)) == 7
    assert type(check_seed(np.int64(7))) is int


@pytest.mark.parametrize("level", [0, 1, 95, -0.1, float("nan"), "0.95"])
def test_levels_of_intervals(level):
    check_level(None)
    check_level(0.95)
    with pytest.raises(InputError, match=r"must be between 0 and 1, such as 0\.95"):
        check_level(level)


@pytest.mark.parametrize("count", [0, -1, 2.0, "2", True, np.float64(3)])
def test_what_is_no_number_of_things(count):
    check_count(None, "folds")
    check_count(np.int64(1), "folds")
    with pytest.raises(InputError, match=f"folds is {count}; it must be a whole number of at least 1"):
        check_count(count, "folds")


def test_whole_numbers_are_those_of_numpy_too_and_no_truths():
    assert [whole(value) for value in (3, np.int64(3), np.uint8(0), -1)] == [True] * 4
    assert [whole(value) for value in (True, np.True_, 3.0, "3", None)] == [False] * 5


def test_a_sentence_names_some_of_many():
    assert some(["a", "b"]) == "a, b"
    assert some(map(str, range(30)), most=3) == "0, 1, 2 and 27 more"
    assert len(some(["x" * 3000, "b"])) < 80


@pytest.fixture
def without_locks(tmp_path):
    """The environment of a program whose platform lacks file locks, as Windows does."""
    (tmp_path / "sitecustomize.py").write_text("import sys\nsys.modules['fcntl'] = None\n")
    return {**os.environ, "PYTHONPATH": os.pathsep.join([str(tmp_path), *sys.path])}


def test_a_platform_without_file_locks_is_refused_at_the_import(without_locks):
    code = (
        "try:\n"
        "    import layerscope\n"
        "except ImportError as error:\n"
        "    bases = [base.__name__ for base in type(error).__mro__]\n"
        "    print('LayerscopeError' in bases, error)"
    )
    done = subprocess.run([sys.executable, "-c", code], env=without_locks, capture_output=True, text=True, check=True)
    assert done.stdout.startswith(f"True layerscope runs on Linux and macOS, and not on this platform ({sys.platform})")
    assert "WSL" in done.stdout
    command = [sys.executable, "-c", "import layerscope"]
    bare = subprocess.run(command, env=without_locks, capture_output=True, text=True, check=False)
    assert bare.stderr.count("Traceback") == 1  # of that error alone, not of the import that failed before it


PROGRAM = [str(Path(sys.executable).parent / "layerscope")]


@pytest.mark.parametrize("program", [PROGRAM, [sys.executable, "-m", "layerscope"]])
def test_the_program_ends_in_the_sentence_there(program, without_locks):
    done = subprocess.run([*program, "--help"], env=without_locks, capture_output=True, text=True, check=False)
    assert done.returncode == 1
    assert done.stderr.startswith("layerscope runs on Linux and macOS")
    assert len(done.stderr.splitlines()) == 1
