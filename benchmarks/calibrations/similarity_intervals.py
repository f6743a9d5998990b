"""Intervals of similarities: how often they cover the value that endless rows would give."""

from __future__ import annotations

import warnings

import numpy as np
import pandas

import layerscope as ls
from layerscope.errors import LayerscopeWarning

TITLE = "Intervals of a similarity"
TEXT = """
Two sides with flat spectra that share half of their variance (`x = h + e`, `y = h + f`, all normal with d independent
columns): with endless rows CKA is 1/4 and Procrustes similarity 1/2. An interval of level .95 should cover that in .95
of the simulations. Around `cka` and `procrustes` it does not: both are biased upwards at these sizes, and the jackknife
says by how much (`bias`). The last column is the same interval moved to `debiased`: the value less that bias, beside
`cka` the value of `cka_debiased`. For intervals take `cka_debiased`.
"""
ROUNDS = 100
SLOW = True
CASES = [
    *(("cka", n, 64) for n in (200, 500, 2000)),
    *(("cka_debiased", n, 64) for n in (200, 500, 2000)),
    *(("procrustes", n, 32) for n in (300, 3000)),
]
TRUTH = {"cka": 0.25, "cka_debiased": 0.25, "procrustes": 0.5}


def flat(n: int, width: int, seed: int) -> list[ls.Representations]:
    """Two sides that share half of their variance, in every direction alike."""
    generator = np.random.default_rng(seed)
    hidden = generator.normal(size=(n, width))
    return [ls.Representations.from_arrays([hidden + generator.normal(size=(n, width))]) for _ in range(2)]


def table(rounds: int, seed: int) -> pandas.DataFrame:
    """One line per measure and size: mean value, mean bias, how often the interval covers the truth."""
    lines = []
    for measure, n, width in CASES:
        truth, drawn = TRUTH[measure], []
        for k in range(rounds):
            with warnings.catch_warnings():
                warnings.simplefilter("ignore", LayerscopeWarning)
                sim = ls.compare(*flat(n, width, seed + 1000 * k), measure=measure, ci=0.95, seed=seed + k)
            assert sim.low is not None
            assert sim.high is not None
            assert sim.bias is not None
            assert sim.debiased is not None
            value, low, high, bias = (float(part[0, 0]) for part in (sim.values, sim.low, sim.high, sim.bias))
            moved = abs(float(sim.debiased[0, 0]) - truth) <= (high - low) / 2
            drawn.append([value, bias, low <= truth <= high, moved])
        names = ["mean value", "mean bias found", "interval covers", "debiased interval covers"]
        means = dict(zip(names, np.mean(drawn, axis=0).tolist(), strict=True))
        lines.append({"measure": measure, "rows": n, "columns": width, "true value": truth, **means})
    return pandas.DataFrame(lines)
