"""A plan in the words of other tools: mergekit's slices, llama.cpp's list of blocks to prune."""

from __future__ import annotations

from collections.abc import Callable
from itertools import groupby

from layerscope.cutting.plan import LayerPlan
from layerscope.errors import InputError, choose


def _mergekit(plan: LayerPlan, name: str, depth: int) -> str:
    """A recipe that `mergekit-yaml` takes. Its ranges count from 0 and leave out their end."""
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
    """What `llama-quantize` takes. It counts blocks from 0."""
    return f"--prune-layers {','.join(str(block - 1) for block in plan.removed(depth))}"


PRINTERS: dict[str, Callable[[LayerPlan, str, int], str]] = {"mergekit": _mergekit, "llama.cpp": _llama_cpp}


def printed_as(tool: str, plan: LayerPlan, name: str, depth: int) -> str:
    """A plan for a model of `depth` blocks as another tool takes it."""
    plan.check(depth)
    printer = PRINTERS[choose("tool", tool, PRINTERS)]
    if not plan.keep or not plan.removed(depth):
        what = "keeps no block" if not plan.keep else "removes none"
        raise InputError(f"The plan {what}, so there is nothing that {tool} could be told; choose another plan.")
    return printer(plan, name, depth)
