"""`ls.compare`: a measure over all pairs of layers of one or several models."""

from __future__ import annotations

import math
from collections.abc import Sequence
from functools import partial
from typing import Any, overload

import numpy as np
import torch

from layerscope.errors import InputError, log
from layerscope.extract.representations import Representations
from layerscope.measures.dual import dual_is_cheaper, gram_cka, gram_products
from layerscope.measures.moments import Moments, Pair
from layerscope.measures.registry import Measure, Undefined, measure
from layerscope.measures.sides import scaled, side_from
from layerscope.measures.similarity import Similarity
from layerscope.measures.uncertainty import add_baseline, add_intervals
from layerscope.measures.work import Groups, Stored, Streamed, Work
from layerscope.version import __version__


@overload
def compare(a: Any, b: Any = None, *, measure: str = "cka", **options: Any) -> Similarity: ...
@overload
def compare(a: Any, b: Any = None, *, measure: Sequence[str], **options: Any) -> dict[str, Similarity]: ...
def compare(
    a: Any,
    b: Any = None,
    *,
    measure: str | Sequence[str] = "cka",
    task: Any = None,
    split: str | None = None,
    pool: str = "cls",
    limit: int | None = None,
    max_length: int = 128,
    final_norm: bool = False,
    names: Sequence[str] | None = None,
    ci: float | None = None,
    baseline: bool = False,
    seed: int = 0,
    **options: Any,
) -> Similarity | dict[str, Similarity]:
    """Every layer of `a` against every layer of `b` (of `a` itself if there is no `b`) under one or several measures.

    `a` and `b` are representations, or models with a `task`: those stream, both models forward on the same batches,
    and only statistics are kept (measures that need the rows themselves read them from the store). A list of more than
    two gives all pairs as one block matrix. Several measures share the pass. `options` go to the measures that have
    them. `names` are the models' names in labels and figures.

    `ci=0.95` adds an interval to every value (`low`, `high`) by a delete-a-group jackknife over texts; `baseline=True`
    adds what shuffled rows give, which at small n can be high. Both need the rows: models are then extracted first.
    """
    many = [measure] if isinstance(measure, str) else list(measure)
    wanted = _measures(many, options)
    groups = Groups(a, b)
    reading = {"pool": pool, "max_length": max_length, "final_norm": final_norm}
    work: Work
    if all(isinstance(source, Representations) for source in groups.sources):
        if task is not None:
            raise InputError("A task was given together with representations, which have theirs already.")
        work = Stored(groups, names)
    else:
        work = Streamed(groups, names, task, split, limit, reading)
        if ci is not None or baseline:
            work = Stored(groups.of(work.representations()), work.labels)
    found = _all(wanted, work, options)
    if isinstance(work, Stored):
        _add_uncertainty(found, work, wanted, options, ci, baseline, seed)
    return found[many[0]] if isinstance(measure, str) else found


def _all(wanted: list[Measure], work: Work, options: dict[str, Any]) -> dict[str, Similarity]:
    only_cka = [m.name for m in wanted if m.needs == "moments"] == ["cka"]
    if only_cka and isinstance(work, Stored) and not options.get("standardize") and dual_is_cheaper(work):
        log.info("CKA by the n x n side: fewer rows than features make it cheaper than the d x d side.")
        work.gram = gram_products(work)
    else:
        work.prepare(wanted)
    return {m.name: _similarity(m, work, options) for m in wanted}


def _add_uncertainty(
    found: dict[str, Similarity],
    work: Stored,
    wanted: list[Measure],
    options: dict[str, Any],
    ci: float | None,
    baseline: bool,
    seed: int,
) -> None:
    groups = work.groups

    def again(sources: list[Representations]) -> dict[str, Similarity]:
        return _all(wanted, Stored(groups.of(sources), None), options)

    def against(rows: list[Representations], columns: list[Representations]) -> dict[str, Similarity]:
        return _all(wanted, Stored(Groups(rows, columns), None), options)

    if ci is not None:
        add_intervals(found, work.reps, again, ci, seed)
    if baseline:
        rows, columns = ([work.reps[s] for s in side] for side in (groups.row_sources, groups.column_sources))
        add_baseline(found, rows, columns, against, seed)


def _measures(names: Sequence[str], options: dict[str, Any]) -> list[Measure]:
    found = [measure(name) for name in names]
    for option in options:
        if not any(option in m.options() for m in found):
            found[0].check_options({option: None})
    return found


def _similarity(m: Measure, work: Work, options: dict[str, Any]) -> Similarity:
    own = {name: value for name, value in options.items() if name in m.options()}
    value = _by_moments(m, work, own) if m.needs == "moments" else _by_rows(m, work, own)
    shape = len(work.row_views), len(work.column_views)
    values = np.full(shape, math.nan)
    reasons: dict[tuple[int, int], str] = {}
    known: dict[Pair, float | str] = {}
    for a, i in enumerate(work.row_views):
        for b, j in enumerate(work.column_views):
            if (i, j) not in known:
                try:
                    known[i, j] = value(i, j)
                except Undefined as reason:
                    known[i, j] = str(reason)
                if m.symmetric:
                    known[j, i] = known[i, j]
            result = known[i, j]
            if isinstance(result, str):
                reasons[a, b] = result
            else:
                values[a, b] = result
    if reasons:
        log.info("%s is undefined for %d pairs of layers: %s.", m.name, len(reasons), next(iter(reasons.values())))
    provenance = {**work.provenance, "layerscope": __version__, "torch": torch.__version__}
    rows, columns = work.axis(work.groups.row_sources), work.axis(work.groups.column_sources)
    return Similarity(values, rows, columns, m.name, own, work.n, reasons, (m.low, m.high), provenance)


def _by_moments(m: Measure, work: Work, options: dict[str, Any]) -> Any:
    if work.gram is not None:
        return partial(gram_cka, work)
    moments = work.moments
    assert moments is not None
    if m.by_rows:
        return lambda i, j: _debiased(moments, i, j)
    standardize = options.get("standardize", False)
    own = {name: value for name, value in options.items() if name != "standardize"}

    def value(i: int, j: int) -> float:
        if moments.n < 2:
            raise Undefined("one row has no variation")
        x, y = work.side(i, standardize), work.side(j, standardize)
        cross = moments.scatter(i, j)
        if standardize:
            _, _, cross = scaled(work.side(i, False), work.side(j, False), cross, True)
        return m.compute(x, y, cross, **own)

    return value


def _debiased(moments: Moments, i: int, j: int) -> float:
    if moments.n < 4:
        raise Undefined(f"unbiased HSIC needs at least 4 rows and there are {moments.n}")
    for view in (i, j):
        side_from(moments, view).trace  # noqa: B018  (raises if nothing varies)
    own = moments.hsic(i, i), moments.hsic(j, j)
    if min(own) <= 0:
        raise Undefined("the unbiased variance of a side is not above 0")
    return moments.hsic(i, j) / (own[0] * own[1]) ** 0.5


def _by_rows(m: Measure, work: Work, options: dict[str, Any]) -> Any:
    def value(i: int, j: int) -> float:
        return m.value(work.rows(i).double(), work.rows(j).double(), **options)

    return value
