"""ELMo: the speed of extracting all its layers against its bare forward on the same batches.

Run with: python benchmarks/elmo.py [--model garden:elmo-s0] [--texts 600] [--rounds 5] [--cpu] [--format json]
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable
from typing import Any

import torch
from extract import Nobody, batches, in_turn, show

import layerscope as ls
from layerscope.extraction.encoding import encode
from layerscope.extraction.loop import default_tokens
from layerscope.extraction.pooling import Reading

POOLS = ("mean", "words")


def throughput(source: str, texts: int, rounds: int, cpu: bool = False) -> dict[str, float]:
    """Extraction reads and numbers words too; the bare forward starts from prepared batches and pools nothing."""
    model: Any = ls.load(source)
    examples = ls.task("pydocs").split("train")
    examples = examples.take([i % len(examples) for i in range(texts)])

    def bare(pool: str) -> Callable[[], Any]:
        """Words are split otherwise where rows are words, so each pool has batches of its own."""
        grouped = batches(encode(model, examples, Reading(pool)), default_tokens(model), by_length=True)
        prepared = [model.tokenizer.batch([item.ids for item in group]).on(model.device) for group in grouped]
        return lambda: [_forward(model, batch) for batch in prepared]

    def full(pool: str) -> Callable[[], Any]:
        return lambda: ls.stream(model, examples, Nobody(), pool=pool)

    actions = {f"bare {pool}": bare(pool) for pool in POOLS} | {pool: full(pool) for pool in POOLS}
    taken = in_turn(actions, rounds, _cpu_seconds if cpu else None)
    ratios = {f"extraction / bare forward, pool {pool}": taken[f"bare {pool}"] / taken[pool] for pool in POOLS}
    return ratios | {"texts per second, pool mean": texts / taken["mean"]}


def _cpu_seconds(action: Callable[[], Any]) -> float:
    """Of all threads of this process, so that other processes do not count."""
    began = time.process_time()
    action()
    return time.process_time() - began


def _forward(model: Any, batch: Any) -> None:
    with torch.inference_mode():
        model.module(*batch.args, **batch.kwargs)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", default="garden:elmo-s0")
    parser.add_argument("--texts", type=int, default=600)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--cpu", action="store_true", help="count CPU time, where others use the machine")
    parser.add_argument("--format", choices=("table", "json"), default="table")
    options = parser.parse_args()
    show(throughput(options.model, options.texts, options.rounds, options.cpu), options)


if __name__ == "__main__":
    main()
