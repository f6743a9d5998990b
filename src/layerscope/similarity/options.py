"""The options of measures: keyword-only arguments of their functions, and the kinds of value that these take."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from functools import cache
from numbers import Integral, Real
from typing import Any

import numpy as np

from layerscope.errors import InputError

_KINDS: dict[str, tuple[Any, str]] = {
    "int": (Integral, "a whole number"),
    "float": (Real, "a number"),
    "bool": ((bool, np.bool_), "true or false"),
    "str": (str, "a word"),
}


@cache
def keywords(function: Callable[..., Any]) -> dict[str, str]:
    """The names of a function's keyword-only arguments, with their annotations, such as `int | None`."""
    parameters = inspect.signature(function).parameters.values()
    return {p.name: inspect.formatannotation(p.annotation) for p in parameters if p.kind is p.KEYWORD_ONLY}


def given(function: Callable[..., Any], options: dict[str, Any]) -> dict[str, Any]:
    """Those of the options that a function takes."""
    return {name: value for name, value in options.items() if name in keywords(function)}


def check_kind(name: str, value: Any, annotation: str) -> None:
    """Raise a sentence unless an option's value is what its annotation says; kinds that are not known take any."""
    kind, *others = annotation.strip("'").split(" | ")
    if kind not in _KINDS or (value is None and "None" in others):
        return
    types, said = _KINDS[kind]
    if not isinstance(value, types) or (isinstance(value, bool) and kind != "bool"):
        raise InputError(f"{name} is {value!r}; it must be {said}.")
