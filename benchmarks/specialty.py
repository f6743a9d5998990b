"""nu of all layers over the cost of the forward passes alone, and probes side by side against one after another.

Run with: python benchmarks/specialty.py [--texts 600] [--format json]. Needs the `demo` extra.
"""

from __future__ import annotations

import argparse
import json
import time
from collections.abc import Callable

import torch
from transformers import BertConfig, BertModel

import layerscope as ls
from layerscope.evaluation.layer_heads import LayerHeads, classifier_of
from layerscope.extraction.pooling import Reading
from layerscope.extraction.stream import Batch, Streamer


class Nothing:
    """A consumer that keeps nothing."""

    def update(self, batch: Batch) -> None:
        pass


def seconds(*actions: Callable[[], object], rounds: int = 5) -> list[float]:
    """The shortest of several rounds of each action, taken in turns."""
    best = [float("inf")] * len(actions)
    for _ in range(rounds):
        for k, action in enumerate(actions):
            start = time.perf_counter()
            action()
            best[k] = min(best[k], time.perf_counter() - start)
    return best


def measure_nu(texts: int) -> dict[str, float]:
    model, examples = ls.load("demo:minilm"), ls.task("pydocs").split("train").take(slice(0, None, 4415 // texts))
    streamer = Streamer([model], None, Reading("mean"))
    frame = {"text": examples.texts, "label": examples.labels}

    import pandas

    task = ls.task(pandas.DataFrame(frame))
    forward, nu = seconds(
        lambda: streamer.feed(examples, [Nothing()], "forward"), lambda: ls.specialty(model, task), rounds=7
    )
    return {"forward passes alone, s": forward, "nu of all layers / forward passes": nu / forward}


def measure_probes(layers: int = 13, width: int = 384, n: int = 400) -> dict[str, float]:
    torch.manual_seed(0)
    words = ls.load("demo:minilm").tokenizer
    config = BertConfig(vocab_size=len(words), hidden_size=width, num_hidden_layers=layers - 1, num_attention_heads=6)
    model = classifier_of(ls.load(BertModel(config).eval(), tokenizer=words), ls.task("pydocs"))
    states, labels = torch.randn(layers, n, width), torch.arange(n).numpy() % 6

    def fit(chosen: list[int]) -> None:
        heads = LayerHeads(model, chosen)
        heads.fit(states[chosen], labels, states[chosen], lambda z: 0.0, learning_rate=1e-3, epochs=1, batch=8)

    together, alone = seconds(lambda: fit(list(range(layers))), lambda: [fit([k]) for k in range(layers)])
    return {f"{layers} probes side by side, s": together, "one after another / side by side": alone / together}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--texts", type=int, default=600)
    parser.add_argument("--format", choices=("table", "json"), default="table")
    options = parser.parse_args()
    found = measure_nu(options.texts) | measure_probes()
    if options.format == "json":
        print(json.dumps(found, indent=1))
        return
    for name, value in found.items():
        print(f"  {name:44} {value:10.4g}")


if __name__ == "__main__":
    main()
