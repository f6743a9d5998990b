"""Task specialty: nu of every layer of a model or of representations, with nothing trained (Xie et al. 2022)."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from layerscope.errors import InputError, check_level, check_seed, choose
from layerscope.extraction.extract import examples_of, refuse_reading
from layerscope.extraction.representations import Representations
from layerscope.models import load
from layerscope.probing.labelled_rows import check_choices, labelled_rows
from layerscope.probing.layer_score import LayerScore
from layerscope.probing.permutation import check_null
from layerscope.probing.score_curves import SINGLE, rows_fit, score_curves, streamed_curves
from layerscope.probing.scores.nu import WEIGHTINGS, Nu, SpecialtyCurve, class_numbers
from layerscope.probing.scores.press import Press
from layerscope.results import Curve


def specialty(
    source: Any,
    task: Any = None,
    *,
    weighting: str = "class",
    split: str | None = None,
    pool: str = "mean",
    limit: int | None = None,
    max_length: int = 128,
    ci: float | None = None,
    null: int = 20,
    press: bool = True,
    seed: int = 0,
) -> Curve:
    """Measure nu of every layer: within-class over between-class variability, 1/C trace(S_w S_b^+). Low is good.

    Nothing is trained (Xie et al. 2022, equation 3). Classes count equally, whatever their sizes. Part of nu is the
    layer's own, whatever the labels say, so it is measured with permuted labels too. It also depends on how many rows
    there are beside the width: of noise with two classes it is about n / (2 d), and further columns of noise bring it
    down. So it is comparable between layers of one width on the same rows only. PRESS, which has a known zero, stands
    beside it: see `ls.layer_scores`.

    Args:
        source: Representations with labels, or a model, which streams over the task's train split. Where texts have
            choices, each choice is a row, and its class is whether it is the right one.
        task: The task, for a model.
        weighting: `class`, or `rows` for the plain form, in which each row counts equally within.
        split: The split; `train` where there is one, else the only one, all of it (`ls.recommend` and `ls.tune`, which
            score a fifth of it, look for l* in the rest).
        pool: How a model's token states become rows.
        limit: Use only the first N examples.
        max_length: The longest text in tokens.
        ci: Add intervals of this level, such as 0.95, and `wins`: how often each layer came out as l*, over halves of
            the texts. A model's rows are extracted first.
        null: How many times labels are permuted among texts, for `null`, `ratio` and `p`; 0 leaves them out.
        press: Also measure PRESS of every layer (`curve.press`): how well a linear map tells the labels of texts that
            were left out. Where rows take more than 2 GiB they are not kept, and one of ten groups of texts is left out
            at a time.
        seed: Decides the halves and the permutations.

    Returns:
        A `Curve`; `curve.best` is l*, the layer with the least nu among 1..L. `curve.null` is the median nu with
        permuted labels, `curve.ratio` nu over it, `curve.p` how often permuted labels give a nu as low in that layer,
        and `curve.p_best` the same for l* after allowing for the choice among layers.

    Example:
        >>> import numpy as np, layerscope as ls
        >>> draw, labels = np.random.default_rng(0).normal, np.arange(60) % 3
        >>> mixed, apart = draw(size=(60, 4)), draw(size=(60, 4)) + 5 * np.eye(3, 4)[labels]
        >>> curve = ls.specialty(ls.Representations.from_arrays([mixed, mixed, apart], labels))
        >>> curve.best, bool(curve.ratio[2] < 0.1 < curve.ratio[1]), bool(curve.p_best < 0.05)
        (2, True, True)
    """
    choose("weighting", weighting, WEIGHTINGS)
    check_level(ci)
    check_seed(seed)
    check_null(null)
    if isinstance(source, Representations):
        if task is not None:
            raise InputError("A task was given together with representations, which have theirs already.")
        refuse_reading(split=(split, None), limit=(limit, None), pool=(pool, "mean"), max_length=(max_length, 128))
    elif task is None:
        raise InputError("A model's specialty is for a task: name one, as in specialty('model', 'sst2').")
    else:
        examples = examples_of(task, split, limit, learning=True)
        if ci is None and pool in SINGLE and examples.choices is None:
            class_numbers(examples.labels)
            model, scores = load(source), _scores(weighting, press, examples.rows)
            keep = (press or null > 0) and rows_fit(len(examples), model, scores, null)
            options: dict[str, Any] = {"pool": pool, "max_length": max_length, "ci": None, "null": null, "seed": seed}
            return _together(streamed_curves(model, examples, scores, keep=keep, **options))
        source = labelled_rows(source, examples, pool=pool, max_length=max_length)
    check_choices(source, "nu")
    class_numbers(source.labels)
    scores = _scores(weighting, press, source.rows.row)
    return _together(score_curves(source, scores, ci=ci, null=null, seed=seed))


def _scores(weighting: str, press: bool, texts: np.ndarray) -> list[LayerScore]:
    """nu, and PRESS where it is wanted and there are enough texts for it."""
    return [Nu(weighting), *([Press()] if press and len(np.unique(texts)) >= Press.fewest else [])]


def _together(curves: dict[str, Curve]) -> Curve:
    """The curve of nu, with that of PRESS beside it where there is one."""
    curve = curves["nu"]
    assert isinstance(curve, SpecialtyCurve)
    curve.press = curves.get("press")
    return curve


def smoothness(curve: Curve) -> float:
    """Measure how smooth a curve is: zeta, the sum of squared second differences of its z-scored values over 1..L.

    A straight line has 0; values that jump up and down from layer to layer have about 6 per layer.

    Args:
        curve: A curve over layers.

    Returns:
        zeta; low is smooth. NaN with fewer than three layers, or where the curve is flat or undefined.

    Example:
        >>> import numpy as np, layerscope as ls
        >>> line = ls.Curve("nu", ["m"] * 5, [0, 1, 2, 3, 4], np.arange(5.0))
        >>> round(ls.smoothness(line), 6)
        0.0
    """
    if len(models := dict.fromkeys(curve.models)) > 1:
        raise InputError(f"zeta is of one model's layers, and this curve is of {len(models)}: {', '.join(models)}.")
    values = np.asarray([v for layer, v in zip(curve.layers, curve.values, strict=True) if layer >= 1])
    if len(values) < 3 or np.isnan(values).any() or values.std() == 0:
        return math.nan
    scaled = (values - values.mean()) / values.std()
    return float((np.diff(scaled, 2) ** 2).sum())
