"""What a comparison of all layers of a random decoder costs over one pass, by the planned route and by others.

Run with: python benchmarks/routes.py [--blocks 32] [--width 4096] [--texts 5000] [--dtype bfloat16] [--measure cka]
"""

from __future__ import annotations

import argparse
import logging
import time
from collections.abc import Callable
from typing import Any

import numpy as np
import pandas
import torch
from tokenizers import Tokenizer, models, pre_tokenizers
from transformers import LlamaConfig, LlamaModel, PreTrainedTokenizerFast

import layerscope as ls
from layerscope.extraction.stream import Batch
from layerscope.similarity import budget
from layerscope.similarity.execution_plan import GIB, ExecutionPlan

WORDS = 2000


class Nothing:
    """A consumer that keeps nothing."""

    def update(self, batch: Batch) -> None:
        pass


def word_tokenizer() -> PreTrainedTokenizerFast:
    """One token for each word."""
    special = {"pad_token": "<pad>", "unk_token": "<unk>"}
    vocabulary = [*special.values(), *(f"w{k}" for k in range(WORDS))]
    words = Tokenizer(models.WordLevel({word: k for k, word in enumerate(vocabulary)}, unk_token="<unk>"))
    words.pre_tokenizer = pre_tokenizers.WhitespaceSplit()  # type: ignore[assignment]
    return PreTrainedTokenizerFast(tokenizer_object=words, **special)


def decoder(blocks: int, width: int, dtype: torch.dtype) -> ls.Model:
    """A random Llama on the GPU, if there is one."""
    device = "cuda" if torch.cuda.is_available() else "cpu"
    shape = {"hidden_size": width, "intermediate_size": int(2.6875 * width), "num_hidden_layers": blocks}
    config = LlamaConfig(vocab_size=WORDS + 4, num_attention_heads=max(1, width // 128), **shape)
    with torch.device(device):
        torch.set_default_dtype(dtype)
        network = LlamaModel(config).eval()
        torch.set_default_dtype(torch.float32)
    return ls.load(network, tokenizer=word_tokenizer())


def sentences(count: int) -> list[str]:
    """Random words, from 5 to 60 in a sentence."""
    draw = np.random.default_rng(0)
    lengths = draw.integers(5, 60, count)
    return [" ".join(f"w{k}" for k in draw.integers(0, WORDS, length)) for length in lengths]


def seconds(action: Callable[[], Any], rounds: int) -> float:
    """The least time of some rounds."""
    best = float("inf")
    for _ in range(rounds):
        start = time.perf_counter()
        action()
        if torch.cuda.is_available():
            torch.cuda.synchronize()
        best = min(best, time.perf_counter() - start)
    return best


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--blocks", type=int, default=32)
    parser.add_argument("--width", type=int, default=4096)
    parser.add_argument("--texts", type=int, default=5000)
    parser.add_argument("--dtype", default="bfloat16")
    parser.add_argument("--measure", default="cka")
    parser.add_argument("--pool", default="last")
    parser.add_argument("--rounds", type=int, default=2)
    parser.add_argument("--ci", type=float)
    parser.add_argument("--forced", action="store_true", help="Time other routes too.")
    options = parser.parse_args()
    logging.basicConfig(format="%(message)s")
    logging.getLogger("layerscope").setLevel(logging.INFO)
    model = decoder(options.blocks, options.width, getattr(torch, options.dtype))
    task = ls.task(pandas.DataFrame({"text": sentences(options.texts)}))
    examples = task.split(None)
    bare = seconds(lambda: ls.stream(model, examples, Nothing(), layers=[options.blocks], pool="last"), options.rounds)
    print(f"one pass, last layer only: {bare:.3g} s")

    def compare() -> None:
        ls.compare(model, task=task, pool=options.pool, measure=options.measure, ci=options.ci)

    taken = seconds(compare, options.rounds)
    print(f"{options.measure} of all pairs of layers: {taken:.3g} s, over a pass: {taken / bare:.3g}")
    if not options.forced:
        return
    choose = budget.choose_plan
    for where in ("device", "host") if torch.cuda.is_available() else ("host",):
        for room in (4 * GIB, 16 * GIB):
            route = ExecutionPlan("rows", where, 0, room, 1, False, 0.0, 0.0)  # type: ignore[arg-type]
            budget.choose_plan = lambda *_, route=route: route  # type: ignore[misc]
            print(f"rows, {where}, {room // GIB} GiB for products: {seconds(compare, 1) / bare:.3g}")
    budget.choose_plan = choose


if __name__ == "__main__":
    main()
