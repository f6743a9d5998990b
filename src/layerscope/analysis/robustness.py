"""How nu holds up: unbalanced classes, few rows, another pool, a tuned model (Xie et al. 2022, 4.4 and app. C)."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from layerscope.analysis.curves import Curve
from layerscope.analysis.labelled import halves, several_classes
from layerscope.analysis.probes import correlation
from layerscope.analysis.probes import probe as probe_layers
from layerscope.analysis.specialty import smoothness, specialty
from layerscope.data import task as open_task
from layerscope.errors import InputError
from layerscope.extract import extract
from layerscope.extract.representations import Representations
from layerscope.measures.heatmap import blank, write
from layerscope.models import load

if TYPE_CHECKING:
    import pandas
    from matplotlib.axes import Axes


def imbalance(
    reps: Representations,
    shares: Sequence[float] = (0.5, 0.25, 0.1, 0.05),
    *,
    size: int | None = None,
    probe: Curve | None = None,
    seed: int = 0,
) -> pandas.DataFrame:
    """nu of training sets in which class 0 has each of `shares` of `size` rows and the others share the rest evenly.

    `size` is the largest that all shares allow, unless given. Columns: setting, layer, nu, nu_rows (the plain form),
    zeta, and rho, the absolute correlation with a `probe`.
    """
    labels, classes = _labels(reps)
    counts = np.bincount(labels, minlength=classes)
    if not shares:
        raise InputError("No shares were given; say which share of the rows class 0 has, such as 0.5 and 0.1.")
    for share in shares:
        if not 0 < share < 1:
            raise InputError(f"A share is {share}; it must be between 0 and 1.")
    if size is None:
        size = int(min(min(counts[0] / s, counts[1:].min() * (classes - 1) / (1 - s)) for s in shares))
    settings = {}
    for share in shares:
        first = max(1, round(size * share))
        rest = [(size - first) // (classes - 1)] * (classes - 1)
        settings[f"p = {share:g}"] = [first, *rest]
    return _table(reps, settings, probe, seed)


def scarcity(
    reps: Representations, sizes: Sequence[int] = (5000, 1000, 200), *, probe: Curve | None = None, seed: int = 0
) -> pandas.DataFrame:
    """nu of balanced training sets of each of `sizes` rows; columns as those of `imbalance`."""
    _, classes = _labels(reps)
    return _table(reps, {f"N = {size:,}": [size // classes] * classes for size in sizes}, probe, seed)


def specialty_study(
    models: Mapping[str, Any],
    task: Any,
    *,
    pools: Sequence[str] = ("mean", "cls"),
    limit: int | None = None,
    max_length: int = 128,
) -> pandas.DataFrame:
    """nu and linear probes of several models (a base and its tuned self, figures 12 and 13) under several pools.

    Columns as those of `imbalance`, with the probe's score, and rho signed with its slope and R^2.
    """
    import pandas

    data, frames = open_task(task), []
    splits = [data.resolve(None, learning=True), data.resolve(None)]
    for name, model in models.items():
        opened = load(model)
        for pool in pools:
            options: dict[str, Any] = {"pool": pool, "limit": limit, "max_length": max_length}
            train = extract(opened, data, split=splits[0], **options)
            if splits[0] == splits[1]:
                train, validation = halves(train)
            else:
                validation = extract(opened, data, split=splits[1], **options)
            found = probe_layers(train, validation, metric=data.metric)
            frame = _setting(f"{name}, {pool}", train, None)
            rho, slope = correlation(specialty(train), found), correlation(specialty(train), found, "slope")
            frames.append(frame.assign(score=found.values, rho=rho, slope=slope, r2=rho**2))
    return pandas.concat(frames, ignore_index=True)


def resampled(reps: Representations, counts: Sequence[int], seed: int = 0) -> Representations:
    """So many rows of each class, drawn without replacement."""
    labels, _ = _labels(reps)
    generator = np.random.default_rng(seed)
    chosen = []
    for label, count in enumerate(counts):
        rows = np.flatnonzero(labels == label)
        if not 1 <= count <= len(rows):
            name = label if reps.label_names is None else reps.label_names[label]
            raise InputError(
                f"{count} rows of class {name} were asked for; there are {len(rows)}. At least 1 is needed: ask for "
                "another size, or take more texts."
            )
        chosen.append(generator.choice(rows, size=count, replace=False))
    return reps.select(rows=np.sort(np.concatenate(chosen)))


def _labels(reps: Representations) -> tuple[np.ndarray, int]:
    labels = several_classes(reps.labels, "Resampling by class")
    return labels, int(labels.max()) + 1


def _table(
    reps: Representations, settings: Mapping[str, Sequence[int]], probe: Curve | None, seed: int
) -> pandas.DataFrame:
    import pandas

    frames = [_setting(name, resampled(reps, counts, seed), probe) for name, counts in settings.items()]
    return pandas.concat(frames, ignore_index=True)


def _setting(name: str, reps: Representations, probe: Curve | None) -> pandas.DataFrame:
    """nu both ways, its smoothness, and the size of its correlation with a probe."""
    import pandas

    curve, plain = specialty(reps), specialty(reps, weighting="rows")
    rho = abs(correlation(curve, probe)) if probe is not None else math.nan
    columns = {"setting": name, "n": len(reps), "layer": curve.layers, "nu": curve.values, "nu_rows": plain.values}
    return pandas.DataFrame({**columns, "zeta": smoothness(curve), "rho": rho})


def plot_robustness(frame: pandas.DataFrame, path: str | Path | None = None) -> Axes:
    """The curves of every setting overlaid: nu by equal classes as lines, the plain form dotted."""
    ax = blank(5.6, 3.6)
    for k, (name, part) in enumerate(frame.groupby("setting", sort=False)):
        ax.plot(part["layer"], part["nu"], marker="o", markersize=3, color=f"C{k}", label=str(name))
        ax.plot(part["layer"], part["nu_rows"], linestyle=":", color=f"C{k}")
    ax.set_xlabel("layer")
    ax.set_ylabel("nu")
    ax.legend(fontsize=8, frameon=False)
    if path is not None:
        write(ax.figure, path)
    return ax
