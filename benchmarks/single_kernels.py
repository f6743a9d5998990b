"""What parts of a pass take on a GPU: means of tokens, attention in batches of new shapes, products; and padding.

Run with: python benchmarks/single_kernels.py [--device cuda] [--texts FILE --tokenizer MODEL --sentences 100000]

Times are in milliseconds, of a BERT-large with random weights in bfloat16, or of rows of its width; without a GPU they
are of a small one, as a check that everything runs. Padding is counted on whatever machine: all tokens of batches over
the tokens of the texts.
"""

from __future__ import annotations

import argparse
import itertools
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import similarity
import torch
from scale import Setting, task_of
from torch import Tensor

from layerscope.extraction.encoding import encode
from layerscope.extraction.forward import kernels_for_any_shape
from layerscope.extraction.loop import Batches, growing_windows, in_parts
from layerscope.extraction.pooling import Reading, plain_segment_means, segment_means

TEXTS, TOKENS, WIDTH, BLOCKS = 600, 27, 1024, 24
ROWS = 8192  # of a product
TOKENS_OF_BATCHES = (4096, 16384, 32768)


def milliseconds(setting: Setting, action: Callable[[], Any], rounds: int = 20) -> float:
    """The middle one of several, after one that does not count."""
    setting.seconds(action)
    return 1000 * float(np.median([setting.seconds(action) for _ in range(rounds)]))


def means(setting: Setting) -> Iterator[tuple[str, float]]:
    """Of the tokens of some texts, for one layer."""
    width = 64 if setting.small else WIDTH
    states = torch.randn(TEXTS, TOKENS, width, device=setting.device).to(torch.bfloat16)
    places = torch.arange(TEXTS * TOKENS, device=setting.device)
    offsets = torch.arange(0, TEXTS * TOKENS + 1, TOKENS, device=setting.device)
    mask = torch.ones(TEXTS, TOKENS, dtype=torch.bool, device=setting.device)
    flat = states.view(-1, width)

    def masked() -> Tensor:
        return states.masked_fill(~mask[..., None], 0.0).sum(dim=1, dtype=torch.float32) / mask.sum(dim=1, keepdim=True)

    yield "means as layerscope takes them", milliseconds(setting, lambda: segment_means(flat, places, offsets))
    yield "means by embedding_bag", milliseconds(setting, lambda: plain_segment_means(flat, places, offsets))
    yield "means by sums under a mask", milliseconds(setting, masked)


def attention(setting: Setting) -> Iterator[tuple[str, float]]:
    """A forward over texts of one length or of two, in a shape that was seen before or in a new one."""
    network = setting.model("bert-large", torch.bfloat16).network.base_model

    def forward(texts: int, padded: bool) -> Callable[[], Any]:
        ids = torch.randint(5, 1000, (texts, TOKENS), device=setting.device)
        mask = torch.ones_like(ids)
        mask[: texts // 2, -1] = int(not padded)
        return lambda: network(input_ids=ids, attention_mask=mask)

    texts = itertools.count(64 if setting.small else TEXTS, -1)
    with torch.inference_mode():
        for name, kernels in (("as torch chooses", torch.no_grad), ("as layerscope chooses", kernels_for_any_shape)):
            for padded in (False, True):
                with kernels():
                    kind = f"forward, attention {name}, {'some' if padded else 'no'} padding"
                    setting.seconds(forward(next(texts), padded))
                    new = [1000 * setting.seconds(forward(next(texts), padded)) for _ in range(5)]
                    yield f"{kind}, a new shape", float(np.median(new))
                    yield f"{kind}, a shape seen before", milliseconds(setting, forward(next(texts), padded), 5)


def products(setting: Setting) -> Iterator[tuple[str, float]]:
    """Of all pairs of layers, alone and beside forwards."""
    width, rows = (16, 64) if setting.small else (WIDTH, ROWS)
    for dtype in (torch.float64, torch.float32):
        states = torch.randn(rows, (BLOCKS + 1) * width, device=setting.device, dtype=dtype)
        action = _products_of(states, width)
        yield f"products of {rows:,} rows in {str(dtype).removeprefix('torch.')}", milliseconds(setting, action, 3)
    if setting.device.type != "cuda":
        return
    double = _products_of(states.double(), width)
    network = setting.model("bert-large", torch.bfloat16).network.base_model
    ids = torch.randint(5, 1000, (TEXTS, TOKENS), device=setting.device)
    side = torch.cuda.Stream()

    def forwards() -> None:
        for _ in range(ROWS // TEXTS + 1):
            network(input_ids=ids)

    def in_turn() -> None:
        for _ in range(3):
            forwards()
            double()

    def beside() -> None:
        for _ in range(3):
            forwards()
            side.wait_stream(torch.cuda.current_stream())
            with torch.cuda.stream(side):
                double()

    with torch.inference_mode(), kernels_for_any_shape():
        yield "three times forwards and products, in turn", milliseconds(setting, in_turn, 2)
        yield "the same on two streams", milliseconds(setting, beside, 2)


def _products_of(states: Tensor, width: int) -> Callable[[], Any]:
    layers = states.shape[1] // width
    return lambda: [states[:, i * width : (i + 1) * width].T @ states[:, i * width :] for i in range(layers)]


def padding(setting: Setting) -> Iterator[tuple[str, float]]:
    """All tokens of batches over those of the texts, sorted over all texts and within layerscope's windows."""
    examples = task_of(setting.texts).split()
    lengths = encode(setting.model("minilm"), examples, Reading()).lengths
    for tokens in TOKENS_OF_BATCHES:
        whole = Batches(tokens)

        def share(windows: list[np.ndarray], whole: Batches = whole) -> float:
            batches = [own[batch] for own in windows for batch in whole._planned(np.argsort(-own, kind="stable"), own)]
            return sum(len(batch) * int(batch.max()) for batch in batches) / int(lengths.sum())

        ends = np.cumsum([len(part) for part in in_parts(examples, growing_windows(tokens))])
        yield f"batches of {tokens:,} tokens, sorted over all texts", share([lengths])
        yield "the same within windows", share(np.split(lengths, ends[:-1]))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--device", choices=("cpu", "cuda"), default="cpu")
    parser.add_argument("--sentences", type=int, help="100,000 on a GPU")
    parser.add_argument("--texts", help="a file with one text per line")
    parser.add_argument("--tokenizer", help="the model whose tokenizer reads the texts")
    given = parser.parse_args()
    setting = Setting(argparse.Namespace(**vars(given), rounds=1, large=0, counts=None))
    for part in (means, attention, products, padding):
        similarity.show(part.__name__, dict(part(setting)))
        setting.free()


if __name__ == "__main__":
    main()
