"""Layer scores of all layers beside the forward pass, the grouped form of PRESS beside the exact one, and a peer.

Run with: python benchmarks/scores.py [--texts 5000] [--many 0] [--ranker FOLDER] [--format json]. Needs `demo`. With
`--many 100000` PRESS of that many texts comes from moments alone, no row kept. `--ranker` is a folder into which a peer
was installed (`pip install --no-deps --target FOLDER transformer-ranker==0.2.0 torchmetrics lightning-utilities`); its
LogME and H-score of the best layer of every model are set beside `ls.rank` on the same rows.
"""

from __future__ import annotations

import argparse
import json
import resource
import sys
import time
from collections.abc import Callable
from typing import Any

import numpy as np
import pandas
import torch
from transformers import BertConfig, BertModel

import layerscope as ls
from layerscope.extraction.pooling import Reading
from layerscope.extraction.stream import Batch, Streamer
from layerscope.probing.layer_score import LayerRows
from layerscope.probing.scores.press import Press
from layerscope.registry import LAYER_SCORES

MODELS = ("demo:minilm", "garden:bert-s0", "garden:roberta-s0", "garden:electra-s0", "garden:gpt2-s0")


class Nothing:
    """A consumer that keeps nothing."""

    def update(self, batch: Batch) -> None:
        pass


def seconds(action: Callable[[], Any]) -> tuple[float, Any]:
    """How long an action takes, and what it gives."""
    start = time.perf_counter()
    found = action()
    return time.perf_counter() - start, found


def texts_of(count: int) -> ls.Task:
    """That many texts of pydocs, its own over and over, a few words exchanged so that no two are alike."""
    part = ls.task("pydocs").split("train")
    draw = np.random.default_rng(0)
    texts, labels = [], []
    for k in range(count):
        words = part.texts[k % len(part)].split()
        if k >= len(part):
            draw.shuffle(words)
        texts.append(" ".join(words))
        labels.append(int(part.labels[k % len(part)]))
    return ls.task(pandas.DataFrame({"text": texts, "label": labels}))


def base(small: bool) -> ls.Model:
    """BERT-base, or one with two narrow blocks, with random weights."""
    torch.manual_seed(0)
    words = ls.load("demo:minilm").tokenizer
    size = (
        {"num_hidden_layers": 2, "hidden_size": 64, "intermediate_size": 64, "num_attention_heads": 2} if small else {}
    )
    return ls.load(BertModel(BertConfig(vocab_size=len(words), **size)).eval(), tokenizer=words)


def measure_scores(model: ls.Model, texts: int, max_length: int) -> dict[str, float]:
    """Every score of all layers over the forward pass, 20 permutations and no intervals, and PRESS's forms."""
    task = texts_of(texts)
    examples = task.split("all")
    streamer = Streamer([model], None, Reading("mean", max_length=max_length))
    forward, _ = seconds(lambda: streamer.feed(examples, [Nothing()], "forward"))
    reps = ls.extract(model, task, pool="mean", max_length=max_length)
    found = {"forward passes alone, s": forward}
    for name in LAYER_SCORES:
        took, _ = seconds(lambda name=name: ls.layer_scores(reps, [name], ci=None))
        found[f"{name} of all layers / forward passes"] = took / forward
    took, exact = seconds(lambda: ls.layer_scores(reps, ["press"]))
    found["press with intervals / forward passes"] = took / forward
    grouped = ls.layer_scores(model, ["press"], task=task, keep=False, null=0, max_length=max_length)["press"]
    found["exact less grouped PRESS, greatest over layers"] = float(
        np.nanmax(np.abs(exact["press"].values - grouped.values))
    )
    rows = reps[reps.layers[-1]][:200]
    labels = np.unique(np.asarray(reps.labels)[:200], return_inverse=True)[1]
    closed, value = seconds(lambda: Press().values(LayerRows(rows, np.arange(200)), labels[None])[0])
    naive, other = seconds(lambda: row_by_row(rows.double().numpy(), labels))
    return found | {"row by row / closed form, 200 rows": naive / closed, "their difference": abs(other - value)}


