"""How often the interval of an aligner's error covers the true error, with several rows of each text."""

from __future__ import annotations

import numpy as np
import pandas
import torch

from layerscope.alignment.alignment_error import error_of

TITLE = "Aligners: the interval of their error"
TEXT = """
A map that is fixed is scored on rows (width 16) of some texts. What a text says, and by how much the map misses it, is
partly shared by its rows: of the variance of Y and of the misses, four fifths are between texts. The true relative
error is known. `aligner.error(.., texts=..)` gives intervals of 95 %, by a jackknife that leaves out one text after the
other; "over rows" is what comes out where every row is taken for a text of its own. The rates are how often the
interval holds the true error; they should be near .95.
"""
ROUNDS = 400

WIDTH, SHARED, MISSED = 16, 0.8, 0.3


def rows(texts: int, each: int, draw: np.random.Generator) -> tuple[torch.Tensor, torch.Tensor, np.ndarray]:
    """Mapped rows, the rows that they should be, and the text of each."""
    text = np.repeat(np.arange(texts), each)

    def mixed() -> np.ndarray:
        between, within = draw.normal(size=(texts, WIDTH)), draw.normal(size=(texts * each, WIDTH))
        return np.sqrt(SHARED) * between[text] + np.sqrt(1 - SHARED) * within

    size = np.exp(0.5 * draw.normal(size=texts))[text, None]  # some texts are missed by more than others
    y = mixed()
    return torch.from_numpy(y + MISSED * size * mixed()), torch.from_numpy(y), text


def coverage(texts: int, each: int, rounds: int, seed: int) -> dict[str, float]:
    """How often either interval holds the true relative error."""
    true = MISSED**2 * np.exp(0.5)  # the mean of size^2, over a spread of 1
    held = {"over rows": 0, "over texts": 0}
    for k in range(rounds):
        mapped, y, text = rows(texts, each, np.random.default_rng([seed, texts, each, k]))
        for name, given in (("over rows", None), ("over texts", text)):
            error = error_of(mapped, y, texts=given)
            held[name] += error["relative_low"] <= true <= error["relative_high"]
    return {name: count / rounds for name, count in held.items()}


def table(rounds: int, seed: int) -> pandas.DataFrame:
    """One row per number of texts and of rows per text."""
    made = [
        {"texts": texts, "rows per text": each, **coverage(texts, each, rounds, seed)}
        for texts in (20, 50, 200)
        for each in (1, 5, 25)
    ]
    return pandas.DataFrame(made).round(3)
