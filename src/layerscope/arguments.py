"""The arguments of public functions, checked against their annotations before anything is read or run.

An annotation is judged as the source spells it, by names: nothing is imported for it. A type that is not Python's own
is known by the name of its class, and what may be anything (`Any`, and what stands for it) is not looked at. Arrays of
numpy, torch and pandas that stand for lists become lists, so that functions need not know them. Memory and devices that
fail while a function runs end in a sentence, too.
"""

from __future__ import annotations

import ast
import functools
import inspect
import os
from collections.abc import Callable, Iterable, Iterator, Mapping
from itertools import islice
from numbers import Integral, Real
from typing import Any, TypeVar, cast

from layerscope.errors import InputError, device_fault, whole

_SHOWN = 60  # characters of a value in a message
_MOST = 1_000_000  # things that a generator may give where a list is asked for
_LARGEST = 2**63  # what no library counts to
_LOOKED_AT = 1000  # members of anything but lists and arrays
_WAY_OUT = (
    "take fewer rows, shorter texts or smaller batches where it has such arguments (limit=, max_length=, "
    "batch_tokens=, batch=), open the model in 16 bits or on another device (ls.load(.., dtype=, device=)), or free "
    "memory first"
)
_LONGEST = 255  # bytes of a name in a file system
_BOOLEANS = ("bool", "bool_")  # Python's and numpy's
_SIMPLE: dict[str, tuple[Callable[[Any], bool], str, str]] = {  # a check, and the words for one and for several
    "int": (whole, "a whole number", "whole numbers"),
    "float": (lambda value: isinstance(value, Real) and not isinstance(value, bool), "a number", "numbers"),
    "bool": (
        lambda value: type(value).__name__ in _BOOLEANS or (isinstance(value, Integral) and value in (0, 1)),
        "True / False",
        "truth values",
    ),
    "str": (lambda value: isinstance(value, str), "a text", "texts"),
    "Path": (lambda value: isinstance(value, os.PathLike), "a path", "paths"),
    "PathLike": (lambda value: isinstance(value, os.PathLike), "a path", "paths"),
    "None": (lambda value: value is None, "None", "None"),
}


Function = TypeVar("Function", bound=Callable[..., Any])


def checked(function: Function) -> Function:
    """Return a public function that raises InputError where an argument is of a type that it does not take."""

    @functools.wraps(function)
    def call(*args: Any, **kwargs: Any) -> Any:
        signature, _ = _described(function)
        try:
            given = signature.bind(*args, **kwargs)
        except TypeError:  # which the function itself says best
            return function(*args, **kwargs)
        given.arguments |= check_arguments(function, given.arguments)
        try:
            return function(*given.args, **given.kwargs)
        except (MemoryError, RuntimeError, OSError) as error:  # torch's are RuntimeErrors, mapped files' OSErrors
            if (refused := device_fault(error)) is None:
                raise
            name = function.__qualname__.rpartition("<locals>.")[2]
            raise InputError(f"ls.{name} was not possible: {refused}; {_WAY_OUT}.") from error

    if function.__qualname__ == function.__name__:  # no method
        call.__module__ = "layerscope"  # where it is found again, by pickle too
    return cast(Function, call)


def check_arguments(function: Callable[..., Any], given: Mapping[str, Any]) -> dict[str, Any]:
    """Return the arguments of a function by name, as it takes them; raise InputError for one that it does not take."""
    _, annotations = _described(function)
    taken = {}
    for name, value in given.items():
        if fault := unusable(value):
            raise InputError(f"{name} is {_shown(value)}; {fault}.")
        taken[name] = value if name not in annotations else annotations[name].checked(name, value)
    return taken


@functools.cache
def _described(function: Callable[..., Any]) -> tuple[inspect.Signature, dict[str, Annotation]]:
    """Return a function's signature, and what each of its parameters takes, where that is said."""
    signature = inspect.signature(function)
    named = [
        p
        for p in signature.parameters.values()
        if p.kind not in (p.VAR_POSITIONAL, p.VAR_KEYWORD) and p.annotation is not p.empty
    ]
    names = getattr(function, "__globals__", {})
    return signature, {p.name: Annotation(str(p.annotation), names) for p in named}