def row_by_row(x: np.ndarray, labels: np.ndarray) -> float:
    """PRESS by solving the map again without each row."""
    from sklearn.linear_model import Ridge

    from layerscope.probing.scores.press import GRID

    z = (x - x.mean(axis=0)) / np.where(x.std(axis=0) > 0, x.std(axis=0), 1)
    y = np.eye(labels.max() + 1)[labels]
    squares = np.zeros(len(GRID) + 1)
    for k in range(len(x)):
        rest = np.arange(len(x)) != k
        for g, strength in enumerate(len(x) * GRID):
            guess = Ridge(alpha=strength).fit(z[rest], y[rest]).predict(z[[k]])
            squares[g] += ((guess - y[k]) ** 2).sum()
        squares[-1] += ((y[rest].mean(axis=0) - y[k]) ** 2).sum()
    return float(1 - squares.min() / squares[-1])


def measure_many(model: ls.Model, texts: int, max_length: int) -> dict[str, float]:
    """PRESS of many texts in the grouped form, and what it takes."""
    task = texts_of(texts)
    streamer = Streamer([model], None, Reading("mean", max_length=max_length))
    forward, _ = seconds(lambda: streamer.feed(task.split("all"), [Nothing()], "forward"))
    took, _ = seconds(lambda: ls.layer_scores(model, ["press"], task=task, keep=False, null=0, max_length=max_length))
    memory = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**20
    return {f"{texts} texts, grouped PRESS and forward / forward": took / forward, "greatest memory, GiB": memory}


def measure_ranker(folder: str, texts: int, max_length: int) -> dict[str, Any]:
    """TransformerRanker's estimators on the best layers of `ls.rank`: time, and whether the orders are the same."""
    sys.path.insert(0, folder)
    from transformer_ranker.estimators import HScore, LogME

    task = texts_of(texts)
    took, ranking = seconds(lambda: ls.rank(MODELS, task, max_length=max_length, timed=False, null=0))
    found: dict[str, Any] = {"ls.rank, s (states are extracted)": took}
    ours = list(ranking.frame["model"])
    found["order by PRESS"] = ", ".join(ours)
    layers = dict(zip(ranking.frame["model"], ranking.frame["layer"], strict=True))
    took_again, _ = seconds(lambda: ls.rank(MODELS, task, max_length=max_length, timed=False, null=0))
    found["ls.rank on stored states, s"] = took_again
    for kind in (LogME, HScore):
        start, values = time.perf_counter(), {}
        for source in MODELS:
            reps = ls.extract(source, task, pool="mean", max_length=max_length)
            name = source.split(":")[1] if source.split(":")[1] in layers else source
            rows, labels = reps[layers[name]], torch.as_tensor(np.asarray(reps.labels))
            values[name] = float(kind().fit(rows, labels))
        found[f"{kind.__name__} of TransformerRanker, one layer per model, s"] = time.perf_counter() - start
        found[f"order by its {kind.__name__}"] = ", ".join(sorted(values, key=lambda name: -values[name]))
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--texts", type=int, default=5000)
    parser.add_argument("--many", type=int, default=0)
    parser.add_argument("--max-length", type=int, default=64)
    parser.add_argument("--small", action="store_true", help="a small network in place of BERT-base, to try the script")
    parser.add_argument("--ranker", help="the folder that transformer-ranker was installed into")
    parser.add_argument("--format", choices=("table", "json"), default="table")
    options = parser.parse_args()
    model = base(options.small)
    found: dict[str, Any] = measure_scores(model, options.texts, options.max_length)
    if options.many:
        found |= measure_many(model, options.many, options.max_length)
    if options.ranker:
        found |= measure_ranker(options.ranker, min(options.texts, 1000), options.max_length)
    if options.format == "json":
        print(json.dumps(found, indent=1))
        return
    for name, value in found.items():
        print(f"  {name:60} {value:10.4g}" if isinstance(value, float) else f"  {name}: {value}")


if __name__ == "__main__":
    main()
