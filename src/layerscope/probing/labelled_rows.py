"""Rows with labels, and curves over layers measured on them, with intervals over halves of the texts."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from layerscope.data import Examples
from layerscope.errors import InputError, check_level, check_seed
from layerscope.extraction.extract import extract
from layerscope.extraction.representations import Representations
from layerscope.progress import progress
from layerscope.resampling import halves, shuffled
from layerscope.results import Curve, provenance_of
from layerscope.results.finding import label

ALIKE = "every row is the same there up to rounding"
_FEW = 4  # a class with fewer texts has all of them in every half

Values = Callable[..., np.ndarray]  # from representations to one number per layer


def classes_of(labels: Any, measure: str) -> np.ndarray:
    """The labels as an array of class numbers; raises InputError where they are missing, or no classes."""
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
    """The states of a model over some texts, with a label for every row; that of a choice is wrong or right."""
    reps = extract(model, examples, **reading)
    if reps.labels is None or reps.rows.choice is None:
        return reps
    return reps.with_labels(reps.rows.choice == reps.labels, ("wrong", "right"))


def check_choices(reps: Representations, measure: str) -> None:
    """Raise InputError where rows are choices that are labelled with the number of the right choice of their text.

    Classes that have other names than numbers, such as wrong and right, are labels of the rows themselves.
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
    """Raise InputError unless every label is a finite number."""
    values = np.asarray(labels)
    missing = np.flatnonzero(~np.isfinite(values))
    if len(missing):
        raise InputError(
            f"{measure} needs a number for every row, and {len(missing):,} of {len(values):,} have none (a NaN or an "
            f"infinity), such as row {missing[0]}; leave such rows out first."
        )


def several_classes(labels: Any, measure: str) -> np.ndarray:
    """The labels as class numbers 0.. without gaps; raises InputError where there is a single class."""
    present, values = np.unique(classes_of(labels, measure), return_inverse=True)
    if len(present) < 2:
        raise InputError(f"{measure} compares classes, and the rows are of {len(present)} class only.")
    return values


def drawn_by_class(texts: np.ndarray, labels: np.ndarray, counts: Sequence[int], seed: int) -> np.ndarray:
    """The positions of `counts[c]` rows of every class c, texts drawn one after the other with all of their rows.

    Only the last text of a class may be cut, where fewer of its rows are needed.
    """
    order = shuffled(texts, seed=check_seed(seed))
    return np.sort(np.concatenate([order[labels[order] == c][:count] for c, count in enumerate(counts)]))


def balanced(reps: Representations, seed: int) -> Representations:
    """As many rows of every class as the smallest class has, as Xie et al. draw them.

    Representations whose labels are numbers, or missing, are given back as they are.
    """
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
    made: type[Curve] = Curve,
    **settings: Any,
) -> Curve:
    """The curve of `values(*parts)`; its best layer above 0 has the `least` value, or the greatest (None: neither).

    `ci=0.95` adds intervals and wins over `subsamples` halves of each part's texts. `words` are its figure's.
    `undefined` is why a layer would have no value; `within` are the least and the greatest value that there can be.
    `made` is the class of the curve.
    """
    check_level(ci)
    check_seed(seed)
    if ci is not None and subsamples < 2:
        raise InputError(f"subsamples is {subsamples}; an interval needs at least 2.")
    first = parts[0]
    numbers = values(*parts)
    best = None if least is None else extreme(first.layers, numbers, least)
    origin = provenance_of_rows(first, **settings)
    model = label(origin["models"][0])
    curve = made(name, [model] * len(numbers), list(first.layers), numbers, origin, best, words=words or {})
    curve.explain_gaps(undefined)
    if ci is None:
        return curve
    drawn = []
    with progress(f"{curve.name} over subsamples", subsamples, "subsamples") as advance:
        for each in half_seeds(subsamples, seed):
            drawn.append(values(*(part.select(rows=half(part.rows.row, part.labels, each)) for part in parts)))
            advance(1)
    add_intervals(curve, np.asarray(drawn), least, within, ci)
    return curve


def provenance_of_rows(reps: Representations, **settings: Any) -> dict[str, Any]:
    """The provenance of a result that was measured on representations."""
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


def half_seeds(subsamples: int, seed: int) -> list[int]:
    """One seed for each half of the texts that an interval is over."""
    return [int(each) for each in np.random.default_rng(seed).integers(1 << 32, size=subsamples)]


def add_intervals(curve: Curve, draws: np.ndarray, least: bool | None, within: tuple[float, float], ci: float) -> None:
    """Set `draws`, `low`, `high` and `wins` of a curve, from its values (halves, layers) over halves of the texts.

    The values of half of n texts vary about that of all of them as much as those of n texts vary about the truth.
    """
    from scipy.special import ndtri

    curve.draws = draws
    defined = ~np.isnan(draws).all(axis=0)
    spread = np.full(len(curve.values), math.nan)
    spread[defined] = np.nanstd(draws[:, defined], axis=0, ddof=1)
    width = float(ndtri((1 + ci) / 2)) * spread
    curve.low, curve.high = np.clip([curve.values - width, curve.values + width], *within)
    if least is not None:
        curve.wins = win_shares(curve.layers, draws, least)


def win_shares(layers: Sequence[Any], draws: np.ndarray, least: bool) -> np.ndarray:
    """(layers,) the share of draws (draws, layers) in which each layer has the least or the greatest value."""
    winners = [extreme(layers, row, least) for row in draws]
    return np.asarray([sum(winner == layer for winner in winners) / len(winners) for layer in layers])


def half(texts: np.ndarray, labels: np.ndarray | None, seed: int) -> np.ndarray:
    """A mask of the rows of half of the texts, drawn within every class; of a class with few texts all are taken."""
    if labels is None or np.asarray(labels).dtype.kind == "f":
        return halves(texts, seed=seed)
    values = np.asarray(labels)
    few = [c for c in np.unique(values) if len(np.unique(texts[values == c])) < _FEW]
    return np.asarray(halves(texts, seed=seed, labels=values) | np.isin(values, few))