class Annotation:
    """What a parameter takes, read from its annotation: a union of names, and of sequences and mappings of them."""

    def __init__(self, text: str, names: Mapping[str, Any]) -> None:
        self._names = names
        self._members = list(self._union(ast.parse(text, mode="eval").body))

    @property
    def has_path(self) -> bool:
        """Whether a path is one of the types, so that a text is one too."""
        return any(_name(member) in ("Path", "PathLike") for member in self._members)

    def checked(self, name: str, value: Any) -> Any:
        """Return a parameter's value as the function takes it; raise InputError where it is of none of the types."""
        value = self.settled(value)
        if not self.takes(value):
            raise InputError(f"{name} is {_shown(value)}; it must be {self.words()}.")
        if self.has_path and (fault := _path_fault(value)):
            raise InputError(f"{name} is {_shown(value)}; {fault}.")
        return self.listed(value)

    def takes(self, value: Any) -> bool:
        """Return whether a value is of one of the types."""
        return any(self._fits(member, value) for member in self._members)

    def settled(self, value: Any) -> Any:
        """Return what can be gone through once, such as a generator, as a list where several things are asked for."""
        kinds = {_name(member) for member in self._members}
        once = "Sequence" in kinds and "Iterable" not in kinds and isinstance(value, Iterator)
        return list(islice(value, _MOST)) if once else value

    def listed(self, value: Any) -> Any:
        """Return a value of one of the types, an array as a list where it stands for several things."""
        if not hasattr(value, "tolist") or not hasattr(value, "__len__"):
            return value
        first = next(member for member in self._members if self._fits(member, value))
        return value.tolist() if _name(first) in ("Sequence", "Iterable") else value

    def words(self) -> str:
        """Return the types in words: `a whole number, several whole numbers or None`."""
        named = list(dict.fromkeys(word for each in self._members for word in self._called(each).split(" / ")))
        return " or ".join([", ".join(named[:-1]), named[-1]] if len(named) > 1 else named)

    def _union(self, node: ast.expr) -> Iterable[ast.expr]:
        """Yield the members of a union, with other names for types replaced by what they stand for."""
        if isinstance(node, ast.BinOp):
            yield from (*self._union(node.left), *self._union(node.right))
        elif isinstance(node, ast.Subscript) and _name(node.value) in ("Union", "Optional"):
            members = node.slice.elts if isinstance(node.slice, ast.Tuple) else [node.slice]
            for member in members:
                yield from self._union(member)
        elif isinstance(node, ast.Call):  # ForwardRef('Strategy')
            yield from self._union(node.args[0])
        elif isinstance(node, ast.Constant) and isinstance(node.value, str):
            yield from self._union(ast.parse(node.value, mode="eval").body)
        else:
            meant = self._names.get(_name(node)) if isinstance(node, ast.Name) and node.id not in _SIMPLE else None
            alias = meant is not None and not isinstance(meant, type)
            yield from self._union(ast.parse(str(meant), mode="eval").body) if alias else [node]

    def _fits(self, node: ast.expr, value: Any) -> bool:
        name = _name(node)
        if name in _SIMPLE:
            return _SIMPLE[name][0](value)
        if name in ("Sequence", "Iterable"):
            return self._lists(node, value)
        if name == "Mapping" and isinstance(node, ast.Subscript):
            return isinstance(value, Mapping) and self._maps(node, value)
        if isinstance(node, ast.Subscript):
            return callable(value) if name == "Callable" else True
        meant = self._names.get(name)
        anything = name == "Any" or meant is Any or getattr(meant, "_is_protocol", False)
        return anything or any(kind.__name__ == name for kind in type(value).__mro__)

    def _lists(self, node: ast.expr, value: Any) -> bool:
        """Return whether a value is several things of the types in brackets."""
        several = _several(value)
        if several is None or not isinstance(node, ast.Subscript):
            return several is not None
        members = list(self._union(node.slice))
        return all(any(self._fits(m, v) for m in members) for v in several)

    def _maps(self, node: ast.Subscript, value: Mapping[Any, Any]) -> bool:
        """Return whether a mapping has keys and values of the types in brackets."""
        assert isinstance(node.slice, ast.Tuple)
        keys, values = (list(self._union(part)) for part in node.slice.elts)
        return all(
            any(self._fits(m, k) for m in keys) and any(self._fits(m, v) for m in values) for k, v in value.items()
        )

    def _called(self, node: ast.expr) -> str:
        name = _name(node)
        if name in _SIMPLE:
            return _SIMPLE[name][1]
        if not isinstance(node, ast.Subscript):
            return f"{'an' if name[:1] in 'AEIOU' else 'a'} {name}"
        if name in ("Sequence", "Iterable"):
            members = list(self._union(node.slice)) if isinstance(node, ast.Subscript) else []
            kinds = [_SIMPLE[_name(member)][2] if _name(member) in _SIMPLE else _name(member) for member in members]
            return "a list" if "Any" in kinds else f"a list of {' or '.join(dict.fromkeys(kinds))}"
        return {"Mapping": "a mapping", "Callable": "a function"}.get(name, name)


