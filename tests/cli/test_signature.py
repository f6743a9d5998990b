"""Signatures read from sources are those that Python sees."""

import inspect

import pytest

import layerscope as ls
from layerscope.cli.signature import Parameter, arguments, function

FUNCTIONS = sorted(name for name in ls.__all__ if inspect.isfunction(getattr(ls, name)))


@pytest.mark.parametrize("name", FUNCTIONS)
def test_parameters_are_those_of_the_function(name):
    seen = [p for p in inspect.signature(getattr(ls, name)).parameters.values() if p.kind not in (p.VAR_KEYWORD, 2)]
    read = function(name).parameters
    assert list(read) == [p.name for p in seen]
    assert [p.name for p in seen if p.default is p.empty] == [p.name for p in read.values() if p.default is None]
    assert all(parameter.help for parameter in read.values())
    assert function(name).summary == inspect.getdoc(getattr(ls, name)).split("\n\n")[0].replace("\n", " ")


def test_a_constant_of_the_module_is_shown_by_its_value():
    assert function("paper_figures").parameters["width"].default == "'6.75in'"
    assert function("compare").parameters["measure"].default == "'cka'"


def test_unions_are_split_at_the_top_only():
    parameter = Parameter("x", "str | Sequence[int | str] | None", "None", "")
    assert parameter.types == {"str", "Sequence[int | str]"}
    assert parameter.option == "--x"


def test_descriptions_over_several_lines_are_joined():
    text = "Do it.\n\nArgs:\n    one: The first,\n        and more.\n    two_parts: The second.\n\nReturns:\n    x: no."
    assert arguments(text) == {"one": "The first, and more.", "two_parts": "The second."}


def test_the_call_has_what_must_be_given():
    assert function("heal").call == "ls.heal(model, plan, task)"
    assert function("measures").call == "ls.measures()"
