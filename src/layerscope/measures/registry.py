"""The registry of measures: what each is, what it needs, and how to call it on two matrices."""

from __future__ import annotations

import inspect
import math
import warnings
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from importlib import import_module
from typing import TYPE_CHECKING, Any, Literal

import torch
from torch import Tensor

from layerscope.errors import InputError, LayerscopeWarning, near, unknown

if TYPE_CHECKING:
    import pandas

Invariance = Literal["orthogonal", "scaling", "linear", "translation"]
Needs = Literal["moments", "rows", "attention"]
SAME = "every row is the same, so nothing varies"
CONSTANT = 1e-12  # variance below this share of the squared mean is rounding: all rows are the same
_FILES = ("linear", "minibatch", "kernels", "neighbours", "attention")
_REGISTRY: dict[str, Measure] = {}


class Undefined(Exception):  # noqa: N818  (not an error: the value is NaN, with this reason)
    """The measure has no value here; the message says why."""


@dataclass(frozen=True)
class Measure:
    """One measure. Called on two matrices (n, d) and (n, d'), it gives a float; NaN, with a warning, if undefined."""

    name: str
    family: str
    symmetric: bool
    low: float
    high: float
    invariances: tuple[Invariance, ...]
    needs: Needs
    source: str
    compute: Callable[..., float]
    inverts: bool = False  # a covariance is inverted, so products must be made in float64
    estimate: bool = False  # an estimate from part of the row pairs
    factor: Callable[..., Any] | None = None  # rows -> what `compute` takes of a side, made once a layer
    doc: str = ""

    def __call__(self, x: Any, y: Any, **options: Any) -> float:
        """The measure of two matrices with the same rows."""
        try:
            return self.value(*checked(x, y), **options)
        except Undefined as reason:
            warnings.warn(f"{self.name} is undefined: {reason}.", LayerscopeWarning, stacklevel=2)
            return math.nan

    def value(self, x: Tensor, y: Tensor, **options: Any) -> float:
        """The same for checked float64 matrices; raises Undefined with the reason."""
        self.check_options(options)
        if len(x) < 2:
            raise Undefined("one row has no variation")
        if self.factor is not None:
            return self.of_factors(*(self.factored(m, **options) for m in (x, y)), **options)

        from layerscope.measures.sides import sides_of

        standardize = options.pop("standardize", False)
        return float(self.compute(*sides_of(x, y, standardize), **options))

    def factored(self, x: Tensor, **options: Any) -> Any:
        """What a pair needs of one side's rows (float64; an estimate takes them as they are)."""
        if len(x) < 2:
            raise Undefined("one row has no variation")
        if not (varies(x[:64]) or varies(x)):
            raise Undefined(SAME)
        assert self.factor is not None
        return self.factor(x, **{k: v for k, v in options.items() if k in _keywords(self.factor)})

    def of_factors(self, a: Any, b: Any, **options: Any) -> float:
        """The measure of two factored sides."""
        return float(self.compute(a, b, **{k: v for k, v in options.items() if k in _keywords(self.compute)}))

    def check_options(self, options: dict[str, Any]) -> None:
        """Raise a sentence for an option that the measure does not have."""
        for name in options:
            if name not in self.options():
                raise InputError(
                    f"The measure {self.name} has no option {name!r}; it has "
                    f"{', '.join(self.options()) or 'none'}.{near(name, self.options())}"
                )

    def options(self) -> list[str]:
        if self.factor is None:
            return [*_keywords(self.compute), "standardize"]
        return list(dict.fromkeys([*_keywords(self.factor), *_keywords(self.compute)]))


@cache
def _keywords(function: Callable[..., Any]) -> list[str]:
    parameters = inspect.signature(function).parameters.values()
    return [p.name for p in parameters if p.kind is p.KEYWORD_ONLY]


def register(
    name: str,
    *,
    family: str,
    symmetric: bool,
    bounds: tuple[float, float],
    invariances: tuple[Invariance, ...],
    needs: Needs,
    source: str,
    inverts: bool = False,
    estimate: bool = False,
    factor: Callable[..., Any] | None = None,
    kind: type[Measure] = Measure,
) -> Callable[[Callable[..., float]], Callable[..., float]]:
    """Enter a function into the registry. Its (and its factor's) keyword-only arguments are the measure's options."""

    def enter(compute: Callable[..., float]) -> Callable[..., float]:
        doc = (compute.__doc__ or "").strip()
        _REGISTRY[name] = kind(
            name, family, symmetric, *bounds, invariances, needs, source, compute, inverts, estimate, factor, doc
        )
        return compute

    return enter


@cache
def registry() -> dict[str, Measure]:
    """Every measure by its name."""
    for file in _FILES:
        import_module(f"layerscope.measures.{file}")
    return _REGISTRY


def measure(name: str) -> Measure:
    """The measure of that name: call it on two matrices."""
    if name not in registry():
        raise unknown("measure", name, registry())
    return registry()[name]


def measures() -> pandas.DataFrame:
    """The registry as a table: name, family, symmetric, low, high, invariances, needs, source."""
    import pandas

    return pandas.DataFrame(
        [
            {
                "name": m.name,
                "family": m.family,
                "symmetric": m.symmetric,
                "low": m.low,
                "high": m.high,
                "invariances": ", ".join(m.invariances),
                "needs": m.needs,
                "source": m.source,
            }
            for m in registry().values()
        ]
    )


def varies(x: Tensor) -> bool:
    """Whether the rows differ by more than rounding."""
    mean = x.mean(dim=0, dtype=torch.float64)
    return float((x - mean).pow(2).sum()) > CONSTANT * len(x) * float(mean @ mean)


def checked(x: Any, y: Any) -> tuple[Tensor, Tensor]:
    """Two matrices in float64 on one device, or the error that says what is wrong with them."""
    found = []
    for name, value in (("first", x), ("second", y)):
        matrix = value.detach() if isinstance(value, Tensor) else torch.as_tensor(value)
        if matrix.ndim != 2 or not matrix.shape[1]:
            raise InputError(f"The {name} argument has shape {tuple(matrix.shape)}; a matrix (n, d) is needed.")
        if matrix.is_complex():
            raise InputError(f"The {name} argument holds complex numbers; a real matrix is needed.")
        matrix = matrix.to(torch.float64)
        if not bool(torch.isfinite(matrix).all()):
            row = int((~torch.isfinite(matrix)).any(dim=1).nonzero()[0])
            raise InputError(f"The {name} argument has a NaN or an infinity in row {row}; leave such rows out first.")
        found.append(matrix)
    first, second = found
    if len(first) != len(second):
        raise InputError(
            f"The arguments have {len(first)} and {len(second)} rows; row i must be the same thing in both."
        )
    if not len(first):
        raise InputError("The arguments have no rows.")
    return first, second.to(first.device)
