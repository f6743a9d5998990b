"""Words that several results share: the meanings of columns, caveats, lists of names."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import pandas

    from layerscope.drawing.figures.table import TableFigure

UNDEFINED = " Hatched cells have no value; the reason shows when the pointer or the arrow keys are on them."
MAJORITY = "most frequent class"
MEANINGS = {
    "majority": "the score of always giving the most frequent class",
    "macs": "multiply-adds of a text of 128 tokens",
    "rule": "every rule that found the plan",
    "random": "score of the middle one of as many random blocks",
    "lost": "whether the rule's plan is worse than that",
    "chosen_on": "score on the rows that choose, or pick a candidate of each size",
    "change": "the score less the whole model's, on the rows that confirm",
    "change_low": "lower bound of what the score changes from the whole model's, with the confidence asked for",
    "low": "lower end of the interval",
    "high": "upper end of the interval",
    "wins": "share of subsamples in which this layer comes out best",
    "null": "median nu with permuted labels",
    "ratio": "nu over null",
    "p": "share of labellings with a nu as low in this layer, before allowing for the choice among layers",
    "press": "R² of a linear map to the labels with every text left out in turn; 0 says nothing of them",
    "press_low": "lower end of its interval",
    "press_high": "upper end of its interval",
    "press_null": "median PRESS with permuted labels",
    "press_p": "share of labellings with as much PRESS in this layer, before allowing for the choice among layers",
    "zeta": "how rough the curve of nu is: the sum of squared second differences of its z-scored values (0 for a line)",
    "rho": "correlation of nu with the probes' scores over layers",
    "nu_rows": "the plain form of nu, in which rows count equally and not classes",
    "latency_1_ms": "milliseconds for one text of 128 tokens on this device",
    "latency_32_ms": "milliseconds for 32 texts of 128 tokens on this device",
    "savable": "whether it can be saved as a checkpoint",
    "front": "no other candidate is better and cheaper",
    "resolved": "the strategy in numbers: bottom, top, head",
    "trainable": "parameters that are trained",
    "forward": "multiply-adds per token",
    "backward": "multiply-adds per token of the backward pass",
    "cached": "what is left of forward with the frozen blocks' output kept",
    "tried": "learning rates tried, the one with the best mean over seeds being shown",
    "error": "standard error over seeds",
    "best_epoch": "the epoch that is kept",
    "uncut": "score of the model before it was cut",
    "cut": "score of the cut model, nothing trained",
    "patched": "the patch of the cut model: what it scores before the training, or (advice) whether there is one",
    "healed": "score of the cut model after healing",
    "over_uncut_low": "how much better the healed model is than the uncut one on the same rows, at least (95%)",
    "over_uncut_high": "the same, at most; where 0 lies between the two, either model may be the better one",
    "over_cut_low": "how much better the healed model is than the cut one on the same rows, at least (95%)",
    "over_cut_high": "the same, at most",
    "over_whole": "how much better it is than the whole model on the same rows; below 0 it is worse",
    "over_whole_low": "the same, at least (95%, row by row)",
    "over_whole_high": "the same, at most; where 0 lies between the two, either model may be the better one",
    "mix": "the teacher's share of the loss",
    "before": "score of the cut model on texts that neither chose nor healed",
    "after": "the same of the healed model",
    "mean_norm": "mean norm of a row",
    "spread": "mean standard deviation of a feature",
    "top_direction": "share of the variance along the first principal direction",
    "distance": "after the best permutation of attention heads",
    "unpermuted": "the same without a permutation",
}
_HEADINGS = {"latency_1_ms": "ms for 1 text", "latency_32_ms": "ms for 32 texts"}  # others say what they are
_SMALL_N = 100  # below this many rows every figure says so


def numbers(title: str, shows: str, table: pandas.DataFrame | Sequence[Mapping[Any, Any]]) -> TableFigure:
    """Return a table as a figure, without the columns of settings that are the same in every row."""
    from layerscope.drawing.figures.table import TableFigure

    # The head of a result already says what it was measured on; the page itself says what the columns mean.
    records: Sequence[Mapping[Any, Any]] = table.to_dict("records") if hasattr(table, "to_dict") else table
    constant = [name for name in ("task", "split", "metric", "n") if len({str(r.get(name)) for r in records}) == 1]
    rows = [{name: value for name, value in record.items() if name not in constant} for record in records]
    return TableFigure.from_records(rows, title=title, shows=shows, reading="")


def heading(column: str) -> str:
    """Return a column's name as it stands above its values."""
    return _HEADINGS.get(column, column.replace("_", " "))


def caveat(note: str, n: int) -> str:
    """Return a note as a sentence, followed by one on the number of rows where they are few."""
    few = f"Only {n:,} rows: expect other rows to give other numbers." if n < _SMALL_N else ""
    if note and note[-1] not in ".!?":  # not a sentence yet
        note = f"{note[0].upper()}{note[1:]}."
    return " ".join(part for part in (note, few) if part)


def spread(low: float, high: float) -> str:
    """Return an interval as ` (0.7100 to 0.7800)`, to stand after a score; nothing where none is known."""
    return "" if math.isnan(low) or math.isnan(high) else f" ({low:.4f} to {high:.4f})"


def listed(names: Sequence[str]) -> str:
    """Return names as `a`, `a and b`, or `a, b and c`, each of them once."""
    *others, last = dict.fromkeys(names)
    return f"{', '.join(others)} and {last}" if others else last
