"""Words of one text: how often `compare(..., baseline=...)` calls independent states alike."""

from __future__ import annotations

import numpy as np
import pandas

import layerscope as ls
from layerscope.extraction.row_store import Rows

TITLE = "Chance, with several words per text"
TEXT = """
Two models whose states have nothing to do with each other: every text has a place of its own in each layer of each, and
its words lie around that place. What `compare(a, b, baseline=39)` calls more than chance at .05 is false, so it should
happen in .05 of the simulations: for a pair of layers (`p_values`), and for the best of nine pairs (`best.p_value`).
In some cases the words at one place are alike besides, in all texts of both models: the first one lies far away, as the
first token of a decoder does, or words drift with their place. The last column is the same test with single words
shuffled instead of texts, which calls nearly everything alike.
"""
ROUNDS = 100
SLOW = True
SHUFFLES = 39
TEXTS = 50
LENGTHS = {  # the words of a text
    "20 words": lambda generator: np.full(TEXTS, 20),
    "14 to 20 words": lambda generator: generator.integers(14, 21, TEXTS),
    "5 to 35 words": lambda generator: generator.integers(5, 36, TEXTS),
    "lognormal, 12 words in the middle": lambda generator: np.ceil(generator.lognormal(2.5, 0.6, TEXTS)).astype(int),
    "1 word": lambda generator: np.ones(TEXTS, dtype=int),
}
PLACES = {  # what the words at one place share
    "nothing": lambda place: 0 * place,
    "a far first word": lambda place: 10.0 * (place == 0),
    "a drift": lambda place: 2 * np.exp(-place / 5) + np.sin(place / 4),
}
CASES = [(lengths, places) for lengths in LENGTHS for places in PLACES if lengths != "1 word" or places == "nothing"]


def independent(lengths: str, places: str, seed: int, layers: int = 3, width: int = 16) -> list[ls.Representations]:
    """Two models with some layers each, and nothing in common but which words are of one text, and their places."""
    generator = np.random.default_rng(seed)
    sizes = LENGTHS[lengths](generator)
    text = np.repeat(np.arange(len(sizes)), sizes)
    place = np.concatenate([np.arange(size) for size in sizes])
    rows = Rows("simulated", "all", "", text, unit=np.arange(len(text)), units="word")

    def layer() -> np.ndarray:
        of_text = generator.normal(size=(len(sizes), width))[text]
        of_place = np.outer(PLACES[places](place), generator.normal(size=width))
        return of_text + of_place + 0.3 * generator.normal(size=(len(text), width))

    return [ls.Representations.from_arrays([layer() for _ in range(layers)], rows=rows) for _ in range(2)]


def rowwise(sides: list[ls.Representations]) -> list[ls.Representations]:
    """The same states, as if every word were a text of its own."""
    return [ls.Representations.from_arrays([reps[layer] for layer in reps.layers]) for reps in sides]


def table(rounds: int, seed: int) -> pandas.DataFrame:
    """One line per case and measure: mean value and baseline, and how often each test is below .05."""
    lines = []
    for lengths, places in CASES:
        for measure in ("cka", "cka_debiased"):
            drawn = []
            for k in range(rounds):
                sides = independent(lengths, places, seed + 1000 * k)
                sim = ls.compare(*sides, measure=measure, baseline=SHUFFLES, seed=seed + k)
                first = [reps.select(layers=[0]) for reps in rowwise(sides)]
                single = ls.compare(*first, measure=measure, baseline=SHUFFLES, seed=seed + k)
                assert sim.best is not None
                below = [sim.p_values[0, 0] <= 0.05, sim.best.p_value <= 0.05, single.p_values[0, 0] <= 0.05]
                drawn.append([sim.values[0, 0], sim.baseline[0, 0], *below])
            means = np.mean(drawn, axis=0)
            names = [
                "mean value",
                "mean baseline",
                "a pair below .05",
                "best pair below .05",
                "words shuffled below .05",
            ]
            line = {"50 texts of": lengths, "words at one place share": places, "measure": measure}
            lines.append({**line, **dict(zip(names, means.tolist(), strict=True))})
    return pandas.DataFrame(lines)
