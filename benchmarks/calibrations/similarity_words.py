"""Intervals of debiased CKA over words: how often they cover what endless texts would give."""

from __future__ import annotations

import numpy as np
import pandas

import layerscope as ls
from layerscope.extraction.row_store import Rows

TITLE = "Intervals of a similarity, with several words per text"
TEXT = """
Texts of 10 words each with 16 normal columns: what a text is like has variance 1 on each side, and half of it or
nothing is shared; what a word is like has variance 1 or 9 and is never shared. With endless texts CKA is the square of
the shared part of the variance. `cka_debiased` counts pairs of words of different texts, so its mean should be that
value, and its interval of level .95 should cover it in .95 of the simulations. The last two columns are the same where
every word is taken for a text of its own, so that words of one text are pairs as well.
"""
ROUNDS = 100
SLOW = True
WORDS, WIDTH = 10, 16


def words(texts: int, shared: float, word: float, seed: int) -> ls.Representations:
    """Two layers of words; the variance of a word is `word`, that of a text 1, of which `shared` is in common."""
    generator = np.random.default_rng(seed)
    text = np.repeat(np.arange(texts), WORDS)
    common = np.sqrt(shared) * generator.normal(size=(texts, WIDTH))
    layers = [
        (common + np.sqrt(1 - shared) * generator.normal(size=(texts, WIDTH)))[text]
        + np.sqrt(word) * generator.normal(size=(len(text), WIDTH))
        for _ in range(2)
    ]
    return ls.Representations.from_arrays(layers, rows=Rows("simulated", "all", "", text))


def table(rounds: int, seed: int) -> pandas.DataFrame:
    """One line per number of texts, share and variance of a word: mean values, and how often intervals cover."""
    lines = []
    for texts in (100, 400, 1000):
        for shared in (0.0, 0.5):
            for word in (1.0, 9.0):
                truth = (shared / (1 + word)) ** 2
                drawn = []
                for k in range(rounds):
                    reps = words(texts, shared, word, seed + 1000 * k)
                    alone = ls.Representations.from_arrays([reps[0], reps[1]])
                    for each in (reps, alone):
                        sim = ls.compare(each, measure="cka_debiased", ci=0.95, seed=seed + k)
                        assert sim.low is not None
                        assert sim.high is not None
                        drawn += [sim.values[0, 1], sim.low[0, 1] <= truth <= sim.high[0, 1]]
                means = np.reshape(drawn, (rounds, 4)).mean(axis=0).tolist()
                names = ["mean value", "interval covers", "words by themselves: mean value", "covers"]
                line = {"texts": texts, "variance of a word": word, "true value": truth}
                lines.append({**line, **dict(zip(names, means, strict=True))})
    return pandas.DataFrame(lines)
