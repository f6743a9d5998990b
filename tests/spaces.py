"""Rows to align: pairs of sides with a noisy linear map between them, and spaces whose map is known."""

from __future__ import annotations

import numpy as np
import torch

import layerscope as ls
from layerscope.alignment.methods import options_of
from layerscope.alignment.networks import random_couplings

D, N = 16, 4000
EXACT, LEARNED = 1e-10, 0.01  # relative error on held-out rows, below which a map counts as found


def rows(n=300, d=6, seed=0):
    return np.random.default_rng(seed).normal(size=(n, d)) @ np.diag(np.linspace(0.5, 3, d)) + np.arange(d)


def noisy_pair(n=300, d=6, e=6, noise=0.3):
    x = rows(n, d)
    generator = np.random.default_rng(1)
    return x, x @ generator.normal(size=(d, e)) + noise * generator.normal(size=(n, e)) - 2


def quick(method):
    """Options under which a method that is trained takes a moment."""
    return {"steps": 60} if "steps" in options_of(method) else {}


def known():
    """X, and Y of an orthogonal map, of any linear map, of a random invertible network."""
    generator = torch.Generator().manual_seed(0)
    x = torch.randn(N + 1000, D, generator=generator)
    matrix = torch.randn(D, D, generator=generator)
    turn = torch.linalg.qr(matrix)[0]
    with torch.no_grad():
        return x, {"orthogonal": x @ turn, "linear": x @ matrix, "inn": random_couplings(D, 64, 3)(x)}


def relative(truth, method, **options):
    """The error of a method on held-out rows of a known map, and the aligner."""
    x, images = known()
    y = images[truth]
    aligner = ls.align(x[:N], y[:N], method=method, **options)
    return aligner.error(x[N:], y[N:])["relative"], aligner
