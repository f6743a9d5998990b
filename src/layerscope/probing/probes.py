"""Probes: the scores of small classifiers that are trained on each frozen layer."""

from __future__ import annotations

import math
import warnings
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import numpy as np
import torch

from layerscope import metrics
from layerscope.data import task
from layerscope.data.registry import registry
from layerscope.errors import InputError, LayerscopeWarning, check_level, check_seed, choose, some
from layerscope.evaluation.evaluator import groups_of
from layerscope.evaluation.layer_heads import LayerHeads, classifier_of, held_out
from layerscope.extraction.representations import Representations, check_finite
from layerscope.models.load import load_whole
from layerscope.probing.labelled_rows import ALIKE, check_choices, check_numbers, curve_of, several_classes, win_shares
from layerscope.progress import progress
from layerscope.resampling import folds, resampled
from layerscope.results import Curve
from layerscope.similarity.registry import varies

_FOLDS = 3  # of the cross-validation that chooses a linear probe's strength
_RESAMPLES = 200  # of the scored texts, for intervals
KINDS = ("linear", "head")
# Learns from the first representations and answers on the rows of the second, layer by layer; None: nothing to read.
Learner = Callable[[Representations, Representations], list[np.ndarray | None]]
_LARGEST = 5e9  # rows x columns x classes above which logistic regression takes hours per layer
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
    ci: float | None = 0.95,
    subsamples: int = 0,
    seed: int = 0,
) -> Curve:
    """Train a small classifier on each layer of `train`, and score it on `validation`.

    Args:
        train: Representations with labels to learn from.
        validation: The same layers of other rows.
        kind: `linear` is logistic regression on standardised states, its strength chosen by cross-validation (ridge for
            numbers; with thousands of classes, linear discriminant analysis with a shrunk covariance); `head` is
            the family's own head, trained as in Xie et al. with all layers side by side, the epoch of each chosen on a
            tenth of the training texts, which is not learned from.
        metric: The task's metric if not given, or accuracy (the correlations for numbers).
        model: For `head`: the model, if the representations do not name it.
        learning_rate: For `head`: the paper's if not given.
        epochs: For `head`.
        batch: For `head`: rows per step.
        ci: The level of the intervals, over scored texts drawn with replacement, with how often each layer wins; None
            leaves them out.
        subsamples: Train and score anew on this many halves of the texts, for intervals that allow for other training
            texts too; 0 trains once.
        seed: Decides draws, halves, folds, heads and the order of rows.

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
    check_level(ci)
    for part in (train, validation):
        check_finite(part)
        check_choices(part, "A probe")
    if numbers:
        for part in (train, validation):
            check_numbers(part.labels, "A probe")
    else:
        _check_names(train, validation)
        _check_classes(train, kind)
        _warn_of_unseen(train, validation)
    default = registry()[name].metric if name in registry() else "pearson_spearman" if numbers else "accuracy"
    chosen = metric or default
    choose("metric", chosen, metrics.METRICS)
    metrics.check_fits(chosen, numbers, name or "the representations")
    classes = None if numbers else max(_classes(train), _classes(validation))
    learner: Learner
    if kind == "linear":
        learner = partial(_linear, numbers=numbers, seed=seed)
    else:
        rate, source = learning_rate or RATES.get(name, 1e-3), model or train.info.get("model")
        learner = partial(_heads, metric=chosen, model=source, rate=rate, epochs=epochs, batch=batch, seed=seed)
    words = {
        "title": f"Probes: {chosen} of a {kind} classifier on each layer",
        "shows": f"{chosen} on validation of a classifier trained on each layer's rows.",
        "reading": "Higher is better. Where it follows nu upside down, both say the same of the layers.",
        "caveat": "What a probe can read a model need not use.",
    }
    options: dict[str, Any] = {"words": words, "kind": kind, "metric": chosen}
    options["undefined"] = f"{ALIKE}, or {chosen} has no value for such labels and answers"

    def trained_scores(learned: Representations, scored: Representations) -> np.ndarray:
        return _scores(chosen, np.asarray(scored.labels), learner(learned, scored), classes)

    if subsamples:
        drawn: dict[str, Any] = {"ci": ci, "subsamples": subsamples, "seed": seed, "within": metrics.bounds(chosen)}
        return curve_of(chosen, trained_scores, train, validation, least=False, **options, **drawn)
    guesses = learner(train, validation)
    labels = np.asarray(validation.labels)
    values = _scores(chosen, labels, guesses, classes)
    curve = curve_of(chosen, lambda *_: values, train, validation, least=False, **options)
    if ci is not None:
        _add_intervals(curve, guesses, labels, classes, validation.rows.row, ci, seed)
    group = groups_of(validation.rows.row)
    without = [
        _scores(chosen, labels[at], _of_rows(guesses, at), classes)
        for at in (group != g for g in range(group.max() + 1))
    ]
    curve.left_out = np.stack(without)
    return curve


def _check_names(train: Representations, validation: Representations) -> None:
    """Raise InputError where a class has another number on the rows to be scored than on those to learn from."""
    ours, theirs = train.label_names, validation.label_names
    if ours is not None and theirs is not None and ours != theirs:
        raise InputError(
            f"The classes are {some(ours)} where a probe learns and {some(theirs)} where it is scored, so that their "
            "numbers are not the same; give both the same names, reps.with_labels(labels, names=[..])."
        )


def _check_classes(train: Representations, kind: str) -> None:
    """Raise InputError unless there are classes, and enough texts of one for a linear probe's cross-validation."""
    values = several_classes(train.labels, "A probe")
    most = max(len(np.unique(train.rows.row[values == c])) for c in range(int(values.max()) + 1))
    if most < _FOLDS and kind == "linear":
        noun = "rows" if len(np.unique(train.rows.row)) == len(train) else "texts"
        raise InputError(
            f"A probe chooses its strength over {_FOLDS} parts of the {noun}, and no class has {_FOLDS} {noun}; give "
            "more of them, or leave probes out (probes=False, --no-probes)."
        )


