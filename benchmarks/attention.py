"""Attention of two 12-block models with 12 attention heads per block, all pairs, against the papers' way.

Run with: python benchmarks/attention.py [--sentences 500] [--pairs 6] [--device cuda] [--clock cpu] [--format json]

The papers' way takes every pair of layers by itself and every sentence by itself, and broadcasts heads against heads.
It is timed on some pairs of layers, and its time for all 300 follows. Both ways start from the same word-level
attention on the device; what the models need to make it is printed beside. `--clock cpu` counts seconds of CPU time
with one thread, for machines that are busy with other work. Needs the `garden` extra for a tokenizer; the models are
random BERTs, since speed does not depend on the weights.
"""

from __future__ import annotations

import argparse
import json
import platform
import time
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import torch
from torch import Tensor
from transformers import BertConfig, BertModel

import layerscope as ls
from layerscope.extraction.attention import AttentionReading, AttentionStreamer, Stack
from layerscope.extraction.extract import examples_of
from layerscope.similarity.attention.compare import AttentionSource, Panel
from layerscope.similarity.execution_plan import Groups

CLOCK = time.perf_counter
DEPTH, HEADS = 12, 12
ROUNDS = 5  # the shortest counts
LAYERS = 2 * DEPTH
PAIRS = LAYERS * (LAYERS + 1) // 2
Sentences = list[list[Tensor]]  # per layer of both models, per sentence (heads, t, t)


def models(device: str) -> list[ls.Model]:
    """Two random encoders with large queries and keys, so that attention is neither flat nor the same in all heads."""
    tokenizer = ls.load("garden:bert-s0").tokenizer
    found = []
    for seed in range(2):
        torch.manual_seed(seed)
        config = BertConfig(
            vocab_size=len(tokenizer),
            hidden_size=16 * HEADS,
            num_hidden_layers=DEPTH,
            num_attention_heads=HEADS,
            intermediate_size=256,
        )
        network = BertModel(config).eval().to(device)
        with torch.no_grad():
            for block in network.encoder.layer:
                for part in (block.attention.self.query, block.attention.self.key):
                    part.weight.mul_(8.0)
        found.append(ls.load(network, tokenizer=tokenizer))
    return found


def seconds(action: Callable[[], Any], rounds: int = 1) -> tuple[float, Any]:
    """The least time of some rounds, and the result."""
    best, result = float("inf"), None
    for _ in range(rounds):
        start = CLOCK()
        result = action()
        if torch.cuda.is_available():
            torch.cuda.synchronize()
        best = min(best, CLOCK() - start)
    return best, result


def attention(found: list[ls.Model], sentences: int) -> list[Stack]:
    """The word-level attention of all layers of both models."""
    stacks: list[Stack] = []
    AttentionStreamer(found, AttentionReading()).feed(examples_of("pydocs", None, sentences), stacks.append)
    return stacks


def by_sentence(stacks: list[Stack]) -> Sentences:
    """The same, a layer and a sentence at a time, as the papers hold it."""
    layers: Sentences = [[] for _ in range(LAYERS)]
    for stack in stacks:
        for place in range(len(stack.texts)):
            for model, weights in enumerate(stack.weights):
                for block, part in enumerate(weights[:, place].split(HEADS)):
                    layers[model * DEPTH + block].append(part.contiguous())
    return layers


def paper_norm(a: Tensor, b: Tensor) -> tuple[Tensor, int]:
    return (a[:, None] - b[None]).pow(2).sum(dim=(-2, -1)).sqrt(), 1


def paper_pearson(a: Tensor, b: Tensor) -> tuple[Tensor, int]:
    centred = [m - m.mean(dim=-1, keepdim=True) for m in (a, b)]
    scale = [m.pow(2).sum(dim=-1).sqrt() for m in centred]
    product = (centred[0][:, None] * centred[1][None]).sum(dim=-1)
    rows = product / (scale[0][:, None] * scale[1][None])
    alive = rows.isfinite()
    return torch.where(alive, rows, 0.0).sum(dim=-1), alive.sum(dim=-1)


def paper_js(a: Tensor, b: Tensor) -> tuple[Tensor, int]:
    p, q = a[:, None], b[None]
    middle = (p + q) / 2
    terms = torch.xlogy(p, p / middle) + torch.xlogy(q, q / middle)
    return terms.sum(dim=(-2, -1)) / 2, a.shape[-1]


def paper_js_by_logs(a: Tensor, b: Tensor) -> tuple[Tensor, int]:
    """The same where no weight is 0, so that plain logarithms do, two to three times as fast as xlogy."""
    p, q = a[:, None], b[None]
    middle = (p + q) / 2
    terms = p * (p / middle).log() + q * (q / middle).log()
    return terms.sum(dim=(-2, -1)) / 2, a.shape[-1]


