"""Localization: how much of a layer sits in single neurons (Wu et al. 2020, figures 3 and 7)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from layerscope.data import TaskSource
from layerscope.extraction.representations import Representations
from layerscope.models.load import ModelSource
from layerscope.results import Curve
from layerscope.similarity.compare import compare
from layerscope.similarity.result import Similarity

_WORDS = {
    "title": "Localization of every layer",
    "shows": "The mean neuron similarity of a layer to all other layers, minus its mean SVCCA similarity to them.",
    "reading": "High: what the layer holds sits in single neurons, in the same ones elsewhere. Low: it is spread out.",
    "caveat": "Both means depend on the number of rows and on which other layers there are.",
}
_ROUNDING = 1e-12


def localization(
    models: ModelSource | Sequence[ModelSource],
    *,
    task: TaskSource | None = None,
    standardize: bool = False,
    split: str | None = None,
    pool: str | None = None,
    limit: int | None = None,
    max_length: int | None = None,
    final_norm: bool = False,
    names: Sequence[str | int] | None = None,
    baseline: bool | int = False,
    seed: int = 0,
    memory: float | None = None,
    keep: float | None = None,
    top_k: int | None = None,
    rank_tolerance: float | None = None,
    allow_trivial: bool = False,
) -> Curve:
    """Measure how much of each layer sits in single neurons: mean `neuron` minus mean `svcca` similarity to the others.

    Args:
        models: One model or several, or representations; with several, the other layers are those of all of them.
        task: A task of the registry (`layerscope tasks` lists them), a file, a folder, a hub id, or a `Task`.
        standardize: Bring both means to mean 0 and standard deviation 1 over all layers before the subtraction, as the
            authors' code does.
        split: The split; `validation` where there is one, else the only one.
        pool: How token states become rows: `cls`, `mean`, `last`, `words` or `tokens`; `mean` if not given.
        limit: Use only the first N examples.
        max_length: The longest text in tokens, 128 if not given; the rest is cut off.
        final_norm: Take the last layer after the model's final norm.
        names: The models' names in the table and the figure.
        baseline: Shuffles of the texts, as in `ls.compare`; localization itself has no baseline.
        seed: Decides the shuffles.
        memory: GiB that may be used, on the host and on the device each; half of what is free if not given.
        keep: The share of the variance that SVCCA keeps of each layer; 0.99 if not given.
        top_k: Only the K most similar neurons of each layer count; all if not given.
        rank_tolerance: Directions of a layer below this share of its largest singular value count as none.
        allow_trivial: Give SVCCA a value also where there are too few rows for one that means something.

    Returns:
        A `Curve` over the layers of every source. Both means are over the layers with which both similarities have a
        value; a layer with none has NaN.

    Example:
        >>> import numpy as np, layerscope as ls
        >>> rows = np.random.default_rng(0).normal(size=(200, 6))
        >>> reps = ls.Representations.from_arrays([rows, rows[:, ::-1].copy(), rows**3])
        >>> ls.localization(reps).layers
        [0, 1, 2]
    """
    settings = {"pool": pool, "max_length": max_length, "keep": keep, "top_k": top_k}
    settings |= {"rank_tolerance": rank_tolerance, "allow_trivial": allow_trivial or None}
    if pool is None and not _stored(models):
        settings["pool"] = "mean"  # summary tokens are all alike in layer 0
    both = compare(
        models,
        measure=["neuron", "svcca"],
        task=task,
        split=split,
        limit=limit,
        final_norm=final_norm,
        names=names,
        baseline=baseline,
        seed=seed,
        memory=memory,
        **{name: value for name, value in settings.items() if value is not None},
    )
    unknown = np.isnan(both["neuron"].values) | np.isnan(both["svcca"].values)
    means = {name: mean_to_others(similarity, unknown) for name, similarity in both.items()}
    if standardize:
        means = {name: _standardized(mean) for name, mean in means.items()}
    axis, provenance = both["neuron"].row_axis, both["neuron"].provenance
    values = means["neuron"] - means["svcca"]
    curve = Curve("localization", list(axis.models), list(axis.layers), values, provenance, words=_WORDS)
    reasons = [reason for similarity in both.values() for reason in similarity.reasons.values()]
    curve.explain_gaps(reasons[0] if reasons else "there are too few layers, or all are equally like the others")
    return curve


def _stored(models: Any) -> bool:
    """Whether these are representations, which have been pooled already."""
    return all(
        isinstance(each, Representations) for each in (models if isinstance(models, (list, tuple)) else [models])
    )


def _standardized(means: np.ndarray) -> np.ndarray:
    """Means at mean 0 and standard deviation 1 over the layers; NaN where they are the same up to rounding."""
    defined = means[~np.isnan(means)]
    spread = defined.std() if len(defined) else 0.0
    return (means - defined.mean()) / spread if spread > _ROUNDING else np.full_like(means, np.nan)


def mean_to_others(similarity: Similarity, unknown: np.ndarray | bool = False) -> np.ndarray:
    """The mean of each row without its diagonal cell; undefined cells, and those `unknown`, are left out."""
    values = np.where(unknown, np.nan, similarity.values)
    np.fill_diagonal(values, np.nan)
    defined = ~np.isnan(values)
    counts = defined.sum(axis=1)
    sums = np.where(defined, values, 0.0).sum(axis=1)
    return np.where(counts > 0, sums / np.maximum(counts, 1), np.nan)