def _warn_of_unseen(train: Representations, validation: Representations) -> None:
    """Warn where rows are to be scored whose class no row to learn from has."""
    unseen = ~np.isin(np.asarray(validation.labels), np.asarray(train.labels))
    if unseen.any():
        warnings.warn(
            f"{int(unseen.sum()):,} of the {len(unseen):,} rows that are scored have a class that no row to learn from "
            "has, so that no probe gets them right.",
            LayerscopeWarning,
            stacklevel=4,
        )


def _classes(reps: Representations) -> int:
    """The number of classes, by the names of the classes and by the labels."""
    return max(len(reps.label_names or ()), int(np.asarray(reps.labels).max()) + 1)


def _scores(metric: str, labels: np.ndarray, guesses: Sequence[np.ndarray | None], classes: int | None) -> np.ndarray:
    """The metric of every layer's answers; NaN where there are none."""
    scored = (None if each is None else metrics.score(metric, labels, each, classes) for each in guesses)
    return np.asarray([math.nan if score is None else score for score in scored])


def _of_rows(guesses: Sequence[np.ndarray | None], rows: np.ndarray) -> list[np.ndarray | None]:
    """Every layer's answers on some rows."""
    return [None if each is None else each[rows] for each in guesses]


def _add_intervals(
    curve: Curve,
    guesses: Sequence[np.ndarray | None],
    labels: np.ndarray,
    classes: int | None,
    texts: np.ndarray,
    ci: float,
    seed: int,
) -> None:
    """Set `low`, `high` and `wins` of a curve, from the scores of the same answers on texts drawn with replacement."""
    if len(np.unique(texts)) < 2:  # a single text can only be drawn as it is, which says nothing about others
        curve.low = curve.high = curve.wins = np.full(len(guesses), math.nan)
        return
    seeds = np.random.default_rng([seed, 2]).integers(1 << 32, size=_RESAMPLES).tolist()
    draws = np.empty((_RESAMPLES, len(guesses)))
    for k, each in enumerate(seeds):
        rows = resampled(texts, seed=each)
        draws[k] = _scores(curve.name, labels[rows], _of_rows(guesses, rows), classes)
    defined = ~np.isnan(draws).all(axis=0)
    bounds = np.full((2, len(guesses)), math.nan)
    bounds[:, defined] = np.nanquantile(draws[:, defined], [(1 - ci) / 2, (1 + ci) / 2], axis=0)
    curve.low, curve.high = np.fmin(bounds[0], curve.values), np.fmax(bounds[1], curve.values)
    curve.wins = win_shares(curve.layers, draws, least=False)


def _linear(train: Representations, validation: Representations, numbers: bool, seed: int) -> list[np.ndarray | None]:
    """The answers of a linear probe of each layer; None where nothing varies in a layer."""
    from sklearn.exceptions import ConvergenceWarning
    from sklearn.linear_model import LogisticRegressionCV, RidgeCV
    from sklearn.pipeline import make_pipeline
    from sklearn.preprocessing import StandardScaler
    from threadpoolctl import threadpool_limits

    parts = _parts(train, numbers, seed)
    strengths = np.logspace(-2, 4, 7)
    guesses: list[np.ndarray | None] = []
    # The products are small: threads would wait for one another, on a busy machine many times longer than they work.
    with progress("probes", len(train.layers), "layers") as advance, threadpool_limits(1):
        for layer in train.layers:
            x, y = (reps[layer].double().numpy() for reps in (train, validation))
            if not varies(torch.from_numpy(x)):
                guesses.append(None)  # nothing varies: there is nothing to read
                continue
            if not numbers and x.size * _classes(train) > _LARGEST:
                guesses.append(_discriminant(x, np.asarray(train.labels), y, parts))
                advance(1)
                continue
            learner = RidgeCV(strengths, cv=parts) if numbers else LogisticRegressionCV(Cs=6, cv=parts, max_iter=300)
            with warnings.catch_warnings():
                warnings.simplefilter("ignore", FutureWarning)  # about defaults that later versions will change
                warnings.filterwarnings("ignore", "The least populated class")  # it is in fewer of the parts
                warnings.simplefilter("ignore", ConvergenceWarning)  # of the weakest strengths, which are not chosen
                fitted = make_pipeline(StandardScaler(), learner).fit(x, train.labels)
            guesses.append(fitted.predict(y))
            advance(1)
    return guesses


