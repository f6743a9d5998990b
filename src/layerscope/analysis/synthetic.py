"""Does a method find a map that is known to be there? (Ren et al. 2023, table 3)"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from torch import Tensor

from layerscope.alignment import METHODS
from layerscope.alignment.networks import random_couplings
from layerscope.analysis.alignment import align_stored
from layerscope.errors import InputError, choose
from layerscope.extract.representations import Representations

if TYPE_CHECKING:
    import pandas

TRUTHS = ("linear", "inn", "rotated inn")
TRIED = ("identity", "mean", "procrustes", "linear", "cca", "svcca", "inn", "mlp")
_HIDDEN = 128
_APART = 1_000_003  # added to the seeds of truths, so that no learner draws the same numbers


def synthetic_study(
    reps: Representations,
    *,
    layer: int | None = None,
    truths: Sequence[str] = TRUTHS,
    noise: Sequence[float] = (0.0, 0.1),
    methods: Sequence[str] = TRIED,
    repeats: int = 3,
    seed: int = 0,
    options: Mapping[str, Mapping[str, Any]] | None = None,
) -> pandas.DataFrame:
    """How close each method comes to Y = f(X) on the half of the rows that it did not learn from.

    X are a layer's states (the last one's), standardised.
    `inn` is a random invertible network of one coupling block that splits the features as they come; `rotated inn`
    is one in other coordinates; `linear` a random matrix. `noise` is added to Y, as a share of its standard deviation:
    then no method can come below noise^2 / (1 + noise^2). No method is told anything of f.
    """
    import pandas

    for truth in truths:
        choose("truth", truth, TRUTHS)
    for method in methods:
        choose("alignment method", method, tuple(METHODS))
    x = _standard(reps[reps.layers[-1] if layer is None else layer])
    if len(x) < 20:
        raise InputError(f"A synthetic study needs at least 20 rows; there are {len(x)}.")
    half = len(x) // 2
    rows = []
    for truth in truths:
        for repeat in range(repeats):
            y = mapped(truth, x, _APART + seed + repeat)
            for share in noise:
                generator = torch.Generator().manual_seed(2 * _APART + seed + repeat)
                noisy = y + share * y.std() * torch.randn(y.shape, generator=generator)
                for method in methods:
                    extra = (options or {}).get(method, {})
                    (aligner,) = align_stored([(x[:half], noisy[:half])], method, seed, extra)
                    about = {"truth": truth, "noise": share, "repeat": repeat, "method": method, "n": half}
                    rows.append({**about, **aligner.error(x[half:], noisy[half:])})
    return pandas.DataFrame(rows)


def mapped(truth: str, x: Tensor, seed: int) -> Tensor:
    """f(X) for a random f of the kind."""
    width = x.shape[1]
    generator = torch.Generator().manual_seed(seed)
    turn = torch.linalg.qr(torch.randn(width, width, generator=generator))[0]
    if truth == "linear":
        return x @ torch.randn(width, width, generator=generator) / width**0.5
    network = random_couplings(width, _HIDDEN, seed)
    with torch.no_grad():
        return network(x) if truth == "inn" else network(x @ turn) @ turn.T


def _standard(x: Tensor) -> Tensor:
    spread = x.std(dim=0)
    shuffled = torch.from_numpy(np.random.default_rng(0).permutation(len(x)))  # rows may be sorted by class
    return ((x - x.mean(dim=0)) / torch.where(spread > 0, spread, 1.0))[shuffled]
