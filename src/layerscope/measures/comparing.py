"""`ls.compare`: a measure over all pairs of layers of one or several models."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any, overload

import numpy as np
import torch
from torch import Tensor

from layerscope.errors import InputError, log
from layerscope.extract.reading import Reading
from layerscope.extract.representations import Representations
from layerscope.extract.run import examples_of, extract
from layerscope.extract.streaming import Batch, Streamer
from layerscope.measures.linear import Side, _scaled, side_from
from layerscope.measures.moments import Moments, Pair
from layerscope.measures.registry import Measure, Undefined, measure
from layerscope.measures.similarity import Axis, Similarity
from layerscope.models import Model, load
from layerscope.version import __version__

_BLOCK = 4096  # rows fed to the moments at a time from stored representations


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
    **options: Any,
) -> Similarity | dict[str, Similarity]:
    """Every layer of `a` against every layer of `b` (of `a` itself if there is no `b`) under one or several measures.

    `a` and `b` are representations, or models with a `task`: those stream, both models forward on the same batches,
    and only statistics are kept (measures that need the rows themselves read them from the store). A list of more than
    two gives all pairs as one block matrix. Several measures share the pass. `options` go to the measures that have
    them. `names` are the models' names in labels and figures.
    """
    many = [measure] if isinstance(measure, str) else list(measure)
    wanted = _measures(many, options)
    groups = _Groups(a, b)
    reading = {"pool": pool, "max_length": max_length, "final_norm": final_norm}
    if all(isinstance(source, Representations) for source in groups.sources):
        if task is not None:
            raise InputError("A task was given together with representations, which have theirs already.")
        work: _Work = _Stored(groups, names)
    else:
        work = _Streamed(groups, names, task, split, limit, reading)
    found = {m.name: _similarity(m, work, options) for m in work.prepare(wanted)}
    return found[many[0]] if isinstance(measure, str) else found


def _measures(names: Sequence[str], options: dict[str, Any]) -> list[Measure]:
    found = [measure(name) for name in names]
    for option in options:
        if not any(option in m.options() for m in found):
            found[0].check_options({option: None})
    return found


class _Groups:
    """Which sources stand along the rows and along the columns."""

    def __init__(self, a: Any, b: Any) -> None:
        rows = list(a) if isinstance(a, (list, tuple)) else [a]
        columns = rows if b is None else (list(b) if isinstance(b, (list, tuple)) else [b])
        if not rows or not columns:
            raise InputError("There is nothing to compare: an empty list was given.")
        self.square = b is None
        self.sources = rows if self.square else rows + columns
        self.row_sources = list(range(len(rows)))
        self.column_sources = self.row_sources if self.square else list(range(len(rows), len(rows) + len(columns)))


class _Work:
    """Views (a layer of a source each), and how to get their moments or their rows."""

    groups: _Groups
    labels: list[str]  # a name a source
    layers: list[list[tuple[int, str]]]  # per source its layers and their names
    n: int
    provenance: dict[str, Any]

    def __init__(self) -> None:
        self.views = [(s, layer) for s, layers in enumerate(self.layers) for layer, _ in layers]
        index = {view: k for k, view in enumerate(self.views)}
        self.row_views = [index[s, layer] for s in self.groups.row_sources for layer, _ in self.layers[s]]
        self.column_views = [index[s, layer] for s in self.groups.column_sources for layer, _ in self.layers[s]]
        self._sides: dict[tuple[int, bool], Side] = {}
        self.moments: Moments | None = None

    def prepare(self, wanted: list[Measure]) -> list[Measure]:
        """Do the passes that the measures need."""
        if any(m.needs == "moments" for m in wanted):
            self.moments = self.collect(
                pairs=sorted({(min(i, j), max(i, j)) for i in self.row_views for j in self.column_views}),
                exact=any(m.inverts for m in wanted),
                debiased=any(m.by_rows for m in wanted),
            )
        return wanted

    def collect(self, pairs: list[Pair], exact: bool, debiased: bool) -> Moments:
        raise InputError("This kind of source has no moments.")

    def rows(self, view: int) -> Tensor:
        raise InputError("This kind of source has no rows.")

    def axis(self, sources: Iterable[int]) -> Axis:
        pairs = [(self.labels[s], name) for s in sources for _, name in self.layers[s]]
        return Axis(tuple(m for m, _ in pairs), tuple(layer for _, layer in pairs))

    def side(self, view: int, standardize: bool) -> Side:
        """A layer's factors, made once for all pairs."""
        assert self.moments is not None
        if (view, standardize) not in self._sides:
            side = side_from(self.moments, view)
            self._sides[view, standardize] = side.standardized() if standardize else side
        return self._sides[view, standardize]


