"""Intervals of `ls.agreement` where neighbouring layers are alike."""

from __future__ import annotations

import math

import numpy as np
import pandas

import layerscope as ls

TITLE = "Agreement of two curves over layers"
TEXT = """
Two curves over 6, 12 and 24 layers, each a first-order autoregression (autocorrelation .9: neighbouring layers are
alike; 0: every layer by itself) whose innovations have the true correlation. Share of 95% intervals of
`ls.agreement(...)["intervals"]["pearson"]` that cover it: wanted .90 or more in every row. Beside it the share of
intervals from layers drawn with replacement that do, which is what is usually done. `tells` is the share of
simulations in which `agreement` does not say that the layers are too few to tell, and `width` the mean width.
"""
ROUNDS = 200


def curves(layers: int, alike: float, truth: float, generator: np.random.Generator) -> np.ndarray:
    """(layers, 2) two autoregressions with a true correlation."""
    noise = generator.multivariate_normal([0, 0], [[1, truth], [truth, 1]], size=layers)
    values = [noise[0] / math.sqrt(1 - alike**2)]
    for each in noise[1:]:
        values.append(alike * values[-1] + each)
    return np.asarray(values)


def _by_layers(pairs: np.ndarray, generator: np.random.Generator, rounds: int = 200) -> tuple[float, float]:
    """The interval of layers drawn with replacement."""
    drawn = pairs[generator.integers(len(pairs), size=(rounds, len(pairs)))]  # (rounds, layers, 2)
    x, y = np.moveaxis(drawn - drawn.mean(axis=1, keepdims=True), 2, 0)
    with np.errstate(invalid="ignore"):
        each = (x * y).sum(axis=1) / np.sqrt((x**2).sum(axis=1) * (y**2).sum(axis=1))
    low, high = np.nanquantile(each, [0.025, 0.975])
    return float(low), float(high)


def table(rounds: int, seed: int) -> pandas.DataFrame:
    """Coverage by layers, autocorrelation and true correlation."""
    generator, rows = np.random.default_rng(seed), []
    for alike in (0.9, 0.5, 0.0):
        for truth in (0.0, 0.8):
            for layers in (6, 12, 24):
                ours, plain, widths, tells = [], [], [], []
                for _ in range(rounds):
                    pairs = curves(layers, alike, truth, generator)
                    at = list(range(1, layers + 1))
                    agreed = ls.agreement(*(ls.Curve("c", ["m"] * layers, at, pairs[:, k]) for k in (0, 1)))
                    low, high = agreed["intervals"]["pearson"]
                    ours.append(low <= truth <= high)
                    widths.append(high - low)
                    tells.append(not agreed["note"])
                    low, high = _by_layers(pairs, generator)
                    plain.append(low <= truth <= high)
                rows.append(
                    {
                        "autocorrelation": alike,
                        "true correlation": truth,
                        "layers": layers,
                        "covers": float(np.mean(ours)),
                        "tells": float(np.mean(tells)),
                        "width": float(np.mean(widths)),
                        "layers drawn with replacement cover": float(np.mean(plain)),
                    }
                )
    return pandas.DataFrame(rows)
