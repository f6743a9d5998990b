"""Which text each row is of: told by representations, or given beside arrays. Rows of one text stay together."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch

from layerscope.data import resampling
from layerscope.errors import InputError
from layerscope.extraction.representations import Representations
from layerscope.extraction.rows import Rows

Texts = Any  # one name or number per row, the `rows` of representations, or representations


def texts_of(texts: Texts, n: int, *sides: Any) -> np.ndarray:
    """The text of each of n rows, as numbers from 0; every row is a text of its own where nothing tells.

    `sides` are what the rows came in: where one of them is representations, it tells.
    """
    if texts is None:
        texts = next((side for side in sides if isinstance(side, Representations)), None)
    if texts is None:
        return np.arange(n)
    if isinstance(texts, Representations):
        texts = texts.rows
    if isinstance(texts, Rows):
        texts = texts.row
    named = texts.cpu().numpy() if isinstance(texts, torch.Tensor) else np.asarray(texts)
    if named.shape != (n,):
        raise InputError(
            f"texts has shape {named.shape}; it must name the text of each of the {n} rows, or be the representations "
            "that they are of."
        )
    return np.unique(named, return_inverse=True)[1].reshape(-1)


def folds(texts: np.ndarray, count: int, seed: int) -> list[tuple[np.ndarray, np.ndarray]]:
    """Positions that are held out and the others, for each of at most `count` folds of whole texts.

    The rows of a single text are dealt out one by one, since there is nothing else to hold out.
    """
    names = texts if len(np.unique(texts)) > 1 else np.arange(len(texts))
    fold = resampling.folds(names, min(count, len(np.unique(names))), seed=seed)
    return [(np.flatnonzero(fold == k), np.flatnonzero(fold != k)) for k in range(fold.max() + 1)]
