"""Strategies: which blocks are tuned and where the head sits, as Xie et al. (2022) write them; those of the papers."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from typing import Any, Union

from layerscope.errors import InputError, log, near, whole

# Xie et al. 2022: baselines, l*-down with the head on l* and on top, l*-up (tables 6 to 9, 11, 12).
XIE = (
    *("full", "(L, L, L)", "(L-1, L, L)", "(L-2, L, L)"),
    *("(l*, l*, l*)", "(l*-1, l*, l*)", "(l*-2, l*, l*)", "(1, l*, l*)"),
    *("(l*, l*, L)", "(l*-1, l*, L)", "(l*-2, l*, L)", "(l*+1, L, L)"),
)
# Wu et al. 2020, table 1.
WU = ("full", "freeze-top-4", "freeze-top-6", "freeze-bottom-4", "freeze-bottom-6")


def middle_layer(depth: int) -> int:
    """Return Xie et al.'s middle layer: 13 of 24, so the first of the upper half."""
    return min(depth // 2 + 1, depth)


def middle(depth: int) -> tuple[str, ...]:
    """Return Xie et al.'s middle-layer baselines, without those that would begin below block 1 of a depth.

    They have the same names at any depth, so that tables of several models have them in the same rows.
    """
    bottoms = ("m", "m-1", "m-2")[: middle_layer(depth)]
    return tuple(f"({bottom}, m, {head})" for head in ("m", "L") for bottom in bottoms)


def every(depth: int) -> list[str]:
    """Return all strategies of the papers, and head-only."""
    return list(dict.fromkeys((*XIE, *WU, "head-only", *middle(depth))))


def of_preset(preset: str | None, depth: int) -> list[str]:
    """Return the strategies that go with a paper's hyperparameters; Xie et al.'s where it compares none."""
    return list(WU if preset == "wu2020" else (*XIE, *middle(depth)))


NAMES = ("full", "head-only", "top-K", "freeze-bottom-K", "freeze-top-K")
Bound = int | str | None
Asked = Union[str, Sequence[Bound], "Strategy"]

_BOUND = re.compile(r"(l\*|L|m|\d+)\s*(?:([+-])\s*(\d+))?")
_OF_LAYERS = ("l*", "m")  # bounds that a shallow model may not have room below


@dataclass(frozen=True)
class Strategy:
    """Blocks bottom..top are tuned and the head reads layer `head`; blocks above `head` are dropped.

    Args:
        bottom: The lowest tuned block: a number, or a text such as `l*-2` that `resolve` turns into one (`m` is the
            middle layer, as Xie et al. count it). None, as `top`, where no block is tuned and only the head is.
        top: The highest tuned block.
        head: The layer that the head reads.
        embeddings: Whether the embeddings are tuned; None: under (1, L, L) only, which is Xie et al.'s rule. Under
            `freeze-top-K` they are, as Wu et al. freeze the named blocks and nothing else.

    Example:
        >>> import layerscope as ls
        >>> strategy = ls.Strategy("l*-2", "l*", "L")
        >>> strategy.resolve(12, best=7).blocks
        (5, 6, 7)
    """

    bottom: Bound
    top: Bound
    head: int | str
    embeddings: bool | None = None

    @staticmethod
    def parse(text: Asked) -> Strategy:
        """A strategy from its text.

        Args:
            text: `(bottom, top, head)` with numbers, L, l* and m (the middle layer), such as `(l*-2, l*, L)`, where
                `with embeddings` or `without embeddings` may follow; or full, head-only, top-3, freeze-bottom-6 (which
                freezes the embeddings too), freeze-top-4 (which trains them). Or the three one by one:
                `("l*-2", "l*", 12)`.

        Returns:
            The strategy, with its texts as they are.

        Example:
            >>> import layerscope as ls
            >>> print(ls.Strategy.parse("(l*-2, l*, L)").resolve(12, best=7))
            (5, 7, 12)
        """
        if isinstance(text, Strategy):
            return text
        name = f"({', '.join(map(str, text))})" if isinstance(text, list | tuple) else str(text).strip()
        for pattern, make in _FORMS:
            if match := re.fullmatch(pattern, name):
                return make(match)
        raise InputError(
            f"{text!r} is not a strategy; write (bottom, top, head) with numbers, L, l* and m (the middle layer), such "
            f"as (l*-2, l*, L), or "
            f"{', '.join(NAMES)}.{near(name, NAMES)}"
        )

    @property
    def needs_best(self) -> bool:
        """Whether l* must be known."""
        return any("l*" in str(bound) for bound in (self.bottom, self.top, self.head))

    @property
    def is_above(self) -> bool:
        """Whether the strategy was asked for as tuning from l*+1 up."""
        return str(self.bottom).startswith("l*+")

    def resolve(self, depth: int, best: int | None = None, quiet: bool = False) -> Strategy:
        """The same in numbers.

        Args:
            depth: How many blocks the model has.
            best: l*, where the strategy needs it.
            quiet: Say nothing where a bottom below block 1 becomes 1.

        Returns:
            A strategy whose bounds are numbers. A bottom of `l*-k` or `m-k` below block 1 becomes 1, with a warning.

        Example:
            >>> import layerscope as ls
            >>> print(ls.Strategy.parse("top-3").resolve(12))
            (10, 12, 12)
        """
        best = check_best(best, depth)
        if self.needs_best and best is None:
            raise InputError(f"The strategy {self} needs l*, the layer of the task's specialty; give it as best=.")
        head = self._number(self.head, depth, best)
        if self.bottom is None or self.top is None:
            return Strategy(None, None, _checked(head, depth, "head", 0), self.embeddings)
        bottom, top = (self._number(bound, depth, best) for bound in (self.bottom, self.top))
        if isinstance(self.bottom, str) and self.bottom.startswith(_OF_LAYERS) and bottom < 1:
            if not quiet:
                reason = f"l* = {best}" if self.bottom.startswith("l*") else f"{depth} blocks"
                log.warning("%s is %d with %s; block 1 is taken instead.", self.bottom, bottom, reason)
            bottom = 1
        way_out = f"The nearest that this model can have is {_nearest(bottom, top, head, depth)}."
        if self.is_above and bottom > depth:
            raise InputError(
                f"The strategy {self} starts above the model: l* = {best} is the top layer of {depth}. {way_out}"
            )
        for name, value in (("bottom", bottom), ("top", top), ("head", head)):
            _checked(value, depth, name, 1, f" {way_out}")
        if bottom > top:
            raise InputError(
                f"The strategy {self} is ({bottom}, {top}, {head}): its bottom is above its top. {way_out}"
            )
        if head < top:
            raise InputError(
                f"The strategy {self} is ({bottom}, {top}, {head}): its head is below its top, so tuned blocks would "
                f"never be read. {way_out}"
            )
        return Strategy(bottom, top, head, self.embeddings)

    def check(self, depth: int) -> None:
        """Raise, before l* is known, unless the strategy has numbers for some l*.

        Args:
            depth: How many blocks the model has.
        """
        if not self.needs_best:
            self.resolve(depth)
            return
        failed: InputError | None = None
        for best in range(1, depth + 1):
            try:
                self.resolve(depth, best, quiet=True)
                return
            except InputError as error:
                failed = error
        raise InputError(f"The strategy {self} has no numbers for any l* from 1 to {depth}. {failed}") from failed

    @property
    def blocks(self) -> tuple[int, ...]:
        """The tuned blocks, of a resolved strategy."""
        if self.bottom is None or self.top is None:
            return ()
        if not isinstance(self.bottom, int) or not isinstance(self.top, int):
            raise InputError(f"The strategy {self} is not in numbers yet; resolve it for a model's depth first.")
        return tuple(range(self.bottom, self.top + 1))

    def is_whole(self, depth: int) -> bool:
        """Whether every block is tuned under the head on top, of a resolved strategy."""
        return (self.bottom, self.top, self.head) == (1, depth, depth)

    def trains_embeddings(self, depth: int) -> bool:
        """Whether embeddings are tuned: under (1, L, L), or as `embeddings` says."""
        return self.is_whole(depth) if self.embeddings is None else self.embeddings

    def spec(self) -> dict[str, Any]:
        """What decides it, for keys of the store."""
        return asdict(self)

    def _number(self, bound: Bound, depth: int, best: int | None) -> int:
        if isinstance(bound, int):
            return bound
        match = _BOUND.fullmatch(str(bound).strip())
        if match is None:
            raise InputError(f"{bound!r} in the strategy {self} is neither a number, L, l* nor m, with an offset.")
        layers = {"L": depth, "l*": best, "m": middle_layer(depth)}
        start = layers[match[1]] if match[1] in layers else int(match[1])
        assert start is not None
        return start + int(f"{match[2]}{match[3]}" if match[2] else 0)

    def __str__(self) -> str:
        if self.bottom is None:
            return "head-only" if self.head == "L" else f"head-only at {self.head}"
        embeddings = {None: "", True: " with embeddings", False: " without embeddings"}[self.embeddings]
        return f"({self.bottom}, {self.top}, {self.head}){embeddings}"


def _top(match: re.Match[str]) -> Strategy:
    count = int(match[1])
    return Strategy(f"L-{count - 1}", "L", "L") if count else Strategy(None, None, "L")


_EMBEDDINGS = {None: None, "with": True, "without": False}
_FORMS: tuple[tuple[str, Callable[[re.Match[str]], Strategy]], ...] = (
    (r"full", lambda _: Strategy(1, "L", "L")),
    (r"head-only", lambda _: Strategy(None, None, "L")),
    (r"head-only at (.+)", lambda match: Strategy(None, None, _bound(match[1], match[0]))),
    (r"top-(\d+)", _top),
    (r"freeze-bottom-(\d+)", lambda match: Strategy(int(match[1]) + 1, "L", "L")),
    (r"freeze-top-(\d+)", lambda match: Strategy(1, f"L-{int(match[1])}", "L", embeddings=True)),
    (
        r"\(?\s*([^,()]+)\s*,\s*([^,()]+)\s*,\s*([^,()]+?)\s*\)?(?:\s+(with|without) embeddings)?",
        lambda match: Strategy(
            *(_bound(match[1], match[0]), _bound(match[2], match[0]), _bound(match[3], match[0])),
            embeddings=_EMBEDDINGS[match[4]],
        ),
    ),
)


def _bound(text: str, whole: str) -> int | str:
    """Return a bound of a strategy, as a number or as text such as `l*-2`; raise InputError where it is neither."""
    match = _BOUND.fullmatch(text.strip())
    if match is None:
        raise InputError(f"{text.strip()!r} in the strategy {whole} is neither a number, L, l* nor m, with an offset.")
    if match[1].isdigit():
        return int(match[1]) + int(f"{match[2]}{match[3]}" if match[2] else 0)
    return match[1] + (f"{match[2]}{int(match[3])}" if match[2] else "")


def check_best(best: int | None, depth: int) -> int | None:
    """Return `best` if it may be l* of a model of `depth` blocks, or is not given; else raise InputError."""
    if best is None:
        return None
    if not whole(best) or not 1 <= best <= depth:
        raise InputError(f"l* is {best}; this model has layers 1..{depth} to choose it from.")
    return int(best)


def name_of(strategy: Asked) -> str:
    """Return a strategy's name: its text as it was given, or what its parts say."""
    return strategy if isinstance(strategy, str) else str(Strategy.parse(strategy))


def _checked(value: int, depth: int, name: str, least: int, way_out: str = "") -> int:
    if not least <= value <= depth:
        raise InputError(f"The strategy's {name} is {value}; this model has blocks 1..{depth}.{way_out}")
    return value


def _nearest(bottom: int, top: int, head: int, depth: int) -> Strategy:
    """Return the strategy whose numbers are nearest to these among those that a model of this depth can have."""
    top = min(max(top, 1), depth)
    return Strategy(min(max(bottom, 1), top), top, min(max(head, top), depth))
