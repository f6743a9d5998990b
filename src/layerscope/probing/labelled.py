"""What measures of layers against labels share: the labels, the rows, the curve, its intervals over halves of texts."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from layerscope.data import Examples, Task
from layerscope.data.resampling import halves, shuffled
from layerscope.errors import InputError, check_count, check_level
from layerscope.extraction.extracting import extract
from layerscope.extraction.representations import Representations
from layerscope.progress import progress
from layerscope.results import Curve, provenance_of

HELD_OUT = 0.2  # of a single split
ALIKE = "every row is the same there up to rounding"
_FEW = 4  # texts of a class below which all of them are in every half

Values = Callable[..., np.ndarray]  # of representations, one number per layer


def classes_of(labels: Any, measure: str) -> np.ndarray:
    """The labels as class numbers; numbers and missing labels are refused."""
    if labels is None:
        raise InputError(
            f"{measure} needs labels, and there are none; name the column that holds them (label=, --label)."
        )
    values = np.asarray(labels)
    if values.dtype.kind in "iu" and values.size and values.min() < 0:
        raise InputError(f"{measure} needs labels that start at 0; the least is {values.min()}.")
    if values.dtype.kind == "f":
        raise InputError(
            f"{measure} is defined for classes, and these labels are numbers; ls.label_cca, the CCA of states with "
            "labels, takes those."
        )
    return values


def labelled_rows(model: Any, examples: Examples, **reading: Any) -> Representations:
    """The states of a model over some texts, every row with a label of its own: a choice is right or wrong."""
    reps = extract(model, examples, **reading)
    if reps.labels is None or reps.rows.choice is None:
        return reps
    return reps.with_labels(reps.rows.choice == reps.labels, ("wrong", "right"))


def check_choices(reps: Representations, measure: str) -> None:
    """Raise where rows are choices and all choices of a text have its label, the number of the right one.

    Classes with names of their own, such as wrong and right, are not numbers of choices.
    """
    names = reps.label_names or ()
    if reps.labels is None or reps.rows.choice is None or names != tuple(map(str, range(len(names)))):
        return
    labels = np.asarray(reps.labels)
    _, first, text = np.unique(reps.rows.row, return_index=True, return_inverse=True)
    if (labels == labels[first][text.reshape(-1)]).all():
        raise InputError(
            f"{measure} needs a label of every row, and these rows are choices, whose labels say which choice of a "
            "text is right: no row tells that by itself. Label them as right or wrong, "
            'reps.with_labels(reps.rows.choice == reps.labels, ["wrong", "right"]).'
        )


def check_numbers(labels: Any, measure: str) -> None:
    """Raise unless every label is a number."""
    values = np.asarray(labels)
    missing = np.flatnonzero(~np.isfinite(values))
    if len(missing):
        raise InputError(
            f"{measure} needs a number for every row, and {len(missing):,} of {len(values):,} have none (a NaN or an "
            f"infinity), such as row {missing[0]}; leave such rows out first."
        )


def several_classes(labels: Any, measure: str) -> np.ndarray:
    """The labels as class numbers 0.. without gaps; a single class is refused."""
    present, values = np.unique(classes_of(labels, measure), return_inverse=True)
    if len(present) < 2:
        raise InputError(f"{measure} compares classes, and the rows are of {len(present)} class only.")
    return values


def parted(task: Task, limits: tuple[int | None, int | None] = (None, None)) -> tuple[Examples, Examples]:
    """The rows to learn from and the rows to score; of a single split a fifth is held out, the same for every seed.

    The choice of a strategy and tuning learn from the same rows, so that there is one l*.
    """
    for limit in limits:
        check_count(limit, "limit")
    return task.parted(HELD_OUT, limits=limits)


def drawn_by_class(texts: np.ndarray, labels: np.ndarray, counts: Sequence[int], seed: int) -> np.ndarray:
    """So many rows of each class (numbers 0..), whole texts after one another in an order drawn, as positions.

    Only the last text of a class may be cut, where the number asks for some of its rows.
    """
    order = shuffled(texts, seed=seed)
    return np.sort(np.concatenate([order[labels[order] == c][:count] for c, count in enumerate(counts)]))


def balanced(reps: Representations, seed: int) -> Representations:
    """As many rows of every class as the smallest has, as Xie et al. draw them; numbers stay as they are."""
    if reps.labels is None or np.asarray(reps.labels).dtype.kind == "f":
        return reps
    values = np.unique(reps.labels, return_inverse=True)[1]
    counts = np.bincount(values)
    if (counts == counts.min()).all():
        return reps
    return reps.select(rows=drawn_by_class(reps.rows.row, values, [int(counts.min())] * len(counts), seed))


def curve_of(
    name: str,
    values: Values,
    *parts: Representations,
    least: bool | None,
    ci: float | None = None,
    subsamples: int = 40,
    seed: int = 0,
    words: Mapping[str, str] | None = None,
    undefined: str = ALIKE,
    within: tuple[float, float] = (-math.inf, math.inf),
    **settings: Any,
) -> Curve:
    """The curve of `values(*parts)`, its best layer the `least` or the greatest above layer 0 (None: it has no best).

    `ci=0.95` adds intervals and wins over `subsamples` halves of each part's texts. `words` are its figure's.
    `undefined` is why a layer would have no value; `within` are the least and the greatest value that there can be.
    """
    check_level(ci)
    if ci is not None and subsamples < 2:
        raise InputError(f"subsamples is {subsamples}; an interval needs at least 2.")
    first = parts[0]
    numbers = values(*parts)
    model = str(first.info.get("model", "representations"))
    best = None if least is None else extreme(first.layers, numbers, least)
    origin = provenance_of_rows(first, **settings)
    curve = Curve(name, [model] * len(numbers), list(first.layers), numbers, origin, best, words=words or {})
    curve.explain_gaps(undefined)
    if ci is not None:
        _add_intervals(curve, values, parts, least, within, ci, subsamples, seed)
    return curve


def provenance_of_rows(reps: Representations, **settings: Any) -> dict[str, Any]:
    """Where a result comes from that was measured on stored rows."""
    described = {"name": str(reps.info.get("model", "representations")), **reps.info.get("described", {})}
    data = {"task": reps.rows.task, "split": reps.rows.split, **reps.info.get("data", {}), "n": len(reps)}
    read = reps.info.get("reading", {})
    return provenance_of(
        [described], data, {"pool": read.get("pool"), "max_length": read.get("max_length"), **settings}
    )


def extreme(layers: Sequence[Any], values: np.ndarray, least: bool) -> Any:
    """The layer above 0 with the least or the greatest value, the lowest of several; None where all are undefined."""
    above = [k for k, layer in enumerate(layers) if layer >= 1 and not math.isnan(values[k])]
    return layers[min(above, key=lambda k: values[k] if least else -values[k])] if above else None


def _add_intervals(
    curve: Curve,
    values: Values,
    parts: Sequence[Representations],
    least: bool | None,
    within: tuple[float, float],
    ci: float,
    subsamples: int,
    seed: int,
) -> None:
    """Values over halves of the texts: a half of n texts varies about the whole as much as n texts do."""
    from scipy.stats import norm

    seeds = np.random.default_rng(seed).integers(1 << 32, size=subsamples).tolist()
    drawn = []
    with progress(f"{curve.name} over subsamples", subsamples, "subsamples") as advance:
        for each in seeds:
            drawn.append(values(*(_half(part, each) for part in parts)))
            advance(1)
    draws = np.asarray(drawn)
    defined = ~np.isnan(draws).all(axis=0)
    spread = np.full(len(curve.values), math.nan)
    spread[defined] = np.nanstd(draws[:, defined], axis=0, ddof=1)
    width = float(norm.ppf((1 + ci) / 2)) * spread
    curve.low, curve.high = np.clip([curve.values - width, curve.values + width], *within)
    if least is not None:
        winners = [extreme(curve.layers, row, least) for row in draws]
        curve.wins = np.asarray([sum(w == layer for w in winners) / len(winners) for layer in curve.layers])


def _half(reps: Representations, seed: int) -> Representations:
    """Half of the texts, and of every class in proportion; all texts of a class that has few."""
    texts, labels = reps.rows.row, reps.labels
    if labels is None or np.asarray(labels).dtype.kind == "f":
        return reps.select(rows=halves(texts, seed=seed))
    values = np.asarray(labels)
    few = [c for c in np.unique(values) if len(np.unique(texts[values == c])) < _FEW]
    return reps.select(rows=halves(texts, seed=seed, labels=values) | np.isin(values, few))
