"""Probes: what can be read from each frozen layer by a small classifier, and how two curves over layers agree."""

from __future__ import annotations

import math
import warnings
from functools import partial
from typing import Any

import numpy as np
import torch

from layerscope.data import metrics, task
from layerscope.data.registry import registry
from layerscope.errors import InputError, check_level, check_seed, choose
from layerscope.evaluation.heads import classifier_of
from layerscope.evaluation.layer_heads import LayerHeads
from layerscope.extraction.representations import Representations
from layerscope.models import load
from layerscope.probing.labelled import Values, curve_of, several_classes
from layerscope.progress import progress
from layerscope.results import Curve

_FOLDS = 3  # of the cross-validation that chooses a linear probe's strength
KINDS = ("linear", "head")
RATES = {"qqp": 3e-4, "sst2": 3e-3}  # Xie et al. 2022, table 3; 1e-3 for the others


def probe(
    train: Representations,
    validation: Representations,
    *,
    kind: str = "linear",
    metric: str | None = None,
    model: Any = None,
    learning_rate: float | None = None,
    epochs: int = 20,
    batch: int = 8,
    ci: float | None = None,
    subsamples: int = 10,
    seed: int = 0,
) -> Curve:
    """Train a small classifier on each layer of `train`, and score it on `validation`.

    Args:
        train: Representations with labels to learn from.
        validation: The same layers of other rows.
        kind: `linear` is logistic regression (ridge for numbers) on standardised states, its strength chosen by
            cross-validation; `head` is the family's own head, trained as in Xie et al. with all layers side by side.
        metric: The task's metric if not given, or accuracy (the correlations for numbers).
        model: For `head`: the model, if the representations do not name it.
        learning_rate: For `head`: the paper's if not given.
        epochs: For `head`.
        batch: For `head`: rows per step.
        ci: Train and score anew on `subsamples` halves of the rows, for intervals of this level and for how often each
            layer wins.
        subsamples: How many halves.
        seed: Decides halves, heads and the order of rows.

    Returns:
        A `Curve` of scores; `best` has the highest.

    Example:
        >>> import numpy as np, layerscope as ls
        >>> draw, labels = np.random.default_rng(0).normal, np.arange(80) % 2
        >>> layers = [draw(size=(80, 3)), draw(size=(80, 3)) + 4 * labels[:, None]]
        >>> reps = ls.Representations.from_arrays(layers, labels)
        >>> ls.probe(reps.select(rows=slice(40)), reps.select(rows=slice(40, 80))).best
        1
    """
    choose("kind of probe", kind, KINDS)
    if train.labels is None or validation.labels is None:
        raise InputError("A probe learns labels, and one of the representations has none.")
    if train.layers != validation.layers:
        raise InputError(f"The layers differ: {train.layers} are trained on and {validation.layers} are to be scored.")
    name = (train.rows.task or "").split("@")[0]
    numbers = np.asarray(train.labels).dtype.kind == "f"
    if numbers != (np.asarray(validation.labels).dtype.kind == "f"):
        raise InputError("One of the representations has classes as labels and the other numbers.")
    check_seed(seed)
    if not numbers and np.bincount(several_classes(train.labels, "A probe")).max() < _FOLDS and kind == "linear":
        raise InputError(
            f"A probe chooses its strength over {_FOLDS} parts of the rows, and no class has {_FOLDS} rows; give more "
            "of them, or leave probes out (probes=False, --no-probe)."
        )
    default = registry()[name].metric if name in registry() else "pearson_spearman" if numbers else "accuracy"
    chosen = metric or default
    choose("metric", chosen, metrics.METRICS)
    if kind == "linear":
        values: Values = partial(_linear, metric=chosen, numbers=numbers)
    else:
        rate, source = learning_rate or RATES.get(name, 1e-3), model or train.info.get("model")
        values = partial(_heads, metric=chosen, model=source, rate=rate, epochs=epochs, batch=batch, seed=seed)
    drawn: dict[str, Any] = {"ci": ci, "subsamples": subsamples, "seed": seed}
    words = {
        "title": f"Probes: {chosen} of a {kind} classifier on each layer",
        "shows": f"{chosen} on validation of a classifier trained on each layer's rows.",
        "reading": "Higher is better. Where it follows nu upside down, both say the same of the layers.",
        "caveat": "What a probe can read a model need not use.",
    }
    return curve_of(chosen, values, train, validation, least=False, words=words, kind=kind, metric=chosen, **drawn)


