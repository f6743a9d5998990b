"""What can be chosen by name and is found by its file: every registry of a folder, and nothing heavy to list them.

There are two ways to be known by name. What is code is a file of a folder, and its registry stands at the end of this
file. What is data is an entry of a table: YAML for tasks and recipes, families and heads of `models`, and metrics.
"""

from __future__ import annotations

import pkgutil
from collections.abc import Callable, Iterator, Mapping, MutableMapping
from functools import cached_property
from importlib import import_module
from typing import TYPE_CHECKING, Any, Generic, TypeVar

from layerscope.errors import unknown

if TYPE_CHECKING:
    from layerscope.alignment.aligner import Aligner
    from layerscope.cutting.search import Rule
    from layerscope.drawing.figure import Figure
    from layerscope.engine.jobs import Engine
    from layerscope.probing.layer_score import LayerScore
    from layerscope.recipes.claims import Statistic
    from layerscope.similarity.registry import Measure
    from layerscope.tuning.method import Method

T = TypeVar("T")


def _files(package: str) -> tuple[str, ...]:
    """The names of a package's files, in alphabetical order; none of them is imported."""
    return tuple(sorted(module.name for module in pkgutil.iter_modules(import_module(package).__path__)))


class Registry(Mapping[str, "type[T]"], Generic[T]):
    """The classes of a package by name. A class is in the file of its name, which it also carries as `attribute`.

    `list(registry)` reads the folder alone, so that a help text can name every class without importing any.
    """

    def __init__(self, package: str, noun: str, attribute: str = "name") -> None:
        self.package, self.noun, self._attribute = package, noun, attribute

    @cached_property
    def names(self) -> tuple[str, ...]:
        """Every name, in alphabetical order."""
        return _files(self.package)

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


class Entries(MutableMapping[str, T]):
    """What the files of a package enter by name, several in a file: `entries[name] = ..` in a decorator.

    Their names stand in the code, so that the first look imports every file of the package.
    """

    def __init__(self, package: str, noun: str) -> None:
        self.package, self.noun = package, noun
        self._entered: dict[str, T] = {}

    @cached_property
    def _all(self) -> dict[str, T]:
        for name in _files(self.package):
            import_module(f"{self.package}.{name}")
        return self._entered

    def __getitem__(self, name: str) -> T:
        if name not in self._all:
            raise unknown(self.noun, name, self._all)
        return self._all[name]

    def __setitem__(self, name: str, entry: T) -> None:
        self._entered[name] = entry

    def __delitem__(self, name: str) -> None:
        del self._entered[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self._all)

    def __len__(self) -> int:
        return len(self._all)

    def __contains__(self, name: object) -> bool:
        return name in self._all


ENGINES: Registry[Engine] = Registry("layerscope.engine.engines", "engine")
FIGURES: Registry[Figure] = Registry("layerscope.drawing.figures", "kind of figure", "kind")
ALIGNERS: Registry[Aligner] = Registry("layerscope.alignment.aligners", "alignment method", "method")
RULES: Registry[Rule] = Registry("layerscope.cutting.rules", "rule")
LAYER_SCORES: Registry[LayerScore] = Registry("layerscope.probing.scores", "layer score")
METHODS: Registry[Method] = Registry("layerscope.tuning.methods", "method")
MEASURES: Entries[Measure] = Entries("layerscope.similarity.measures", "measure")
STATISTICS: Entries[Callable[..., Statistic]] = Entries("layerscope.recipes.statistics", "statistic")
UNITS: Entries[str] = Entries("layerscope.recipes.statistics", "statistic")  # of the numbers of those
