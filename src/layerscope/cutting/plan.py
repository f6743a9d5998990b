"""`LayerPlan`, a value that says which blocks stay and which layer the head reads; also in the words of other tools.

mergekit takes a plan as slices, llama.cpp as a list of blocks to prune.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from itertools import groupby, pairwise
from typing import Any

from layerscope.arguments import checked
from layerscope.errors import InputError, choose

WORDS_OF_PLANS = ("first", "without")  # what a plan in words begins with: `first 8`, `without 3-5,9`


@dataclass(frozen=True)
class LayerPlan:
    """The blocks that stay, in order, and the layer that the head reads (the last of them if not given).

    Blocks are 1..L. Blocks above `head` are not run, so they do not stay. `LayerPlan(keep=[])` puts the head on the
    embeddings, layer 0.

    Args:
        keep: The blocks that stay.
        head: The layer that the head reads; the last kept block if not given.

    Example:
        >>> import layerscope as ls
        >>> plan = ls.LayerPlan(keep=[1, 2, 3, 7])
        >>> print(plan)
        keep 1-3, 7, head on layer 7
        >>> plan.removed(8)
        (4, 5, 6, 8)
    """

    keep: tuple[int, ...]
    head: int

    def __init__(self, keep: Sequence[int], head: int | None = None) -> None:
        if isinstance(keep, str) or not hasattr(keep, "__iter__"):
            raise InputError(
                f"keep is {keep!r}; a list of the blocks that stay is needed, such as [1, 2, 5]. To keep the first "
                "ones: ls.truncate(model, keep)."
            )
        blocks = tuple(keep)
        if not _are_whole(*blocks):
            raise InputError(f"keep is {list(blocks)}; whole numbers of blocks are needed, such as [1, 2, 5].")
        blocks = tuple(int(b) for b in blocks)
        if any(b < 1 for b in blocks) or any(b >= c for b, c in pairwise(blocks)):
            raise InputError(f"keep is {list(blocks)}; blocks are numbered from 1, each once and in order.")
        if head is not None and not _are_whole(head):
            raise InputError(f"head is {head!r}; the whole number of a layer is needed, such as 5.")
        layer = (blocks[-1] if blocks else 0) if head is None else int(head)
        if layer != 0 and layer not in blocks:
            raise InputError(f"The head cannot read layer {layer}: block {layer} is not among the kept {list(blocks)}.")
        object.__setattr__(self, "keep", tuple(b for b in blocks if b <= layer))
        object.__setattr__(self, "head", layer)

    @staticmethod
    @checked
    def parse(text: str, depth: int, name: str = "the model") -> LayerPlan:
        """The plan that words mean for a model of that depth: `first 8`, or `without 3-5,9`."""
        word, _, blocks = text.partition(" ")
        choose("plan in words", word, WORDS_OF_PLANS)
        if word == "first":
            if not blocks.strip().isdigit():
                raise InputError(f"{text!r} names no number of blocks; write first 8.")
            return LayerPlan.truncated(depth, int(blocks))
        gone = set(integers(blocks))
        if wrong := sorted(block for block in gone if not 1 <= block <= depth):
            raise InputError(f"Block {wrong[0]} was to be left out; {name} has blocks 1..{depth}.")
        return LayerPlan([block for block in range(1, depth + 1) if block not in gone])

    @staticmethod
    def truncated(depth: int, keep: int) -> LayerPlan:
        """Blocks 1..keep of `depth`."""
        if not _are_whole(keep) or not 0 <= keep <= depth:
            raise InputError(f"keep is {keep!r}; this model has blocks 1..{depth}, so 0..{depth} of them can be kept.")
        return LayerPlan(range(1, keep + 1))

    @staticmethod
    def skipped(depth: int, first: int, last: int) -> LayerPlan:
        """All of `depth` blocks but first..last, inclusive."""
        if not _are_whole(first, last):
            raise InputError(
                f"Blocks {first!r}..{last!r} were to be skipped; whole numbers are needed, of blocks 1..{depth}."
            )
        if not 1 <= first <= last <= depth:
            raise InputError(f"Blocks {first}..{last} were to be skipped; this model has blocks 1..{depth}.")
        return LayerPlan([b for b in range(1, depth + 1) if not first <= b <= last])

    def check(self, depth: int) -> None:
        """Raise InputError if a model of this depth does not have the blocks."""
        if self.keep and self.keep[-1] > depth:
            raise InputError(f"Block {self.keep[-1]} was to be kept; this model has blocks 1..{depth}.")

    def removed(self, depth: int) -> tuple[int, ...]:
        """The blocks of a model of this depth that go."""
        return tuple(b for b in range(1, depth + 1) if b not in self.keep)

    def spec(self) -> dict[str, Any]:
        """The plan as JSON has it, for keys of the store and cards."""
        return {"keep": list(self.keep), "head": self.head}

    def print_as(self, tool: str, depth: int, name: str) -> str:
        """The plan for a model of this depth and name as another tool takes it: `mergekit` or `llama.cpp`."""

        return printed_as(tool, self, name, depth)

    @staticmethod
    def from_spec(value: Mapping[str, Any]) -> LayerPlan:
        """Return the plan that `spec` described."""
        return LayerPlan(value["keep"], value.get("head"))

    def __str__(self) -> str:
        return f"keep {spans(self.keep)}, head on layer {self.head}" if self.keep else "keep no block, head on layer 0"


def integers(text: str) -> list[int]:
    """Return the numbers of a text such as `0,3,6` or `0-6` (inclusive) or both."""
    numbers: list[int] = []
    for part in text.split(","):
        first, dash, last = part.strip().partition("-")
        if not first.isdigit() or (dash and not last.isdigit()):
            raise InputError(f"{text!r} is not a list of numbers; write 0,3,6 or 0-6.")
        if dash and int(last) < int(first):
            raise InputError(f"{part.strip()!r} runs backwards; write {last}-{first}.")
        numbers += range(int(first), int(last if dash else first) + 1)
    return numbers


def _are_whole(*numbers: Any) -> bool:
    """Return whether all are whole numbers; booleans are not accepted."""
    return not any(isinstance(n, bool) or not hasattr(n, "__index__") for n in numbers)


def spans(blocks: Sequence[int]) -> str:
    """Return `1-4, 7` for blocks 1, 2, 3, 4, 7."""
    parts: list[list[int]] = []
    for block in blocks:
        if parts and parts[-1][-1] == block - 1:
            parts[-1].append(block)
        else:
            parts.append([block])
    return ", ".join(f"{p[0]}-{p[-1]}" if len(p) > 1 else str(p[0]) for p in parts) or "none"


def _mergekit(plan: LayerPlan, name: str, depth: int) -> str:
    """Return a recipe that `mergekit-yaml` takes. Its ranges count from 0 and leave out their end."""
    lines = ["slices:"]
    for _, group in groupby(enumerate(plan.keep), key=lambda pair: pair[1] - pair[0]):
        blocks = [block for _, block in group]
        lines += [
            "  - sources:",
            f"      - model: {name}",
            f"        layer_range: [{blocks[0] - 1}, {blocks[-1]}]",
        ]
    return "\n".join([*lines, "merge_method: passthrough"])


def _llama_cpp(plan: LayerPlan, name: str, depth: int) -> str:
    """Return the option that `llama-quantize` takes. It counts blocks from 0."""
    return f"--prune-layers {','.join(str(block - 1) for block in plan.removed(depth))}"


PRINTERS: dict[str, Callable[[LayerPlan, str, int], str]] = {"mergekit": _mergekit, "llama.cpp": _llama_cpp}


def check_tool(tool: str | None) -> None:
    """Raise InputError if a tool is named that no plan can be printed for."""
    if tool is not None:
        choose("tool", tool, PRINTERS)


def printed_as(tool: str, plan: LayerPlan, name: str, depth: int) -> str:
    """Return a plan for a model of `depth` blocks as another tool takes it."""
    plan.check(depth)
    printer = PRINTERS[choose("tool", tool, PRINTERS)]
    if not plan.keep or not plan.removed(depth):
        what = "keeps no block" if not plan.keep else "removes none"
        raise InputError(f"The plan {what}, so there is nothing that {tool} could be told; choose another plan.")
    return printer(plan, name, depth)