def _discriminant(
    x: np.ndarray, labels: np.ndarray, y: np.ndarray, parts: Sequence[tuple[np.ndarray, np.ndarray]]
) -> np.ndarray:
    """The answers to `y` of linear discriminant analysis, learned from `x` by the means of its classes.

    The covariance within classes is shrunk by the share that is right most often in the parts. No matrix of rows by
    classes is made.
    """
    shares = [0.001, 0.01, 0.1, 0.3, 0.6, 0.9]

    def answers(learned: np.ndarray, scored: np.ndarray, classes: np.ndarray, tried: list[float]) -> list[np.ndarray]:
        mean, spread = learned.mean(axis=0), learned.std(axis=0)
        scale = np.divide(1.0, spread, out=np.zeros_like(spread), where=spread > 0)
        z, new = (learned - mean) * scale, (scored - mean) * scale
        names, place, counts = np.unique(classes, return_inverse=True, return_counts=True)
        sums = np.zeros((len(names), z.shape[1]))
        np.add.at(sums, place, z)
        means = sums / counts[:, None]
        within = (z.T @ z - means.T @ sums) / len(z)
        found = []
        for share in tried:
            shrunk = (1 - share) * within + share * np.trace(within) / len(within) * np.eye(len(within))
            weights = np.linalg.lstsq(shrunk, means.T, rcond=None)[0]
            offsets = np.log(counts / len(z)) - (means * weights.T).sum(axis=1) / 2
            blocks = (new[start : start + 1024] @ weights + offsets for start in range(0, len(new), 1024))
            found.append(names[np.concatenate([block.argmax(axis=1) for block in blocks])])
        return found

    right = np.zeros(len(shares))
    for learned, scored in parts:
        guesses = answers(x[learned], x[scored], labels[learned], shares)
        right += [(guess == labels[scored]).sum() for guess in guesses]
    return answers(x, y, labels, [shares[int(right.argmax())]])[0]


def _parts(train: Representations, numbers: bool, seed: int) -> list[tuple[np.ndarray, np.ndarray]]:
    """The positions that each part of the cross-validation learns from, and those that it scores."""
    fold = folds(train.rows.row, _FOLDS, seed=seed, labels=None if numbers else np.asarray(train.labels))
    return [(np.flatnonzero(fold != k), np.flatnonzero(fold == k)) for k in range(_FOLDS)]


def _heads(
    train: Representations,
    validation: Representations,
    metric: str,
    model: Any,
    rate: float,
    epochs: int,
    batch: int,
    seed: int,
) -> list[np.ndarray | None]:
    """The answers of the family's own head on each layer, all heads trained side by side."""
    import pandas

    if model is None:
        raise InputError("kind='head' trains the model's own head; say which model: probe(..., model=...).")
    labels = np.asarray(train.labels)
    names = train.label_names or tuple(map(str, range(int(labels.max()) + 1)))
    numbers = labels.dtype.kind == "f"
    shown = labels if numbers else [names[k] for k in labels]
    like = task(pandas.DataFrame({"text": "x", "label": shown}))
    heads = LayerHeads(
        classifier_of(load_whole(model, "a probe that is the family's own head"), like, seed, new_head=True),
        train.layers,
    )
    order = None if numbers else [names.index(name) for name in like.label_names or ()]
    choosing = held_out(train.rows.row, labels, seed)
    parts = train.select(rows=~choosing), train.select(rows=choosing), validation
    learned, chosen_on, scored = (
        torch.stack([part[layer] for layer in part.layers]).to(heads.model.device) for part in parts
    )

    def answers(logits: np.ndarray) -> np.ndarray:
        return logits[..., 0] if order is None else np.asarray(order)[logits.argmax(axis=-1)]

    def score(logits: np.ndarray) -> float:
        return metrics.score(metric, labels[choosing], answers(logits), None if numbers else len(names))

    target = (labels if order is None else np.argsort(order)[labels])[~choosing]
    options: dict[str, Any] = {"learning_rate": rate, "epochs": epochs, "batch": batch, "seed": seed}
    heads.fit(learned, target, chosen_on, score, title="probes", **options)
    return list(answers(heads.outputs(scored)))