class _Stored(_Work):
    """Representations that are already there."""

    def __init__(self, groups: _Groups, names: Sequence[str] | None) -> None:
        self.groups = groups
        self.reps: list[Representations] = groups.sources
        for other in self.reps[1:]:
            self.reps[0].rows.require_same(other.rows)
        found = [str(reps.info.get("model", f"set {k + 1}")) for k, reps in enumerate(self.reps)]
        self.labels = _named(found, names)
        self.layers = [list(zip(reps.layers, reps.names, strict=True)) for reps in self.reps]
        self.n = len(self.reps[0])
        rows = self.reps[0].rows
        self.provenance = {"task": rows.task, "split": rows.split, "models": self.labels}
        super().__init__()

    def rows(self, view: int) -> Tensor:
        source, layer = self.views[view]
        return self.reps[source][layer]

    def collect(self, pairs: list[Pair], exact: bool, debiased: bool) -> Moments:
        states = [self.rows(view) for view in range(len(self.views))]
        moments = Moments([s.shape[1] for s in states], pairs=pairs, exact=exact, debiased=debiased, block=_BLOCK)
        for start in range(0, self.n, _BLOCK):
            moments.update([s[start : start + _BLOCK] for s in states])
        return moments


class _Streamed(_Work):
    """Models over a task: statistics by one pass, rows (if a measure needs them) from the store."""

    def __init__(
        self,
        groups: _Groups,
        names: Sequence[str] | None,
        task: Any,
        split: str | None,
        limit: int | None,
        reading: dict[str, Any],
    ) -> None:
        if task is None:
            raise InputError("Models are compared over texts: name a task, as in compare('model', task='sst2').")
        if any(isinstance(source, Representations) for source in groups.sources):
            raise InputError("Models and representations cannot be mixed; extract the models' representations first.")
        self.groups = groups
        self.models: list[Model] = [load(source) for source in groups.sources]
        self.examples = examples_of(task, split, limit)
        self.reading = reading
        self._task, self._split, self._limit = task, split, limit
        self.labels = _named(
            [
                m.name if not isinstance(s, (str, Path)) else str(s)
                for m, s in zip(self.models, groups.sources, strict=True)
            ],
            names,
        )
        self.layers = [[(layer, str(layer)) for layer in range(m.depth + 1)] for m in self.models]
        self.n = 0
        self.provenance = {"task": self.examples.task, "split": self.examples.split, "models": self.labels, **reading}
        self._reps: list[Representations] | None = None
        super().__init__()

    def collect(self, pairs: list[Pair], exact: bool, debiased: bool) -> Moments:
        widths = [self.models[source].width for source, _ in self.views]
        device = self.models[0].device
        moments = Moments(widths, pairs=pairs, exact=exact, debiased=debiased, device=device)
        feed = _Feed(moments, self.views)
        streamer = Streamer(self.models, None, Reading(**self.reading))
        streamer.feed(self.examples, [feed], " + ".join(self.labels))
        self.n = feed.rows
        return moments

    def rows(self, view: int) -> Tensor:
        if self._reps is None:
            options = {"split": self._split, "limit": self._limit, **self.reading}
            self._reps = Representations.common(*(extract(m, self._task, **options) for m in self.models))
            self.n = len(self._reps[0])
        source, layer = self.views[view]
        return self._reps[source][layer]


class _Feed:
    """A consumer that turns batches of several models into rows of views."""

    def __init__(self, moments: Moments, views: Sequence[tuple[int, int]]) -> None:
        self.moments, self.views, self.rows = moments, views, 0

    def update(self, batch: Batch) -> None:
        self.rows += len(batch.rows)
        self.moments.update([batch.states[source][layer] for source, layer in self.views])


def _named(found: list[str], names: Sequence[str] | None) -> list[str]:
    """The sources' names, told apart where two are the same."""
    if names is not None:
        if len(names) != len(found):
            raise InputError(f"{len(names)} names were given for {len(found)} models.")
        return list(names)
    return [f"{name} ({found[: k + 1].count(name)})" if found.count(name) > 1 else name for k, name in enumerate(found)]


def _similarity(m: Measure, work: _Work, options: dict[str, Any]) -> Similarity:
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


def _by_moments(m: Measure, work: _Work, options: dict[str, Any]) -> Any:
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
            _, _, cross = _scaled(work.side(i, False), work.side(j, False), cross, True)
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


def _by_rows(m: Measure, work: _Work, options: dict[str, Any]) -> Any:
    def value(i: int, j: int) -> float:
        return m.value(work.rows(i).double(), work.rows(j).double(), **options)

    return value
