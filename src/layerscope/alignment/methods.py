"""Which alignment methods there are: one class per file of `aligners/`. Listing their names imports none of them."""

from __future__ import annotations

import inspect
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from layerscope.errors import InputError, check_seed, choose, log
from layerscope.registry import Registry

if TYPE_CHECKING:
    from layerscope.alignment.aligner import Aligner

METHODS: Registry[Aligner] = Registry("layerscope.alignment.aligners", "alignment method", "method")
Options = Mapping[str, Mapping[str, Any]]  # by method, such as {"inn": {"start": "linear"}}


def by_place() -> list[str]:
    """Every method, from those that must be beaten to those whose maps can express the most."""
    return sorted(METHODS, key=lambda method: (METHODS[method].place, method))


def options_of(method: str) -> list[str]:
    """The names of a method's options, as its class takes them; every method has a seed beside them."""
    return [name for name in inspect.signature(METHODS[method]).parameters if name != "seed"]


def with_option(option: str) -> list[str]:
    """The methods that have an option, such as `start` or `pad`."""
    return [method for method in by_place() if option in options_of(method)]


def of_any_widths() -> list[str]:
    """The methods that map between any two widths."""
    return [method for method in by_place() if not METHODS[method].same_width]


def make(method: str, seed: int, options: Mapping[str, Any]) -> Aligner:
    """An aligner that is not fitted yet; a sentence where the method, the seed or an option cannot be used."""
    choose("alignment method", method, METHODS)
    allowed = options_of(method)
    if wrong := sorted(set(options) - set(allowed)):
        names = f"it has {', '.join(allowed)}" if allowed else "it has none"
        raise InputError(f"{method} has no option {', '.join(wrong)}; {names}.")
    return METHODS[method](seed=check_seed(seed), **options)


def check_methods(methods: Sequence[str] | None, options: Options | None, *others: str) -> None:
    """Raise a sentence for a method that is not known, asked for or given options; `others` may be asked for too."""
    for method in methods or ():
        choose("alignment method", method, (*METHODS, *others))
    for method in options or ():
        choose("alignment method", method, METHODS)


def usable(source_width: int, target_width: int, options: Options | None = None) -> list[str]:
    """The methods that map between these widths, in order; those that need one width where they are told to pad."""
    methods = by_place()
    if source_width == target_width:
        return methods
    padded = [method for method, given in (options or {}).items() if given.get("pad")]
    kept = [method for method in methods if method in padded or not METHODS[method].same_width]
    if len(kept) < len(methods):
        left_out = ", ".join(method for method in methods if method not in kept)
        log.info(
            "Without %s, which need one width on both sides (these have %d and %d).",
            *(left_out, source_width, target_width),
        )
    return kept
