"""What hostile folders hold: markup, names that lead elsewhere, pickles and code that tell when they are run."""

from __future__ import annotations

import os
from random import Random
from typing import Any

TAG = "ls-canary"
MARKUP = [
    f"<{TAG}>",
    f"</script><{TAG}>",
    f"</style><{TAG}>",
    f"</title><{TAG}>",
    f'"><{TAG} onerror=alert(1)>',
    f"'><{TAG} onload=alert(1)>",
    f"<!--<script><{TAG}>",
    f"]]><{TAG}>",
    f"&lt;{TAG}&gt;<{TAG}>",
    f"{{{{ 7*7 }}}}<{TAG}>",
    f"<svg><{TAG}></svg>",
    f"${{7*7}}<{TAG}>",
]
NAMES = [
    "../../outside",
    "/{world}/outside/x",
    "..",
    ".",
    "a/b/c",
    "-rf",
    "x" * 300,
    "a\nb",
    "a\x00b",
    "~",
    "con",
    "\u202egnp",
    "",
]
PICKLES = "pytorch_model.bin model.bin model.pt model.pth model.ckpt adapter_model.bin training_args.bin optimizer.pt"
PICKLES += " scheduler.pt rng_state.pth model.safetensors tokenizer.pkl w.bin vocab.pkl flax_model.msgpack tf_model.h5"
PICKLES += " tokenizer.model spiece.model adapter_model.safetensors"
CODE = "import pathlib\npathlib.Path({canary!r}).write_text('run')\nclass Evil:\n    pass\n"


class Evil:
    """A pickle that writes the canary when it is opened."""

    def __init__(self, canary: str) -> None:
        self.canary = canary

    def __reduce__(self) -> Any:
        return os.system, (f"echo run > {self.canary}",)


def poisoned(value: Any, draw: Random, depth: int = 0) -> Any:
    """The same tree with markup in its texts, except where words are looked up."""
    if isinstance(value, dict):
        fixed = ("kind", "file", "tables", "created") if depth != 1 else ("kind", "file")
        return {k: v if k in fixed and depth else poisoned(v, draw, depth + 1) for k, v in value.items()}
    if isinstance(value, list):
        return [poisoned(part, draw, depth + 1) for part in value]
    return draw.choice(MARKUP) if isinstance(value, str) and draw.random() < 0.7 else value
