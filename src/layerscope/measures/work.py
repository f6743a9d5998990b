"""What is compared: the layers of stored representations, or of models that stream over a task."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

from torch import Tensor

from layerscope.errors import InputError
from layerscope.extract.reading import Reading
from layerscope.extract.representations import Representations
from layerscope.extract.run import examples_of, extract
from layerscope.extract.streaming import Batch, Streamer
from layerscope.measures.moments import Moments, Pair
from layerscope.measures.registry import Measure
from layerscope.measures.sides import Side, side_from
from layerscope.measures.similarity import Axis
from layerscope.models import Model, load

_BLOCK = 8192  # rows fed to the moments at a time from stored representations


class Groups:
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

    def of(self, sources: list[Any]) -> Groups:
        """The same arrangement of other sources."""
        count = len(self.row_sources)
        return Groups(sources[:count], None if self.square else sources[count:])


class Work:
    """Views (a layer of a source each), and how to get their moments or their rows."""

    groups: Groups
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
        self.gram: Tensor | None = None  # (views, views) inner products of Gram matrices, where CKA comes from those

    def prepare(self, wanted: list[Measure]) -> None:
        """Do the passes that the measures need."""
        if any(m.needs == "moments" for m in wanted):
            self.moments = self.collect(
                pairs=sorted({(min(i, j), max(i, j)) for i in self.row_views for j in self.column_views}),
                exact=any(m.inverts for m in wanted),
                debiased=any(m.by_rows for m in wanted),
            )

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


class Stored(Work):
    """Representations that are already there."""

    def __init__(self, groups: Groups, names: Sequence[str] | None) -> None:
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


class Streamed(Work):
    """Models over a task: statistics by one pass, rows (if a measure needs them) from the store."""

    def __init__(
        self,
        groups: Groups,
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

    def representations(self) -> list[Representations]:
        """The models' rows, from the store, those that all of them have."""
        if self._reps is None:
            options = {"split": self._split, "limit": self._limit, **self.reading}
            self._reps = Representations.common(*(extract(m, self._task, **options) for m in self.models))
            self.n = len(self._reps[0])
        return self._reps

    def rows(self, view: int) -> Tensor:
        source, layer = self.views[view]
        return self.representations()[source][layer]


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
