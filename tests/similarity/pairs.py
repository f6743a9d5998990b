"""Two sides that are alike in part, and the names of what measures them."""

import numpy as np

from layerscope.registry import MEASURES

ATTENTION = {f"attention_{name}" for name in ("norm", "pearson", "js", "cka", "svcca", "pwcca")}
ROWWISE = {"cosine", "angular"}  # of two layers of one width, so that they are tested in a file of their own
NAMES = sorted(set(MEASURES) - ATTENTION - ROWWISE)
LINEAR = [name for name in NAMES if MEASURES[name].needs == "moments" and MEASURES[name].cross == "scatter"]


def data(n=120, d=7, e=5, seed=0):
    generator = np.random.default_rng(seed)
    x = generator.normal(size=(n, d)) * np.linspace(0.5, 3, d) + 0.3
    y = x @ generator.normal(size=(d, e)) + generator.normal(size=(n, e)) * 2 - 1
    return x, y
