"""`ls.layer_scores`: what several layer scores say of the same rows, each with intervals and permuted labels."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from layerscope.errors import InputError, check_level, check_seed, some
from layerscope.extraction.extract import examples_of, refuse_reading
from layerscope.extraction.representations import Representations
from layerscope.models import load
from layerscope.probing.labelled_rows import labelled_rows, provenance_of_rows
from layerscope.probing.permutation import check_null
from layerscope.probing.score_curves import SINGLE, rows_fit, score_curves, streamed_curves
from layerscope.registry import LAYER_SCORES
from layerscope.results import Curve, Finding, Result, provenance_of

if TYPE_CHECKING:
    import pandas

    from layerscope.drawing.figure import Figure

_COLUMNS = ("low", "high", "wins", "null", "p")


class LayerScores(Result):
    """Several layer scores over the same layers and rows.

    Attributes:
        curves: The curve of every score, by its name: `.best`, `.ties`, `.low`, `.high`, `.null`, `.p_best`.

    Example:
        >>> import numpy as np, layerscope as ls
        >>> rows, labels = np.random.default_rng(0).normal(size=(200, 4)), np.arange(200) % 2
        >>> reps = ls.Representations.from_arrays([rows, rows + 2 * labels[:, None]], labels)
        >>> scores = ls.layer_scores(reps, ["press", "knn"])
        >>> scores["press"].best, bool(scores["press"].p_best < 0.06)
        (1, True)
    """

    name = "layer_scores"

    def __init__(self, curves: Mapping[str, Curve], provenance: Mapping[str, Any]) -> None:
        self.curves, self.provenance = dict(curves), provenance

    def __getitem__(self, name: str) -> Curve:
        if name not in self.curves:
            raise InputError(f"{name!r} was not measured; there are {some(self.curves)}.")
        return self.curves[name]

    @property
    def frame(self) -> pandas.DataFrame:
        """One row per score and layer: score, layer, value, low, high, wins, null, p."""
        import pandas

        parts = []
        for name, curve in self.curves.items():
            own = curve.frame.rename(columns={curve.name: "value"})
            own.insert(0, "score", name)
            parts.append(own[["score", "layer", "value", *(column for column in _COLUMNS if column in own)]])
        return pandas.concat(parts, ignore_index=True)

    def figures(self) -> list[Figure]:
        return [figure for curve in self.curves.values() for figure in curve.figures()]

    def findings(self) -> list[Finding]:
        """What every score says, in the order in which they were asked for."""
        return [finding for curve in self.curves.values() for finding in curve.findings()]

    def __repr__(self) -> str:
        best = ", ".join(f"{name} {curve.best}" for name, curve in self.curves.items())
        return f"LayerScores(best layers: {best})"


def layer_scores(
    source: Any,
    scores: Sequence[str] = ("press", "logme", "nu"),
    *,
    task: Any = None,
    split: str | None = None,
    pool: str = "mean",
    limit: int | None = None,
    max_length: int = 128,
    ci: float | None = 0.95,
    null: int = 20,
    keep: bool | None = None,
    seed: int = 0,
) -> LayerScores:
    """Measure layer scores: numbers that say how well the labels can be read from every layer, with nothing trained.

    `press` has a known zero and is the one to decide by; `nu` is the paper's (Xie et al. 2022), and depends on how many
    rows there are beside the width. The others are there for comparison. Labels are classes, or numbers for scores
    that take them. Where texts have choices, each choice is a row, and its class is whether it is the right one.

    Args:
        source: Representations with labels, or a model.
        scores: Their names: press, logme, nu, hscore, knn, cka_debiased.
        task: The task, for a model.
        split: The split; `train` where there is one, else the only one.
        pool: How a model's token states become rows.
        limit: Use only the first N examples.
        max_length: The longest text in tokens.
        ci: The level of intervals, over halves of the texts; None leaves them out.
        null: How many times labels are permuted among texts, for `null` and `p`; 0 leaves them out.
        keep: Keep a model's rows in the store, for exact `press` and intervals over halves of the texts. Without them
            `press` and `logme` come from the moments of ten groups of texts, one of which is left out at a time, and nu
            has no interval. None keeps rows that take less than 2 GiB, and where a score needs them.
        seed: Decides the halves and the permutations.

    Returns:
        A `Result` with one row per score and layer; `result["press"]` is the `Curve` of one score, with its best layer
        and the layers that tie with it.

    Example:
        >>> import numpy as np, layerscope as ls
        >>> rows, labels = np.random.default_rng(0).normal(size=(200, 4)), np.arange(200) % 2
        >>> reps = ls.Representations.from_arrays([rows, rows + 2 * labels[:, None]], labels)
        >>> ls.layer_scores(reps).frame.columns.tolist()
        ['score', 'layer', 'value', 'low', 'high', 'wins', 'null', 'p']
    """
    for name in scores:
        LAYER_SCORES[name]
    if isinstance(scores, str) or not len(scores):
        raise InputError(f"scores is {scores!r}; it is a list with at least one of {some(LAYER_SCORES)}.")
    check_level(ci)
    check_seed(seed)
    check_null(null)
    if isinstance(source, Representations):
        if task is not None:
            raise InputError("A task was given together with representations, which have theirs already.")
        refuse_reading(split=(split, None), limit=(limit, None), pool=(pool, "mean"), max_length=(max_length, 128))
        reps = source
    elif task is None:
        raise InputError("A model's layers are scored for a task: name one, as in layer_scores('model', task='sst2').")
    else:
        examples, model = examples_of(task, split, limit, learning=True), load(source)
        made = [LAYER_SCORES[name]() for name in scores]
        single = pool in SINGLE and examples.choices is None
        if keep is False and not single:
            raise InputError(
                "Without rows (keep=False) a text has one row: pools cls, mean and last of texts without choices."
            )
        if keep is None:
            keep = not single or not all(score.moments for score in made) or rows_fit(len(examples), model, made, null)
        if not keep:
            options: dict[str, Any] = {"pool": pool, "max_length": max_length, "ci": ci, "null": null, "seed": seed}
            curves = streamed_curves(model, examples, made, keep=False, **options)
            return LayerScores(curves, provenance_of([model], examples, {"scores": list(scores), **options}))
        reps = labelled_rows(model, examples, pool=pool, max_length=max_length)
    curves = score_curves(reps, [LAYER_SCORES[name]() for name in scores], ci=ci, null=null, seed=seed)
    return LayerScores(curves, provenance_of_rows(reps, scores=list(scores), ci=ci, null=null, seed=seed))
