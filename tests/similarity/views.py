"""Three views of the same rows, and their moments however they arrive."""

import numpy as np
import torch

from layerscope.similarity.moments import Moments

WIDTHS = (5, 3, 4)


def rows(n=200, seed=0, wild=False):
    generator = np.random.default_rng(seed)
    base = generator.normal(size=(n, 4))
    views = [base @ generator.normal(size=(4, w)) + 0.5 * generator.normal(size=(n, w)) for w in WIDTHS]
    if wild:
        views[0][:, 1] *= 1000
        views[1] += 3000
    return [torch.from_numpy(v.astype(np.float32)) for v in views]


def fed(views, sizes, **options):
    moments = Moments(WIDTHS, **options)
    start = 0
    for size in sizes:
        moments.update([v[start : start + size] for v in views])
        start += size
    moments.update([v[start:] for v in views])
    return moments
