"""What measures of layers against labels share: the labels, the curve, its intervals over halves of the rows."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from layerscope.errors import InputError, check_level, log
from layerscope.extraction.representations import Representations
from layerscope.progress import progress
from layerscope.results import Curve, provenance_of

Values = Callable[..., np.ndarray]  # of representations, one number per layer


def classes_of(labels: Any, measure: str) -> np.ndarray:
    """The labels as class numbers; numbers and missing labels are refused."""
    if labels is None:
        raise InputError(
            f"{measure} needs labels, and there are none; name the column that holds them (label=, --label)."
        )
    values = np.asarray(labels)
    if values.dtype.kind in "iu" and values.size and values.min() < 0:
        raise InputError(f"{measure} needs labels from 0 on; the least is {values.min()}.")
    if values.dtype.kind == "f":
        raise InputError(
            f"{measure} is defined for classes, and these labels are numbers; ls.label_cca, the CCA of states with "
            "labels, takes those."
        )
    return values


def several_classes(labels: Any, measure: str) -> np.ndarray:
    """The labels as class numbers 0.. without gaps; a single class is refused."""
    present, values = np.unique(classes_of(labels, measure), return_inverse=True)
    if len(present) < 2:
        raise InputError(f"{measure} compares classes, and the rows are of {len(present)} class only.")
    return values


def halves(reps: Representations, seed: int = 0) -> tuple[Representations, Representations]:
    """The rows of two halves of the texts, drawn: where one split must serve for learning and for scoring."""
    texts = np.unique(reps.rows.row)
    log.warning("There is one split: half of its %d texts is learned from and the other half is scored.", len(texts))
    first = np.isin(reps.rows.row, np.random.default_rng(seed).permutation(texts)[::2])
    return reps.select(rows=np.flatnonzero(first)), reps.select(rows=np.flatnonzero(~first))


def curve_of(
    name: str,
    values: Values,
    *parts: Representations,
    least: bool | None,
    ci: float | None = None,
    subsamples: int = 40,
    seed: int = 0,
    words: Mapping[str, str] | None = None,
    **settings: Any,
) -> Curve:
    """The curve of `values(*parts)`, its best layer the `least` or the greatest above layer 0 (None: it has no best).

    `ci=0.95` adds intervals and wins over `subsamples` halves of each part's rows. `words` are its figure's.
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
    if ci is not None:
        _add_intervals(curve, values, parts, least, ci, subsamples, seed)
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
    ci: float,
    subsamples: int,
    seed: int,
) -> None:
    """Values over halves drawn without replacement: a half of n rows varies about the whole as much as n rows do."""
    from scipy.stats import norm

    generator = np.random.default_rng(seed)
    drawn = []
    with progress(f"{curve.name} over subsamples", subsamples, "subsamples") as advance:
        for _ in range(subsamples):
            drawn.append(values(*(_half(part, generator) for part in parts)))
            advance(1)
    draws = np.asarray(drawn)
    defined = ~np.isnan(draws).all(axis=0)
    spread = np.full(len(curve.values), math.nan)
    spread[defined] = np.nanstd(draws[:, defined], axis=0, ddof=1)
    width = float(norm.ppf((1 + ci) / 2)) * spread
    curve.low, curve.high = curve.values - width, curve.values + width
    if least is not None:
        winners = [extreme(curve.layers, row, least) for row in draws]
        curve.wins = np.asarray([sum(w == layer for w in winners) / len(winners) for layer in curve.layers])


def _half(reps: Representations, generator: np.random.Generator) -> Representations:
    """Half of the rows, of each class at least two (or its only one)."""
    labels = np.zeros(len(reps), int) if reps.labels is None else np.asarray(reps.labels)
    groups = [np.arange(len(labels))] if labels.dtype.kind == "f" else [labels == c for c in np.unique(labels)]
    chosen = []
    for group in groups:
        rows = group if group.dtype != bool else np.flatnonzero(group)
        chosen.append(generator.choice(rows, size=min(len(rows), max(2, len(rows) // 2)), replace=False))
    return reps.select(rows=np.sort(np.concatenate(chosen)))
