"""Measures against labels where rows are words, and words of one text are alike."""

from __future__ import annotations

from typing import Any

import numpy as np
import pandas

import layerscope as ls
from layerscope.extraction.row_store import Rows

TITLE = "Words of one text, against labels of texts"
TEXT = """
100 texts of 10 words; the words of a text share what the text is like (40 numbers, with a fifth of their spread of
each word's own). In the first part the labels of the texts are random, so that label CCA must be about 0, mutual
information what ten texts of a fold give by chance ((classes - 1) (clusters - 1) / 2 over the texts, .05), and a
p-value of nu below .05 must be about as rare as that. In the second the first number differs by 1.5 between the
classes (of 40 texts with 4 numbers): the half-width of nu's 95% interval must be about 1.96 times the standard
deviation of nu over simulations, and the interval cover the mean of nu. Beside each the same where every word is
taken for a text of its own, which is what rows dealt out one by one amount to.
"""
ROUNDS = 30


def words(generator: np.random.Generator, texts: int, width: int, noise: float, apart: float) -> ls.Representations:
    """Words of texts with labels of texts, whose first number differs by `apart` between the classes."""
    text = np.repeat(np.arange(texts), 10)
    labels = generator.permutation(np.arange(texts) % 2)[text]
    states = generator.normal(size=(texts, width))[text] + noise * generator.normal(size=(len(text), width))
    states[:, 0] += apart * labels
    return ls.Representations.from_arrays([states], labels, rows=Rows("t", "train", "", text))


def alone(reps: ls.Representations) -> ls.Representations:
    """The same rows, each a text of its own."""
    return ls.Representations.from_arrays([reps[0]], reps.labels)


def _width(curves: list[Any], real: np.ndarray) -> tuple[float, float]:
    half = float(np.median([(curve.high - curve.low)[0] / 2 for curve in curves]))
    middle = float(np.mean(real))
    return half, float(np.mean([curve.low[0] <= middle <= curve.high[0] for curve in curves]))


def table(rounds: int, seed: int) -> pandas.DataFrame:
    """What each measure gives with the words of a text together and with each by itself."""
    generator = np.random.default_rng(seed)
    nothing = [words(generator, 100, 40, 0.2, 0.0) for _ in range(rounds)]
    something = [words(generator, 40, 4, 0.3, 1.5) for _ in range(rounds)]
    rows = []

    def add(what: str, wanted: float, together: float, apart: float) -> None:
        rows.append({"what": what, "wanted": wanted, "texts together": together, "words by themselves": apart})

    chance = (2 - 1) * (2 - 1) / (2 * 10)  # of two classes and two clusters over the ten texts of a fold
    for name, measure, wanted in (
        ("label CCA", ls.label_cca, 0.0),
        ("mutual information (nats)", ls.mutual_information, chance),
    ):
        values = [[measure(each).values[0] for each in (reps, alone(reps))] for reps in nothing]
        add(f"random labels: {name}", wanted, *map(float, np.mean(values, axis=0)))
    p = [[ls.specialty(each, null=39).p[0] < 0.05 for each in (reps, alone(reps))] for reps in nothing]
    add("random labels: nu has p < .05", 0.05, *map(float, np.mean(p, axis=0)))
    real = np.asarray([ls.specialty(reps, null=0).values[0] for reps in something])
    found = [
        _width([ls.specialty(each, ci=0.95, null=0) for each in kind], real)
        for kind in (something, [alone(reps) for reps in something])
    ]
    add("half-width of nu's interval", float(1.96 * real.std(ddof=1)), found[0][0], found[1][0])
    add("nu's interval covers", 0.95, found[0][1], found[1][1])
    return pandas.DataFrame(rows)
