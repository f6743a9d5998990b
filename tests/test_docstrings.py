"""Every public name says what it takes and gives, with an example that runs offline."""

import doctest
import inspect
import re

import pytest

import layerscope as ls

PUBLIC = [name for name in ls.__all__ if callable(getattr(ls, name))]
FUNCTIONS = [name for name in PUBLIC if inspect.isfunction(getattr(ls, name))]
CLASSES = [name for name in PUBLIC if inspect.isclass(getattr(ls, name))]
TRAINED = {"tune", "strategy_study", "Training", "Trainings", "Truncation", "truncation_curve", "SkipMap", "skip_map"}
SLOW = {*TRAINED, "Advice", "advise", "Choice", "ModelStudy", "recommend", "specialty_study", "strategies", "study"}


def section(name, title):
    """The lines of one section of a docstring."""
    text = inspect.getdoc(getattr(ls, name)) or ""
    found = re.search(rf"^{title}:\n((?:[ ].*\n?|\n)*)", text + "\n", re.MULTILINE)
    return found[1] if found else ""


@pytest.mark.parametrize("name", PUBLIC)
def test_the_first_line_is_a_sentence_and_an_example_follows(name):
    own = getattr(ls, name).__doc__ or ""
    first = inspect.cleandoc(own).split("\n\n")[0]
    assert first.rstrip().endswith((".", ")."))
    assert ">>>" in section(name, "Example")
    assert not inspect.getdoc(getattr(ls, name)).endswith(":")


@pytest.mark.parametrize("name", FUNCTIONS)
def test_every_parameter_and_what_is_returned_are_described(name):
    signature = inspect.signature(getattr(ls, name))
    described = re.findall(r"^    (\*{0,2}\w+): \S", section(name, "Args"), re.MULTILINE)
    stars = {inspect.Parameter.VAR_POSITIONAL: "*", inspect.Parameter.VAR_KEYWORD: "**"}
    assert described == [stars.get(p.kind, "") + p.name for p in signature.parameters.values()]
    assert bool(section(name, "Returns").strip()) == (signature.return_annotation not in (None, "None"))


@pytest.mark.parametrize("name", CLASSES)
def test_the_attributes_and_arguments_that_a_class_describes_are_its_own(name):
    thing = getattr(ls, name)
    known = {*dir(thing), *re.findall(r"self\.(\w+)", inspect.getsource(thing))}
    known |= set(inspect.signature(thing.__init__).parameters)
    known |= {field for base in thing.__mro__ for field in vars(base).get("__annotations__", {})}
    for title in ("Args", "Attributes"):
        assert set(re.findall(r"^    (\w+): \S", section(name, title), re.MULTILINE)) <= known


@pytest.fixture(scope="module")
def shared(tmp_path_factory):
    """One store for all examples, many of which start with the same training."""
    return tmp_path_factory.mktemp("examples")


@pytest.mark.parametrize("name", [pytest.param(n, marks=pytest.mark.slow) if n in SLOW else n for n in PUBLIC])
def test_the_example_runs(name, shared, monkeypatch, tmp_path, capsys):
    monkeypatch.setenv("LAYERSCOPE_HOME", str(shared))
    monkeypatch.chdir(tmp_path)
    thing = getattr(ls, name)
    tests = [test for test in doctest.DocTestFinder().find(thing, name, globs={}) if test.examples]
    assert tests[0].name == name
    runner = doctest.DocTestRunner(optionflags=doctest.NORMALIZE_WHITESPACE)
    said: list[str] = []
    for test in tests:
        runner.run(test, out=said.append)
    assert not runner.failures, "".join(said)


def test_every_slow_example_is_of_a_public_name():
    assert set(PUBLIC) >= SLOW
