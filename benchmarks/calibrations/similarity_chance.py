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
The last column is the same test with single words shuffled instead of texts, which calls nearly everything alike.
"""
ROUNDS = 100
SLOW = True
SHUFFLES = 39
CASES = {
    "50 texts of 20 words": (50, (20, 20)),
    "50 texts of 5 to 35 words": (50, (5, 35)),
    "200 texts of 1 row": (200, (1, 1)),
}


def independent(
    texts: int, words: tuple[int, int], seed: int, layers: int = 3, width: int = 16
) -> list[ls.Representations]:
    """Two models with some layers each, and nothing in common but which words are of one text."""
    generator = np.random.default_rng(seed)
    text = np.repeat(np.arange(texts), generator.integers(words[0], words[1] + 1, texts))
    rows = Rows("simulated", "all", "", text, unit=np.arange(len(text)), units="word")

    def layer() -> np.ndarray:
        return generator.normal(size=(texts, width))[text] + 0.3 * generator.normal(size=(len(text), width))

    return [ls.Representations.from_arrays([layer() for _ in range(layers)], rows=rows) for _ in range(2)]


def rowwise(sides: list[ls.Representations]) -> list[ls.Representations]:
    """The same states, as if every word were a text of its own."""
    return [ls.Representations.from_arrays([reps[layer] for layer in reps.layers]) for reps in sides]


def table(rounds: int, seed: int) -> pandas.DataFrame:
    """One line per case and measure: mean value and baseline, and how often each test is below .05."""
    lines = []
    for case, (texts, words) in CASES.items():
        for measure in ("cka", "cka_debiased"):
            drawn = []
            for k in range(rounds):
                sides = independent(texts, words, seed + 1000 * k)
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
            lines.append({"case": case, "measure": measure, **dict(zip(names, means.tolist(), strict=True))})
    return pandas.DataFrame(lines)
