"""Blocks of layers: how often gradual change is called blocks, and how often planted blocks are found."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pandas

import layerscope as ls
from layerscope.similarity.result import Axis, Similarity

TITLE = "Blocks of layers"
TEXT = """
`ls.layer_blocks` gives a p-value against gradual change: steps between neighbouring layers that vary smoothly or at
random. Each row is a kind of similarity matrix, each rate the share of matrices with p < .05. It must be at most .08
over 13 layers wherever change is gradual, and at least .8 for two planted blocks.

- *independent noise*: similarity falls off as exp(-distance / 5), and every cell has noise of its own (.02);
- *autoregressive layers*: each layer is .9 of the layer below plus new noise, 200 rows of 32 features, linear CKA;
- *random steps*: layers lie on a line, at steps with a log-normal size (.5), and similarity is exp(-distance);
- *growing steps*, *shrinking steps*: the same, with steps that grow or shrink smoothly by a factor of 2 to 10, along a
  curve that bends either way, and noise of .005;
- *planted blocks*: .9 within, .3 across and the noise of every cell .02; cut anywhere that leaves two layers or more in
  each block;
- *one larger step*: random steps (.3), of which one is eight times as large.

The test is cautious: it looks at the cuts of the strongest split, and allows for the split that stands out most. What
it does not call blocks may have a boundary all the same, especially where there are few layers. With fewer than six
layers there is no p-value.
"""
ROUNDS = 500
LAYERS = (7, 13, 25)


def independent_noise(layers: int, generator: np.random.Generator) -> np.ndarray:
    places = np.arange(layers)
    return _noisy(np.exp(-np.abs(np.subtract.outer(places, places)) / 5), 0.02, generator)


def autoregressive_layers(layers: int, generator: np.random.Generator) -> np.ndarray:
    rows, width, kept = 200, 32, 0.9
    states = [generator.normal(size=(rows, width))]
    for _ in range(layers - 1):
        states.append(kept * states[-1] + np.sqrt(1 - kept**2) * generator.normal(size=(rows, width)))
    return _cka(states)


def random_steps(layers: int, generator: np.random.Generator) -> np.ndarray:
    return _on_a_line(0.2 * np.exp(0.5 * generator.normal(size=layers - 1)))


def growing_steps(layers: int, generator: np.random.Generator) -> np.ndarray:
    bend, factor = np.exp(generator.uniform(-0.7, 0.7)), generator.uniform(2, 10)
    steps = 0.05 * factor ** (np.linspace(0, 1, layers - 1) ** bend)
    return _noisy(_on_a_line(steps), 0.005, generator)


def shrinking_steps(layers: int, generator: np.random.Generator) -> np.ndarray:
    return growing_steps(layers, generator)[::-1, ::-1]


def planted_blocks(layers: int, generator: np.random.Generator, count: int = 2) -> np.ndarray:
    cuts = _cuts(layers, count - 1, generator)
    block = np.searchsorted(cuts, np.arange(layers), side="right")
    return _noisy(np.where(np.equal.outer(block, block), 0.9, 0.3), 0.02, generator)


def three_planted_blocks(layers: int, generator: np.random.Generator) -> np.ndarray:
    return planted_blocks(layers, generator, count=3)


def one_larger_step(layers: int, generator: np.random.Generator, times: float = 8.0) -> np.ndarray:
    steps = 0.1 * np.exp(0.3 * generator.normal(size=layers - 1))
    steps[_cuts(layers, 1, generator) - 1] *= times
    return _on_a_line(steps)


Case = Callable[[int, np.random.Generator], np.ndarray]
GRADUAL: dict[str, Case] = {
    "independent noise": independent_noise,
    "autoregressive layers": autoregressive_layers,
    "random steps": random_steps,
    "growing steps": growing_steps,
    "shrinking steps": shrinking_steps,
}
PLANTED: dict[str, Case] = {
    "two planted blocks": planted_blocks,
    "three planted blocks": three_planted_blocks,
    "one larger step": one_larger_step,
}
WANTED = {"two planted blocks": "at least .8", "three planted blocks": "", "one larger step": ""}


def similarity(values: np.ndarray) -> Similarity:
    """A matrix as `ls.compare` would return it."""
    layers = tuple(range(len(values)))
    axis = Axis(("simulated",) * len(values), layers, tuple(map(str, layers)))
    return Similarity(np.asarray(values), axis, axis, "cka", {}, 200)


def rate(case: Case, layers: int, rounds: int, seed: int, level: float = 0.05) -> float:
    """The share of matrices with p below the level."""
    generator = np.random.default_rng(seed)
    p_values = [ls.layer_blocks(similarity(case(layers, generator))).p_value for _ in range(rounds)]
    return float(np.mean(np.array(p_values) < level))


def table(rounds: int, seed: int) -> pandas.DataFrame:
    """The rates of every case at every depth."""
    wanted = {**dict.fromkeys(GRADUAL, "at most .08"), **WANTED}
    return pandas.DataFrame(
        [
            {"matrix": name, **{f"{n} layers": rate(case, n, rounds, seed) for n in LAYERS}, "wanted": wanted[name]}
            for name, case in {**GRADUAL, **PLANTED}.items()
        ]
    )


def _noisy(values: np.ndarray, noise: float, generator: np.random.Generator) -> np.ndarray:
    """With symmetric noise; a layer is the same as itself."""
    upper = np.triu(generator.normal(size=values.shape) * noise, 1)
    return np.where(np.eye(len(values), dtype=bool), 1.0, values + upper + upper.T)


def _on_a_line(steps: np.ndarray) -> np.ndarray:
    """Similarity falls off exponentially with distance along a line."""
    places = np.concatenate([[0.0], np.cumsum(steps)])
    return np.exp(-np.abs(np.subtract.outer(places, places)))


def _cka(states: list[np.ndarray]) -> np.ndarray:
    centred = [x - x.mean(axis=0) for x in states]
    cross = np.array([[np.linalg.norm(x.T @ y) ** 2 for y in centred] for x in centred])
    own = np.sqrt(np.diag(cross))
    return cross / np.outer(own, own)


def _cuts(layers: int, count: int, generator: np.random.Generator) -> np.ndarray:
    """Places of cuts that leave two layers or more in each block, all such places equally likely."""
    spare = np.sort(generator.choice(layers - count - 2, size=count, replace=False))
    return spare + 2 + np.arange(count)
