"""Intervals of perplexity, and the bound for what a smaller model loses, where windows of one text are alike."""

from __future__ import annotations

import numpy as np
import pandas

from layerscope.cutting.selection_test import lower_bound, of_losses
from layerscope.evaluation.perplexity import can_be_resampled
from layerscope.evaluation.token_evaluator import bootstrap_of_sums, summed

TITLE = "Perplexity of running text, in windows"
TEXT = """
Texts of lognormal length (half of them are longer than the table says, 16 % more than twice as long) are joined
and cut into windows. The loss of a token is 6 nats in the mean, with a spread of 2.5 nats over tokens and of .3 over
texts, as a small language model has on reviews: the true perplexity is e⁶. Its 95% interval should hold that in .95 of
the simulations. A smaller model loses .1 nats of it in the mean, with a spread of .1 over texts and of .5 over tokens;
the lower bound of what it changes, at 90% confidence, should be right in .90 or more. Both are made as layerscope makes
them, by the texts in which windows begin, and beside it with each window by itself, as if it had nothing to do with
the others. Where the texts are too few, or too
unequal, windows are resampled, and results say so; `by texts` is how often texts were.
"""
ROUNDS = 300
LOSS, OVER_TEXTS, OVER_TOKENS = 6.0, 0.3, 2.5
LOST, LOST_OVER_TEXTS, LOST_OVER_TOKENS = 0.1, 0.1, 0.5
# texts, tokens of the middle one, tokens of a window
CASES = [(5, 500, 128), (10, 500, 128), (20, 500, 128), (40, 100, 32), (40, 100, 128), (200, 100, 128)]


def windows(generator: np.random.Generator, texts: int, tokens: int, room: int) -> tuple[np.ndarray, np.ndarray]:
    """Return (windows, 3) sums of the loss, of the smaller model's loss and of tokens, and each window's text."""
    sizes = np.maximum(1, (tokens * np.exp(np.log(2) * generator.normal(size=texts))).astype(int))
    text = np.repeat(np.arange(texts), sizes)
    loss = LOSS + OVER_TEXTS * generator.normal(size=texts)[text] + OVER_TOKENS * generator.normal(size=len(text))
    lost = LOST + LOST_OVER_TEXTS * generator.normal(size=texts)[text]
    lost += LOST_OVER_TOKENS * generator.normal(size=len(text))
    values = np.column_stack([loss, loss + lost, np.ones(len(text))])
    return summed(values, np.arange(len(text)) // room), text[::room]


def found(sums: np.ndarray, units: np.ndarray, overlap: bool) -> tuple[bool, bool]:
    """Return whether the interval of the perplexity holds it, and whether the bound for the change is right."""
    low, high = bootstrap_of_sums(sums, units, lambda total: float(np.exp(total[0] / total[2])), overlap=overlap)
    of_units = summed(sums, units)
    whole, smaller = of_units[:, 0] / of_units[:, 2], of_units[:, 1] / of_units[:, 2]
    bound = lower_bound(of_losses(whole, smaller, weights=of_units[:, 2]), 0.9)
    return low <= np.exp(LOSS) <= high, bound <= -LOST


def table(rounds: int, seed: int) -> pandas.DataFrame:
    """One line per kind of text: how often intervals and bounds hold, by texts and by windows."""
    generator, lines = np.random.default_rng(seed), []
    for texts, tokens, room in CASES:
        held, by_texts, count = [], [], []
        for _ in range(rounds):
            sums, text = windows(generator, texts, tokens, room)
            by_texts.append(can_be_resampled(text))
            alone = np.arange(len(text))
            held.append((*found(sums, text if by_texts[-1] else alone, True), *found(sums, alone, False)))
            count.append(len(text))
        rates = np.mean(held, axis=0).tolist()
        names = ["interval covers", "bound holds", "interval covers, windows alone", "bound holds, windows alone"]
        case = {"texts": texts, "tokens of a text": tokens, "tokens of a window": room}
        counted = {"windows": round(float(np.mean(count))), "by texts": float(np.mean(by_texts))}
        lines.append({**case, **counted, **dict(zip(names, rates, strict=True))})
    return pandas.DataFrame(lines)
