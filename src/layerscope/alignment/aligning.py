"""`ls.align`: one pair of sides at a time or many side by side, and aligners read from files."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch

from layerscope.alignment.aligner import Aligner, Array
from layerscope.alignment.methods import make
from layerscope.alignment.networks import Network
from layerscope.alignment.reading import read_aligner
from layerscope.alignment.texts import Texts

_NARROW = 256  # width; benchmarks/alignment.py: 2.0 times as fast at 64, 1.8 at 192, 0.9 at 768 on two cores


def align(x: Array, y: Array, *, method: str = "linear", seed: int = 0, texts: Texts = None, **options: Any) -> Aligner:
    """Fit a map from rows of one space to the same rows of another.

    Args:
        x: Rows of the source (n, d), numpy or torch, or representations of one layer.
        y: The same rows of the target (n, d').
        method: What kind of map, such as `procrustes`, `linear`, `cca` or `inn`; an unknown name is answered with all
            that there are.
        seed: Decides folds and networks.
        texts: The text of each row, or the representations that the rows are of: rows of one text, such as its words,
            are held out together. Every row is a text of its own if not given, unless representations tell.
        **options: Those of the method's class, such as `strength=0` for plain least squares or `start="plain"` for
            networks that do not start from the linear map.

    Returns:
        The fitted aligner: call it on rows of the source.

    Example:
        >>> import numpy as np
        >>> import layerscope as ls
        >>> generator = np.random.default_rng(0)
        >>> x = generator.normal(size=(200, 6))
        >>> y = x @ generator.normal(size=(6, 4)) + 1
        >>> aligner = ls.align(x, y)
        >>> aligner
        Linear(6 -> 4, 200 rows)
        >>> aligner(x).shape
        (200, 4)
        >>> bool(aligner.error(x, y)["relative"] < 1e-6)
        True
    """
    return make(method, seed, options).fit(x, y, texts=texts)


def align_all(
    sides: Sequence[tuple[Array, Array]],
    *,
    method: str = "linear",
    seed: int = 0,
    texts: Texts = None,
    **options: Any,
) -> list[Aligner]:
    """One aligner per pair of sides; networks on sides of the same shapes side by side, where that is faster."""
    aligners = [make(method, seed, options) for _ in sides]
    alike = len({(tuple(x.shape), tuple(y.shape)) for x, y in sides}) == 1
    if aligners and alike and isinstance(aligners[0], Network) and _pays(*sides[0]):
        networks = [aligner for aligner in aligners if isinstance(aligner, Network)]
        return list(type(networks[0]).fit_many(networks, sides, texts))
    return [aligner.fit(x, y, texts=texts) for aligner, (x, y) in zip(aligners, sides, strict=True)]


def _pays(x: Array, y: Array) -> bool:
    """Whether networks of these sides are trained faster side by side: on a GPU, and on a CPU where they are small."""
    return getattr(x, "device", None) not in (None, torch.device("cpu")) or max(x.shape[1], y.shape[1]) <= _NARROW


def load_aligner(path: str | Path) -> Aligner:
    """Read an aligner from a file that `aligner.save` wrote.

    Args:
        path: The safetensors file.

    Returns:
        The aligner as it was saved, fitted.

    Example:
        >>> import tempfile
        >>> import numpy as np
        >>> import layerscope as ls
        >>> x = np.random.default_rng(0).normal(size=(50, 3))
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     file = ls.align(x, x[:, ::-1].copy()).save(f"{folder}/map.safetensors")
        ...     print(ls.load_aligner(file))
        Linear(3 -> 3, 50 rows)
    """
    return read_aligner(Path(path))
