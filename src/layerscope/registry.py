"""Classes that are found by their files: one file per class, and nothing is imported to list their names."""

from __future__ import annotations

import pkgutil
from collections.abc import Iterator, Mapping
from functools import cached_property
from importlib import import_module
from typing import Any, Generic, TypeVar

from layerscope.errors import unknown

T = TypeVar("T")


class Registry(Mapping[str, "type[T]"], Generic[T]):
    """The classes of a package by name. A class is in the file of its name, which it also carries as `attribute`.

    `list(registry)` reads the folder alone, so that a help text can name every class without importing any.
    """

    def __init__(self, package: str, noun: str, attribute: str = "name") -> None:
        self.package, self.noun, self._attribute = package, noun, attribute

    @cached_property
    def names(self) -> tuple[str, ...]:
        """Every name, in alphabetical order."""
        return tuple(sorted(module.name for module in pkgutil.iter_modules(import_module(self.package).__path__)))

    def __getitem__(self, name: str) -> type[T]:
        if name not in self.names:
            raise unknown(self.noun, name, self.names)
        module = import_module(f"{self.package}.{name}")
        for value in vars(module).values():
            if self._is_own(value, name) and value.__module__ == module.__name__:
                return value
        raise TypeError(f"{module.__name__} defines no class whose {self._attribute} is {name!r}.")

    def _is_own(self, value: Any, name: str) -> bool:
        return isinstance(value, type) and vars(value).get(self._attribute) == name

    def __iter__(self) -> Iterator[str]:
        return iter(self.names)

    def __len__(self) -> int:
        return len(self.names)

    def __contains__(self, name: object) -> bool:
        return name in self.names