def _linear(train: Representations, validation: Representations, metric: str, numbers: bool) -> np.ndarray:
    from sklearn.exceptions import ConvergenceWarning
    from sklearn.linear_model import LogisticRegressionCV, RidgeCV
    from sklearn.pipeline import make_pipeline
    from sklearn.preprocessing import StandardScaler
    from threadpoolctl import threadpool_limits

    scores = []
    # The products are small: threads would wait for one another, on a busy machine many times longer than they work.
    with progress("probes", len(train.layers), "layers") as advance, threadpool_limits(1):
        for layer in train.layers:
            x, y = (reps[layer].double().numpy() for reps in (train, validation))
            if np.ptp(x, axis=0).max() == 0:
                scores.append(math.nan)  # nothing varies: there is nothing to read
                continue
            learner = RidgeCV(np.logspace(-2, 4, 7)) if numbers else LogisticRegressionCV(Cs=6, cv=_FOLDS, max_iter=300)
            with warnings.catch_warnings():
                warnings.simplefilter("ignore", FutureWarning)  # about defaults that later versions will change
                warnings.filterwarnings("ignore", "The least populated class")  # it is in fewer of the parts
                warnings.simplefilter("ignore", ConvergenceWarning)  # of the weakest strengths, which are not chosen
                fitted = make_pipeline(StandardScaler(), learner).fit(x, train.labels)
            scores.append(metrics.score(metric, np.asarray(validation.labels), fitted.predict(y)))
            advance(1)
    return np.asarray(scores)


def _heads(
    train: Representations,
    validation: Representations,
    metric: str,
    model: Any,
    rate: float,
    epochs: int,
    batch: int,
    seed: int,
) -> np.ndarray:
    if model is None:
        raise InputError("kind='head' trains the model's own head; say which model: probe(..., model=...).")
    labels = np.asarray(train.labels)
    names = train.label_names or tuple(map(str, range(int(labels.max()) + 1)))
    numbers = labels.dtype.kind == "f"
    import pandas

    shown = labels if numbers else [names[k] for k in labels]
    like = task(pandas.DataFrame({"text": "x", "label": shown}))
    heads = LayerHeads(classifier_of(load(model), like, seed, new_head=True), train.layers)
    order = None if numbers else [names.index(name) for name in like.label_names or ()]
    states = [torch.stack([r[layer] for layer in r.layers]).to(heads.model.device) for r in (train, validation)]

    def score(logits: np.ndarray) -> float:
        guesses = logits[:, 0] if order is None else np.asarray(order)[logits.argmax(axis=1)]
        return metrics.score(metric, np.asarray(validation.labels), guesses)

    target = labels if order is None else np.argsort(order)[labels]
    return heads.fit(
        states[0], target, states[1], score, learning_rate=rate, epochs=epochs, batch=batch, seed=seed, title="probes"
    )[0]


def agreement(curve: Curve, other: Curve, *, ci: float = 0.95, rounds: int = 2000, seed: int = 0) -> dict[str, Any]:
    """Compare two curves over layers 1..L: correlations, and the regression of the second on the first.

    Args:
        curve: A curve over layers.
        other: Another one; the layers that both have count.
        ci: The level of the intervals, over layers drawn with replacement.
        rounds: How often layers are drawn.
        seed: Decides the draws.

    Returns:
        `pearson`, `spearman`, `slope`, `r2`, `n` (layers), and `intervals` with a pair of bounds for each.

    Example:
        >>> import numpy as np, layerscope as ls
        >>> one, two = (ls.Curve(n, ["m"] * 5, [0, 1, 2, 3, 4], np.arange(5.0) ** p) for n, p in (("a", 1), ("b", 3)))
        >>> ls.agreement(one, two)["spearman"]
        1.0
    """
    check_level(ci)
    common = [layer for layer in curve.layers if layer in other.layers and layer >= 1]
    pairs = np.asarray([[c.values[c.layers.index(layer)] for c in (curve, other)] for layer in common])
    pairs = pairs[~np.isnan(pairs).any(axis=1)] if len(pairs) else pairs
    if len(pairs) < 3:
        raise InputError(f"Two curves agree over at least 3 common layers; these have {len(pairs)}.")
    values = _agreement(pairs)
    generator = np.random.default_rng(seed)
    draws = [_agreement(pairs[generator.integers(len(pairs), size=len(pairs))]) for _ in range(rounds)]
    defined = [draw for draw in draws if not math.isnan(draw["pearson"])] or [values]
    edge = (1 - ci) / 2
    intervals = {
        name: tuple(float(v) for v in np.quantile([d[name] for d in defined], [edge, 1 - edge])) for name in values
    }
    return {**values, "n": len(pairs), "intervals": intervals}


def correlation(curve: Curve, other: Curve, value: str = "pearson") -> float:
    """One figure of `agreement`, without its interval; NaN with fewer than 3 common layers."""
    try:
        return float(agreement(curve, other, rounds=1)[value])
    except InputError:
        return math.nan


def _agreement(pairs: np.ndarray) -> dict[str, float]:
    from scipy.stats import rankdata

    x, y = pairs.T
    if np.ptp(x) == 0 or np.ptp(y) == 0:
        return dict.fromkeys(("pearson", "spearman", "slope", "r2"), math.nan)
    pearson = float(np.corrcoef(x, y)[0, 1])
    spearman = float(np.corrcoef(rankdata(x), rankdata(y))[0, 1])
    return {"pearson": pearson, "spearman": spearman, "slope": float(np.polyfit(x, y, 1)[0]), "r2": pearson**2}
