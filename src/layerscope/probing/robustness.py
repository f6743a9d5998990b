"""The robustness of nu: unbalanced classes, few rows, another pool, a tuned model (Xie et al. 2022, 4.4 and app. C)."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from itertools import product
from typing import TYPE_CHECKING, Any

import numpy as np

from layerscope.data import task as open_task
from layerscope.data.splits import train_validation_split
from layerscope.drawing.captions import numbers
from layerscope.drawing.figures.curve import CurveFigure, Series
from layerscope.engine import Job, check_engine, folders_of
from layerscope.errors import InputError, check_count
from layerscope.extraction.extract import Extraction
from layerscope.extraction.forward import check_layers
from layerscope.extraction.pooling import Reading
from layerscope.extraction.representations import Representations
from layerscope.models import load
from layerscope.probing.agreement import correlation
from layerscope.probing.labelled_rows import drawn_by_class, labelled_rows, provenance_of_rows, several_classes
from layerscope.probing.probes import probe as probe_layers
from layerscope.probing.specialty import smoothness, specialty
from layerscope.results import Curve, Result, provenance_of

if TYPE_CHECKING:
    import pandas

    from layerscope.drawing.figure import Figure


class Robustness(Result):
    """nu of every layer in several settings.

    `frame` has the columns setting, n, layer, nu, nu_rows (the plain form), zeta (how rough nu is: the sum of squared
    second differences of its z-scored values over layers, 0 for a straight line), and rho, its correlation with a probe
    over layers.
    """

    name = "robustness"

    def __init__(self, frame: pandas.DataFrame, provenance: Mapping[str, Any]) -> None:
        self._frame, self.provenance = frame, provenance

    @property
    def frame(self) -> pandas.DataFrame:
        return self._frame

    @property
    def settings(self) -> pandas.DataFrame:
        """One row per setting: what does not depend on the layer."""
        by_layer = ["layer", "nu", "nu_rows", "score", "low", "high"]
        return self._frame.drop(columns=by_layer, errors="ignore").drop_duplicates()

    def figures(self) -> list[Figure]:
        series = []
        for name, part in self._frame.groupby("setting", sort=False):
            layers = tuple(map(float, part["layer"]))
            series.append(Series(str(name), layers, tuple(map(float, part["nu"]))))
            series.append(Series(f"{name}, rows count equally", layers, tuple(map(float, part["nu_rows"]))))
        drawn = CurveFigure(
            title="nu in every setting",
            shows="nu of every layer: with classes that count equally, and in the plain form, where rows do.",
            reading="Curves that keep their shape and their lowest layer are robust.",
            series=tuple(series),
            x_name="layer",
            y_name="nu",
        )
        shows = "How rough nu is (zeta), and its correlation with probes (rho)."
        return [drawn, numbers("Every setting", shows, self.settings)]

    def __repr__(self) -> str:
        return f"Robustness({', '.join(map(str, self._frame['setting'].unique()))})"


Share = float | Sequence[float]  # of class 0, whose rest the others share evenly, or one of every class
PARTS = (1, 2, 5, 10)  # class 0 of C classes has 1/C of the rows, and a half, a fifth and a tenth of that


def imbalance_study(
    reps: Representations,
    shares: Sequence[Share] | None = None,
    *,
    size: int | None = None,
    probe: Curve | None = None,
    seed: int = 0,
) -> Robustness:
    """Measure nu of training sets in which class 0 has each of some shares, and the others share the rest evenly.

    Args:
        reps: Representations with labels.
        shares: The shares of class 0; or, for any of them, one share for every class. With C classes 1/C, which is
            balanced, 1/2C, 1/5C and 1/10C if not given (of two classes .5, .25, .1 and .05, as the paper has it).
        size: Rows of each set in all; the largest that all shares allow if not given (the paper has 20,000).
        probe: A curve of probes' scores to correlate nu with.
        seed: Decides which rows are drawn.

    Returns:
        A `Robustness` with one setting per share.

    Example:
        >>> import numpy as np, layerscope as ls
        >>> rows, labels = np.random.default_rng(0).normal(size=(200, 4)), np.arange(200) % 2
        >>> reps = ls.Representations.from_arrays([rows] * 4, labels)
        >>> list(ls.imbalance_study(reps, [0.5, 0.1]).frame["setting"].unique())
        ['p = 0.5', 'p = 0.1']
    """
    labels, classes = _labels(reps)
    counts = np.bincount(labels, minlength=classes)
    check_count(size, "size")
    chosen = [1 / (part * classes) for part in PARTS] if shares is None else list(shares)
    if not chosen:
        raise InputError("No shares were given; say which share of the rows class 0 has, such as 0.5 and 0.1.")
    parts = {_name(share): _by_class(share, classes) for share in chosen}
    if size is None:
        size = int(min((counts / np.asarray(part)).min() for part in parts.values()) + 1e-9)
    return _table(reps, {f"p = {name}": _rounded(size, part) for name, part in parts.items()}, probe, seed)


def scarcity_study(
    reps: Representations, sizes: Sequence[int] = (5000, 1000, 200), *, probe: Curve | None = None, seed: int = 0
) -> Robustness:
    """Measure nu of balanced training sets of several sizes.

    Args:
        reps: Representations with labels.
        sizes: N, the rows of each set in all; every class has as many of them, give or take one.
        probe: A curve of probes' scores to correlate nu with.
        seed: Decides which rows are drawn.

    Returns:
        A `Robustness` with one setting per size.

    Example:
        >>> import numpy as np, layerscope as ls
        >>> rows, labels = np.random.default_rng(0).normal(size=(200, 4)), np.arange(200) % 2
        >>> reps = ls.Representations.from_arrays([rows] * 4, labels)
        >>> list(ls.scarcity_study(reps, [100, 20]).frame["setting"].unique())
        ['N = 100', 'N = 20']
    """
    _, classes = _labels(reps)
    if not len(sizes):
        raise InputError("No sizes were given; say how many rows each set has, such as 1000 and 200.")
    for size in sizes:
        check_count(size, "N")
        if size < classes:
            raise InputError(f"N is {size}, which is fewer rows than there are classes ({classes}).")
    return _table(reps, {f"N = {size:,}": _even(size, classes) for size in sizes}, probe, seed)


def specialty_study(
    models: Mapping[str, Any],
    task: Any,
    *,
    pools: Sequence[str] = ("mean", "cls"),
    kind: str = "linear",
    limit: int | None = None,
    max_length: int = 128,
    engine: str = "local",
) -> Robustness:
    """Measure nu and probes of several models, such as a base and its tuned self, under several pools.

    Args:
        models: The models by name.
        task: The task.
        pools: How token states become rows.
        kind: The kind of probe: `linear`, or `head`, the paper's.
        limit: Use only the first N examples.
        max_length: The longest text in tokens.
        engine: Where the models run over the texts: `local`, `processes:N`, `ray` or `ray:ADDRESS`; what is measured of
            their states is measured here.

    Returns:
        A `Robustness` with one setting per model and pool, the probe's score with its interval (low, high), and rho
        signed, with its slope and R².

    Example:
        >>> import layerscope as ls
        >>> study = ls.specialty_study({"base": "garden:bert-s0"}, "pydocs", pools=["mean"], limit=60, max_length=16)
        >>> study.frame["layer"].tolist()[:3]
        [0, 1, 2]
    """
    import pandas

    check_engine(engine)
    for name, given in (("models", models), ("pools", pools)):
        if not given:
            raise InputError(f"{name} is empty; give at least one.")
    data, frames = open_task(task), []
    learned, scored = train_validation_split(data, (limit, limit))
    opened = {name: load(model) for name, model in models.items()}
    if engine != "local":
        # The jobs leave the states in the store, where they are found below.
        jobs = []
        for (name, model), pool, part in product(opened.items(), pools, (learned, scored)):
            states = Extraction(model, part, check_layers(None, model), Reading(pool, max_length=max_length))
            title = f"{pool} states of {name}, {part.split}"
            jobs.append(Job(states, title, gpus=float(model.device.type == "cuda")))
        folders_of(jobs, engine, "extractions")
    for name, model in opened.items():
        for pool in pools:
            reading: dict[str, Any] = {"pool": pool, "max_length": max_length}
            train, validation = (labelled_rows(model, part, **reading) for part in (learned, scored))
            scores = probe_layers(train, validation, kind=kind, model=model, metric=data.metric)
            frame, nu = _setting(f"{name}, {pool}", train)
            rho, slope = correlation(nu, scores), correlation(nu, scores, "slope")
            bounds = {"low": scores.low, "high": scores.high}
            frames.append(frame.assign(rho=rho, score=scores.values, **bounds, slope=slope, r2=rho**2))
    settings = {"pools": list(pools), "kind": kind, "limit": limit, "max_length": max_length}
    origin = provenance_of(opened.values(), learned, settings)
    return Robustness(pandas.concat(frames, ignore_index=True), origin)


def drawn(reps: Representations, counts: Sequence[int], seed: int = 0) -> Representations:
    """Representations with `counts[c]` rows of every class c, drawn without replacement, whole texts at a time."""
    labels, _ = _labels(reps)
    for label, count in enumerate(counts):
        there = int((labels == label).sum())
        if not 1 <= count <= there:
            name = label if reps.label_names is None else reps.label_names[label]
            raise InputError(
                f"{count} rows of class {name} were asked for; there are {there}. At least 1 is needed: ask for "
                "another size, or take more texts."
            )
    return reps.select(rows=drawn_by_class(reps.rows.row, labels, counts, seed))


def _name(share: Share) -> str:
    """A share in words; of one for every class they stand side by side."""
    return f"{share:.3g}" if isinstance(share, int | float) else ", ".join(f"{part:.3g}" for part in share)


def _by_class(share: Share, classes: int) -> list[float]:
    """The share of every class, of that of class 0 or of all."""
    if isinstance(share, int | float):
        if not 0 < share < 1:
            raise InputError(f"A share is {share}; it must be between 0 and 1.")
        return [share, *[(1 - share) / (classes - 1)] * (classes - 1)]
    if len(share) != classes:
        raise InputError(
            f"The shares ({_name(share)}) are {len(share)}, and there are {classes} classes; give one each."
        )
    if min(share) <= 0 or abs(sum(share) - 1) > 1e-6:
        raise InputError(f"The shares ({_name(share)}) add up to {sum(share):g}; all must be above 0, and their sum 1.")
    return [float(part) for part in share]


def _rounded(size: int, parts: Sequence[float]) -> list[int]:
    """Whole numbers of rows that add up to `size`, each as near to its share as can be."""
    exact = [size * part for part in parts]
    counts = [int(value + 1e-9) for value in exact]
    for k in sorted(range(len(parts)), key=lambda k: counts[k] - exact[k])[: size - sum(counts)]:
        counts[k] += 1
    return [max(1, count) for count in counts]


def _even(size: int, classes: int) -> list[int]:
    """The rows of each of some classes, which add up to `size` and differ by one at most."""
    return [size // classes + (k < size % classes) for k in range(classes)]


def _labels(reps: Representations) -> tuple[np.ndarray, int]:
    """The labels as class numbers, and the number of classes."""
    labels = several_classes(reps.labels, "Resampling by class")
    return labels, int(labels.max()) + 1


def _table(reps: Representations, settings: Mapping[str, Sequence[int]], probe: Curve | None, seed: int) -> Robustness:
    """nu of the rows that each setting draws, given as the number of rows of each class by the setting's name."""
    import pandas

    frames = []
    for name, counts in settings.items():
        frame, nu = _setting(name, drawn(reps, counts, seed))
        frames.append(frame.assign(rho=abs(correlation(nu, probe)) if probe is not None else math.nan))
    counts_by_setting = {name: list(counts) for name, counts in settings.items()}
    origin = provenance_of_rows(reps, seed=seed, drawn=counts_by_setting)
    return Robustness(pandas.concat(frames, ignore_index=True), origin)


def _setting(name: str, reps: Representations) -> tuple[pandas.DataFrame, Curve]:
    """The table of one setting, with both forms of nu and its smoothness, and the curve of nu."""
    import pandas

    curve, plain = specialty(reps, null=0, press=False), specialty(reps, weighting="rows", null=0, press=False)
    columns = {"setting": name, "n": len(reps), "layer": curve.layers, "nu": curve.values, "nu_rows": plain.values}
    return pandas.DataFrame({**columns, "zeta": smoothness(curve)}), curve
