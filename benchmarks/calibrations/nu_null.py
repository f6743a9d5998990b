"""nu with permuted labels: how often the least nu is called lower than chance where it is not."""

from __future__ import annotations

import numpy as np
import pandas

import layerscope as ls

TITLE = "The least nu, with labels that say nothing"
TEXT = """
400 rows in 12 layers that change gradually (each is .9 of the one below and something new) and whose effective
dimension rises from 2 to 32: the last layers have the least nu whatever the labels say. With random labels (two
classes, even or one in ten) the share of simulations in which nu at l* has p < .05 must be about .05; `p_best` allows
for the choice among layers, `p` of the same layer does not. With classes that are apart by half a standard deviation
in every layer's first direction it should be far higher. 40 permutations.
"""
ROUNDS = 100


def layers(generator: np.random.Generator, rows: int = 400) -> list[np.ndarray]:
    """Twelve layers above layer 0, each like the one below, of ever more directions."""
    state, made = generator.normal(size=(rows, 32)), []
    for dimension in np.linspace(2, 32, 13):
        state = 0.9 * state + 0.4 * generator.normal(size=state.shape)
        made.append(state * np.exp(-np.arange(32) / dimension))
    return made


def table(rounds: int, seed: int) -> pandas.DataFrame:
    """Rates of p < .05 by the shares of the classes, and by whether labels say something."""
    generator, rows = np.random.default_rng(seed), []
    for apart in (0.0, 0.5):
        for share in (0.5, 0.1):
            after, plain, best = [], [], []
            for _ in range(rounds):
                labels = generator.permutation(np.arange(400) < 400 * share).astype(int)
                made = [each + apart * np.eye(32)[0] * labels[:, None] * each[:, 0].std() for each in layers(generator)]
                curve = ls.specialty(ls.Representations.from_arrays(made, labels), null=40)
                after.append(curve.p_best < 0.05)
                plain.append(curve.p[curve.best] < 0.05)
                best.append(curve.best >= 11)
            rows.append(
                {
                    "classes apart by": apart,
                    "share of the first class": share,
                    "p_best < .05": float(np.mean(after)),
                    "p < .05 at l*": float(np.mean(plain)),
                    "l* is 11 or 12": float(np.mean(best)),
                }
            )
    return pandas.DataFrame(rows)