def _name(node: ast.expr) -> str:
    """Return the last part of a type's name, without what stands in brackets."""
    if isinstance(node, ast.Subscript):
        return _name(node.value)
    if isinstance(node, ast.Attribute):
        return node.attr
    return node.id if isinstance(node, ast.Name) else str(getattr(node, "value", ""))


def _several(value: Any) -> Iterable[Any] | None:
    """Return the things that a value holds, as far as they can be looked at twice; None where it is one thing."""
    if isinstance(value, (str, bytes, Mapping)) or not hasattr(value, "__iter__"):
        return None
    if isinstance(value, (list, tuple)):
        return value
    if hasattr(value, "tolist"):  # an array; one without dimensions is a number
        listed = value.tolist()
        return listed if isinstance(listed, list) else None
    if hasattr(value, "keys"):  # a table
        return None
    try:
        members = iter(value)
    except TypeError:  # representations, say, which are read by layer
        return None
    return () if members is value else islice(members, _LOOKED_AT)


def unusable(value: Any) -> str:
    """Return why a number or a text is of no use to any function; empty where it is."""
    if isinstance(value, Integral) and abs(int(value)) >= _LARGEST:
        return "whole numbers have at most 19 digits here"
    if isinstance(value, str):
        try:
            os.fsencode(value)  # names of files may hold bytes that are no text, and models are named by folders
        except UnicodeEncodeError:
            return "it holds half a character (a lone surrogate)"
    return ""


def _path_fault(value: Any) -> str:
    """Return why a text or path can be the name of no file; empty where it can."""
    if not isinstance(value, (str, os.PathLike)):
        return ""
    try:
        name = os.fsencode(value)
    except UnicodeEncodeError:
        return "no file can have that name, which holds half a character (a lone surrogate)"
    if b"\0" in name:
        return "no file can have that name, which holds a null character"
    if max(map(len, name.split(os.sep.encode()))) > _LONGEST:
        return f"a name in a path may have at most {_LONGEST} bytes"
    return ""


def _shown(value: Any) -> str:
    """Return a value as a message shows it: plain ones themselves, others by their type."""
    if value is None or isinstance(value, (str, Real, os.PathLike)):
        text = repr(value) if isinstance(value, str) else str(value)
        return text if len(text) <= _SHOWN else f"{text[:_SHOWN]}.."
    if isinstance(value, (list, tuple)) and all(each is None or isinstance(each, (str, Real)) for each in value):
        text = ", ".join(map(_shown, value[:_SHOWN]))
        return f"[{text}]" if len(text) <= _SHOWN else f"[{text[:_SHOWN]}..]"
    kind = type(value).__name__
    return f"{'an' if kind[:1] in 'aeiouAEIOU' else 'a'} {kind}"