WHOLE = ["attention_cka", "attention_svcca", "attention_pwcca"]
PAPER = {"attention_norm": paper_norm, "attention_pearson": paper_pearson, "attention_js": paper_js}


def paper_way(one: Callable[[Tensor, Tensor], Any], layers: Sentences, pairs: list[tuple[int, int]]) -> list[Tensor]:
    """Per pair of layers the mean over sentences or words, (heads, heads)."""
    found = []
    for i, j in pairs:
        total: Any = 0.0
        count: Any = 0
        for a, b in zip(layers[i], layers[j], strict=True):
            value, rows = one(a, b)
            total, count = total + value, count + rows
        found.append(total / count)
    return found


def ours(name: str, layer_source: AttentionSource, stacks: list[Stack]) -> Panel:
    """The statistics of all pairs of heads of all pairs of layers."""
    panel = Panel(layer_source, [(0, 0), (0, 1), (1, 1)], False, [ls.measure(name)])
    for stack in stacks:
        panel.update(stack)
    return panel


def difference(name: str, panel: Panel, expected: list[Tensor], pairs: list[tuple[int, int]]) -> float:
    """How far the papers' way is from ours, on the pairs that it was timed on."""
    worst = 0.0
    for (i, j), value in zip(pairs, expected, strict=True):
        sums = panel.sums[name][i // DEPTH, j // DEPTH]
        rows, columns = (slice(k % DEPTH * HEADS, (k % DEPTH + 1) * HEADS) for k in (i, j))
        mean = (sums[0] / sums[1])[rows, columns]
        worst = max(worst, float((mean - value).abs().max()))
    return worst


def measure(found: list[ls.Model], stacks: list[Stack], sample: int) -> Iterator[tuple[str, float]]:
    layers = by_sentence(stacks)
    layer_source = AttentionSource(Groups(found, None), None, "pydocs", None, 1, AttentionReading())
    every = [(i, j) for i in range(LAYERS) for j in range(i, LAYERS)]
    pairs = [every[k] for k in np.linspace(0, PAIRS - 1, sample).astype(int)]
    for name, one in PAPER.items():
        ours(name, layer_source, stacks[:2])  # warm up
        taken, panel = seconds(lambda name=name: ours(name, layer_source, stacks), ROUNDS)
        paper_way(one, layers, pairs[:1])
        naive, expected = seconds(lambda one=one: paper_way(one, layers, pairs), ROUNDS)
        yield f"{name}, s", taken
        yield f"the papers' way / {name}", naive * PAIRS / sample / taken
        yield f"{name}, difference", difference(name, panel, expected, pairs)
        if name == "attention_js":
            plain = seconds(lambda: paper_way(paper_js_by_logs, layers, pairs), ROUNDS)[0]
            yield f"the papers' way with plain logarithms / {name}", plain * PAIRS / sample / taken
    count = sum(len(stack.texts) for stack in stacks)
    for title, names in (("attention_cka, _svcca and _pwcca", WHOLE), ("all six", [*PAPER, *WHOLE])):
        taken = seconds(lambda names=names: ls.compare(found, measure=names, task="pydocs", limit=count))[0]
        yield f"{title} in one pass, models included, s", taken


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--sentences", type=int, default=500)
    parser.add_argument("--pairs", type=int, default=6, help="pairs of layers on which the papers' way is timed")
    parser.add_argument("--device", choices=("cpu", "cuda"), default="cpu")
    parser.add_argument("--format", choices=("table", "json"), default="table")
    parser.add_argument("--clock", choices=("wall", "cpu"), default="wall")
    options = parser.parse_args()
    if options.clock == "cpu":
        global CLOCK  # noqa: PLW0603
        CLOCK = time.process_time
        torch.set_num_threads(1)
    found = models(options.device)
    taken, stacks = seconds(lambda: attention(found, options.sentences))
    words = sum(len(s.texts) * s.weights[0].shape[-1] for s in stacks)
    table = options.format == "table"
    if table:
        print(
            f"{LAYERS} layers x {HEADS} attention heads, {PAIRS} pairs of layers, {options.sentences} sentences, "
            f"{words:,} words, {options.device}, {platform.machine()}, {torch.get_num_threads()} threads, "
            f"{options.clock} clock; the papers' way timed on {options.pairs} pairs of layers"
        )
    results = {"word-level attention of both models, s": taken}
    for name, value in measure(found, stacks, options.pairs):
        results[name] = value
        if table:
            print(f"  {name:60} {value:10.4g}", flush=True)
    if not table:
        print(json.dumps(results, indent=1))


if __name__ == "__main__":
    main()
