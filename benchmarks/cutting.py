"""The truncation curve and the skip map of a 12-block model against evaluating every cut model by itself.

Run with: python benchmarks/cutting.py [--texts 256] [--width 384] [--device cuda] [--no-memory] [--format json]

Needs the `demo` extra for a tokenizer; the model is a random BERT, since speed does not depend on the weights.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable

import torch
from memory import peak_megabytes
from transformers import BertConfig, BertForSequenceClassification

import layerscope as ls
from layerscope.cutting.curves import contiguous, truncations
from layerscope.cutting.plan import LayerPlan
from layerscope.cutting.sweep import sweep
from layerscope.evaluation.classification import ClassificationEvaluator
from layerscope.evaluation.evaluate import make_evaluator
from layerscope.models.architecture import only_blocks

DEPTH = 12


def examined(width: int, texts: int, device: str) -> ClassificationEvaluator:
    """A random 12-block classifier of docstrings."""
    tokenizer = ls.load("demo:minilm").tokenizer
    task = ls.task("pydocs")
    torch.manual_seed(0)
    config = BertConfig(
        vocab_size=len(tokenizer),
        hidden_size=width,
        num_hidden_layers=DEPTH,
        num_attention_heads=width // 64,
        intermediate_size=4 * width,
        num_labels=len(task.label_names or ()),
    )
    network = BertForSequenceClassification(config).eval().to(device)
    return make_evaluator(ls.load(network, tokenizer=tokenizer), task, split="train", limit=texts)


def seconds(action: Callable[[], object]) -> float:
    start = time.perf_counter()
    action()
    if torch.cuda.is_available():
        torch.cuda.synchronize()
    return time.perf_counter() - start


def one_by_one(found: ClassificationEvaluator, plans: list[LayerPlan]) -> None:
    """Each plan's model by itself: its blocks really taken out, one pass over the data."""
    for plan in plans:
        with only_blocks(found.model.network, found.model.architecture, plan.keep):
            found.logits()


def ratios(found: ClassificationEvaluator) -> dict[str, float]:
    spans = [LayerPlan.skipped(DEPTH, i, j) for i, j in contiguous(DEPTH)]
    found.logits()  # warm up
    result = {}
    for name, plans in (("truncation curve", truncations(DEPTH)), ("skip map", spans)):
        ours = seconds(lambda plans=plans, name=name: sweep(found, plans, name))
        naive = seconds(lambda plans=plans: one_by_one(found, plans))
        result[f"{name}, s"] = ours
        result[f"{len(plans)} evaluations / {name}"] = naive / ours
    return result


def peak(found: ClassificationEvaluator, what: str) -> float:
    """Peak memory in MB of one kind of work, in a process of its own."""
    if what == "evaluation":
        found.logits()
    else:
        plans = truncations(DEPTH) if what == "curve" else [LayerPlan.skipped(DEPTH, *s) for s in contiguous(DEPTH)]
        sweep(found, plans, what)
    return peak_megabytes()


def memory(options: argparse.Namespace) -> dict[str, float]:
    def measured(what: str) -> float:
        command = [
            sys.executable,
            __file__,
            "--peak",
            what,
            "--texts",
            str(options.texts),
            "--width",
            str(options.width),
        ]
        return float(subprocess.run(command, capture_output=True, text=True, check=True).stdout)

    one = measured("evaluation")
    return {
        "peak memory of one evaluation, MB": one,
        "truncation curve / that": measured("curve") / one,
        "skip map / that": measured("map") / one,
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--texts", type=int, default=256)
    parser.add_argument("--width", type=int, default=384)
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--no-memory", action="store_true")
    parser.add_argument("--format", choices=("table", "json"), default="table")
    parser.add_argument("--peak", help=argparse.SUPPRESS)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as home:
        os.environ["LAYERSCOPE_HOME"] = home
        found = examined(options.width, options.texts, options.device)
        if options.peak:
            print(peak(found, options.peak))
            return
        result = ratios(found)
    if not options.no_memory:
        result |= memory(options)
    if options.format == "json":
        print(json.dumps(result, indent=1))
        return
    print(f"{DEPTH} blocks x {options.width}, {options.texts} texts, {options.device}")
    for name, value in result.items():
        print(f"  {name:44} {value:10.4g}")


if __name__ == "__main__":
    main()
