"""CKA of all pairs of layers with packages from PyPI, to set beside layerscope.

Each adapter imports its package when called, so that a missing package is an ImportError of that call alone:

    torch-cka==0.21  pytorch-cka==1.1.3  ckatorch==1.0.3  rsatoolbox==0.3.2  repsim==0.1.5
"""

from __future__ import annotations

import contextlib
import io
from collections.abc import Callable

import numpy as np
import torch
from torch.utils.data import DataLoader, TensorDataset


class Stored(torch.nn.Module):
    """A layer that is already computed: run on consecutive row numbers, it gives those rows."""

    def __init__(self, states: torch.Tensor) -> None:
        super().__init__()
        self.states = states

    def forward(self, rows: torch.Tensor) -> torch.Tensor:
        return self.states[int(rows[0]) : int(rows[-1]) + 1]


class StoredModel(torch.nn.Module):
    """A model of stored layers, for packages that watch the modules of a running model."""

    def __init__(self, layers: list[torch.Tensor]) -> None:
        super().__init__()
        self.layers = torch.nn.ModuleList(Stored(states) for states in layers)

    def forward(self, rows: torch.Tensor) -> None:
        for layer in self.layers:
            layer(rows)

    def names(self) -> list[str]:
        """The layers' names, in the order in which they run."""
        return [f"layers.{i}" for i in range(len(self.layers))]


def row_loader(layers: list[torch.Tensor], batch: int) -> DataLoader:
    """The row numbers in order, `batch` at a time."""
    return DataLoader(TensorDataset(torch.arange(len(layers[0]))), batch_size=batch)


def all_pairs(function: Callable[[torch.Tensor, torch.Tensor], torch.Tensor], layers: list[torch.Tensor]) -> np.ndarray:
    """The symmetric matrix of a function of two layers, each pair computed once."""
    found = np.empty((len(layers), len(layers)))
    for i, x in enumerate(layers):
        for j, y in enumerate(layers[: i + 1]):
            found[i, j] = found[j, i] = float(function(x, y))
    return found


def ckatorch_exact(layers: list[torch.Tensor]) -> np.ndarray:
    """Every pair by itself, from two n by n float64 Gram matrices."""
    from ckatorch import cka_base

    return all_pairs(cka_base, layers)


def rsatoolbox_exact(layers: list[torch.Tensor]) -> np.ndarray:
    """The whitened cosine of squared Euclidean distance matrices, which equals linear CKA, in float64."""
    from rsatoolbox.data import Dataset
    from rsatoolbox.rdm import calc_rdm, compare

    distances = calc_rdm([Dataset(states.double().cpu().numpy()) for states in layers], method="euclidean")
    return compare(distances, distances, method="cosine_cov")


def repsim_exact(layers: list[torch.Tensor]) -> np.ndarray:
    """All pairs in C++ float64, with products of n by n matrices for each pair."""
    import repsim

    return repsim.cka([states.cpu().numpy() for states in layers], kernel_type="linear", estimator="gretton")


def torch_cka_minibatch(layers: list[torch.Tensor], batch: int) -> np.ndarray:
    """The package's own loop over batches, without the progress bar that it always shows."""
    from torch_cka import CKA

    model, loader = StoredModel(layers), row_loader(layers, batch)
    names, device = model.names(), str(layers[0].device)
    cka = CKA(model, model, "first", "second", model1_layers=names, model2_layers=names, device=device)
    with contextlib.redirect_stderr(io.StringIO()):
        cka.compare(loader, loader)
    return cka.export()["CKA"].cpu().double().numpy()


def pytorch_cka_minibatch(layers: list[torch.Tensor], batch: int) -> np.ndarray:
    """The package's own loop over batches; its module is named cka."""
    from cka import compute_cka

    model = StoredModel(layers)
    found = compute_cka(
        model, model, row_loader(layers, batch), layers=model.names(), device=layers[0].device, progress=False
    )
    return found[0].cpu().double().numpy()


def ckatorch_minibatch(layers: list[torch.Tensor], batch: int) -> np.ndarray:
    """Every pair by itself, in float64, all batches at once; n must be a multiple of `batch`."""
    from ckatorch import cka_batch

    return all_pairs(cka_batch, [states.reshape(-1, batch, states.shape[1]) for states in layers])


EXACT: dict[str, Callable[[list[torch.Tensor]], np.ndarray]] = {
    "ckatorch": ckatorch_exact,
    "rsatoolbox": rsatoolbox_exact,
    "repsim": repsim_exact,
}

MINIBATCH: dict[str, Callable[[list[torch.Tensor], int], np.ndarray]] = {
    "torch-cka": torch_cka_minibatch,
    "pytorch-cka": pytorch_cka_minibatch,
    "ckatorch minibatch": ckatorch_minibatch,
}

# The largest n for 13 layers of width 768 in three minutes on one core and 24 GiB; minibatches are of 250 rows.
LIMIT: dict[str, int] = {
    "ckatorch": 3_500,  # both Gram matrices anew for each pair and a symmetry check of each: time grows as n²
    "rsatoolbox": 7_000,  # about seven float64 copies of the 13 distance matrices' upper halves at once: memory as n²
    "repsim": 1_800,  # dense products with the centring matrix, on one thread: time as n³
    "torch-cka": 100_000,  # Gram matrices and self-similarities anew for each ordered pair: slow, but time as n
    "pytorch-cka": 500_000,  # the stored layers fill the memory before the time is up
    "ckatorch minibatch": 45_000,  # float64 copies, Gram matrices and products anew for each pair: time as n
}
