"""The plan of a comparison: which pairs of layers are computed, from what is kept of the texts, in how many passes.

What is kept is either the moments of the layers, or their rows, from which products or Gram matrices are made later.
`choose_plan` weighs these by the shape of the work (`Workload`) and by what the machine has (`Resources`), before
anything runs. The forward pass of a large model costs far more than any product, so it is run once if that is possible
at all. `Views` and `Plan` say what is computed once that is decided: the layers and their pairs, the measures, and the
tiles of pairs whose products fit into memory.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, Literal

import numpy as np
from torch import Tensor

from layerscope.errors import InputError, log
from layerscope.extraction.representations import Representations
from layerscope.similarity.moments import BLOCK, Pair, product_bytes
from layerscope.similarity.registry import Measure, measure
from layerscope.similarity.result import Axis

GIB = 1 << 30
Place = Literal["device", "host", "store"]
PLACES = {"device": "on the device", "host": "in the host's memory", "store": "in the store, memory-mapped"}

_FOR_ROWS = 0.75  # of a place's memory; the rest is for products
_TILE = 4 * GIB  # products of rows are made in tiles, and larger ones are no faster
_LEAST_BLOCK = 256  # rows per product
_BUFFERS = 8  # the waiting rows of a product may take an eighth of the room
_STORED = 4  # bytes of a number in the store
_PAGES = 4e9  # bytes per second: writing memory for the first time
_LINK = 5e9  # from device to host, and back
_DISK = 5e8
LEAST_FOR_GRAMS = 4  # rows: unbiased HSIC has no value below, and says so on the other side


@dataclass(frozen=True)
class Workload:
    """The shape of a comparison, as far as it is known before anything runs."""

    rows: int  # of all processes together, perhaps an estimate
    widths: tuple[int, ...]  # of every view (a layer of a model)
    pairs: tuple[Pair, ...]  # of views, the smaller first
    number: int = 4  # bytes of a number of a row in the model's own float type
    parameters: int = 0  # that a token passes, of all models together
    tokens: int = 0  # of all texts
    groups: int = 0  # of texts, for intervals
    primal: bool = True  # whether a measure needs d x d products
    dual: bool = False  # whether a measure can be computed from n x n Gram matrices
    row_measures: bool = False  # whether the rows themselves are needed: measures of rows, shuffles
    second_look: bool = False  # whether moments need a look at rows that are kept, wherever they lie
    processes: int = 1

    @property
    def rows_per_process(self) -> int:
        """The rows that one process has, rounded up."""
        return -(-self.rows // self.processes)

    @property
    def row_bytes(self) -> int:
        """Bytes of the rows of one process in memory."""
        return self.rows_per_process * sum(self.widths) * self.number

    @property
    def stored_bytes(self) -> int:
        """Bytes of the rows of all processes in the store."""
        return self.rows * sum(self.widths) * _STORED

    @property
    def copies(self) -> int:
        """How many sets of products there are at once: one, or with groups those of each, of all and of the rest."""
        return self.groups + 2 if self.groups else 1

    def cost(self, pairs: Sequence[Pair]) -> int:
        """Bytes of the products of some pairs of views; each view with itself is always kept."""
        views = {view for pair in pairs for view in pair}
        return self.copies * product_bytes(self.widths, {*pairs, *((view, view) for view in views)})

    def buffer(self, room: int) -> int:
        """Bytes of the rows that wait for a product of all views."""
        count = max(1, self.groups)
        return 8 * sum(self.widths) * count * block_rows(self.widths, -(-self.rows_per_process // count), room / count)

    @property
    def forward(self) -> float:
        """Operations of one pass over the texts, of one process."""
        return 2.0 * self.parameters * self.tokens / self.processes

    @property
    def products(self) -> float:
        """Operations of all d x d products, of one process."""
        return 2.0 * self.rows_per_process * sum(self.widths[i] * self.widths[j] for i, j in self.pairs)

    @property
    def grams(self) -> float:
        """Operations of the n x n Gram matrices and of their inner products."""
        return 2.0 * gram_operations(self.rows, self.widths, len(self.pairs)) * (self.groups + 1)

    @property
    def gram_bytes(self) -> int:
        """Bytes of the Gram matrices of all views."""
        return 8 * len(self.widths) * self.rows**2


@dataclass(frozen=True)
class Resources:
    """What a comparison may use of the machine: bytes, and operations per second."""

    host: int
    device: int | None  # None where the models run on the host
    disk: int
    forward: float = 1e11
    products: float = 1e11

    @property
    def work(self) -> int:
        """Bytes of memory where products are made: on the device if there is one."""
        return self.host if self.device is None else self.device


@dataclass(frozen=True)
class ExecutionPlan:
    """What is kept of the texts, where it lies, and what that is expected to cost."""

    keep: Literal["moments", "rows"]
    where: Place
    size: int  # bytes that are kept
    room: int  # bytes for products and Gram matrices
    passes: int  # over the texts
    grams: bool  # whether what can be computed from Gram matrices is
    forward_seconds: float
    other_seconds: float
    reason: str = ""  # why there are several passes

    def __str__(self) -> str:
        grams = ", n x n Gram matrices of them" if self.grams else ""
        return (
            f"{self.keep} {PLACES[self.where]} ({spelled(self.size)}){grams}, {counted(self.passes)} over the texts; "
            f"about {self.forward_seconds:.2g} s in the models and {self.other_seconds:.2g} s beside them"
        )


def choose_plan(work: Workload, resources: Resources, time_pass: Callable[[], float] | None = None) -> ExecutionPlan:
    """Choose the cheapest plan, with one pass over the texts wherever that fits into memory.

    Where it does not, rows lie in the store, unless further passes take less time than that. Only then is `time_pass`
    called, which returns the seconds of one pass; without it they are estimated.
    """
    pass_seconds = None
    if time_pass is not None and depends_on_pass_time(work, resources):
        pass_seconds = time_pass()
    return cheapest_plan(work, resources, pass_seconds)


def depends_on_pass_time(work: Workload, resources: Resources) -> bool:
    """Whether further passes are an alternative, so that the choice depends on the seconds that one takes."""
    if work.row_measures or work.second_look:
        return False
    return all(plan.where == "store" for plan in _one_pass_plans(work, resources))


def cheapest_plan(work: Workload, resources: Resources, pass_seconds: float | None = None) -> ExecutionPlan:
    """The plan with the fewest expected seconds; `pass_seconds` is what one pass was measured to take, if it was."""
    plans = _one_pass_plans(work, resources)
    if depends_on_pass_time(work, resources):
        plans = [replace(plan, forward_seconds=pass_seconds or plan.forward_seconds) for plan in plans]
        plans.append(_several_passes(work, resources, pass_seconds, plans))

    def seconds(plan: ExecutionPlan) -> float:
        # Memory that is written for the first time costs time too, and products of rows need theirs beside the rows.
        products = min(plan.room, work.cost(work.pairs)) if plan.keep == "rows" and not plan.grams else 0
        return plan.forward_seconds + plan.other_seconds + (plan.size + products) / _PAGES

    return min(plans, key=seconds)


def _one_pass_plans(work: Workload, resources: Resources) -> list[ExecutionPlan]:
    """Every plan with a single pass that fits; where rows are needed, at least the store, whatever its size."""
    if work.row_measures or work.second_look:
        return _row_plans(work, resources) or [_stored_rows(work, resources)]
    plans = _row_plans(work, resources)
    size, room = work.cost(work.pairs), resources.work
    if size + work.buffer(room) <= room:
        where: Place = "host" if resources.device is None else "device"
        forward, others = _forward_seconds(work, resources), work.products / resources.products
        plans.insert(0, ExecutionPlan("moments", where, size, room, 1, False, forward, others))
    return plans


def _row_plans(work: Workload, resources: Resources) -> list[ExecutionPlan]:
    """Plans that keep rows, wherever these fit; the store counts only where no memory has room for them."""
    store = [_stored_rows(work, resources)] if work.stored_bytes <= resources.disk else []
    # Rows that a measure asks for lie in the store, where the next measure finds them.
    if work.row_measures and (store or work.processes > 1):
        return store
    plans = []
    if resources.device is not None and work.row_bytes <= _FOR_ROWS * resources.device:
        plans.append(_kept_rows(work, resources, "device", resources.device - work.row_bytes, 0.0))
    if work.row_bytes <= _FOR_ROWS * resources.host:
        apart = resources.device is not None
        room = resources.work if apart else resources.host - work.row_bytes
        plans.append(_kept_rows(work, resources, "host", room, 2 * work.row_bytes / _LINK if apart else 0.0))
    return plans or store


def _stored_rows(work: Workload, resources: Resources) -> ExecutionPlan:
    """The plan with rows in the store."""
    return _kept_rows(work, resources, "store", resources.work, work.stored_bytes / _DISK)


def _kept_rows(work: Workload, resources: Resources, where: Place, room: int, moving: float) -> ExecutionPlan:
    """The plan with rows in one place, `room` bytes for products, and `moving` seconds to write and read the rows."""
    size = work.row_bytes if where != "store" else work.stored_bytes
    # A Gram matrix is of all rows, and in memory each process has only those of its own texts.
    all_here = where == "store" or work.processes == 1
    grams = work.dual and all_here and work.gram_bytes <= room and work.grams < work.products
    room = min(room, max(_TILE, work.gram_bytes if grams else 0))
    operations = (work.grams if grams else 0.0) + (work.products if work.primal or not grams else 0.0)
    seconds = moving + operations / resources.products
    return ExecutionPlan("rows", where, size, room, 1, grams, _forward_seconds(work, resources), seconds)


def _several_passes(
    work: Workload, resources: Resources, pass_seconds: float | None, instead: Sequence[ExecutionPlan]
) -> ExecutionPlan:
    """The plan that makes the moments of some pairs in each pass; `instead` are the plans that it competes with."""
    parts = tiles(work.pairs, work.cost, resources.work)
    needs = {"products of all pairs of layers": work.cost(work.pairs), "rows": work.row_bytes}
    has = {"host": resources.host, "device": resources.device, "disk": resources.disk}
    ways = "fewer texts (limit), more memory (memory) or a store with more room (LAYERSCOPE_HOME) make it one pass"
    if instead:
        ways = "each takes less time than to write the rows and read them again; more memory (memory) makes it one pass"
    reason = (
        f"{' and '.join(f'the {what} take {spelled(size)}' for what, size in needs.items())}, and there are "
        f"{', '.join(f'{spelled(size)} for them on the {place}' for place, size in has.items() if size is not None)}; "
        f"{ways}"
    )
    where: Place = "host" if resources.device is None else "device"
    others = work.products / resources.products
    forward = (_forward_seconds(work, resources) if pass_seconds is None else pass_seconds) * len(parts)
    size = max(map(work.cost, parts))
    return ExecutionPlan("moments", where, size, resources.work, len(parts), False, forward, others, reason)


def _forward_seconds(work: Workload, resources: Resources) -> float:
    """The estimated seconds of one pass of the models."""
    return work.forward / resources.forward


def gram_operations(rows: int, widths: Sequence[int], pairs: int) -> int:
    """Multiply-adds of Gram matrices: n^2 d per view, and n^2 per pair."""
    return rows**2 * (sum(widths) + pairs)


def block_rows(widths: Sequence[int], rows: int, room: float) -> int:
    """How many rows of all views go into one product, so that rows that wait take a small part of the room."""
    most = int(room / _BUFFERS / (8 * sum(widths)))
    return max(1, min(BLOCK, max(most, _LEAST_BLOCK), rows))


def tiles(pairs: Sequence[Pair], cost: Callable[[Sequence[Pair]], int], budget: float) -> list[list[Pair]]:
    """Split the pairs into as few tiles as fit: the views in g groups of neighbours, one tile for every two groups.

    A tile has at least one pair, even where that alone is above the budget.
    """
    views = views_of(pairs)
    count = 0
    tiled: list[list[Pair]] = [[]]
    while count < len(views):
        count += 1
        group = {view: k * count // len(views) for k, view in enumerate(views)}
        parts: dict[Pair, list[Pair]] = {}
        for i, j in pairs:
            a, b = sorted((group[i], group[j]))
            parts.setdefault((a, b), []).append((i, j))
        tiled = [parts[key] for key in sorted(parts)]
        if max(map(cost, tiled)) <= budget:
            break
    return tiled


def views_of(pairs: Sequence[Pair]) -> list[int]:
    """The views that occur in some pairs, in order."""
    return sorted({view for pair in pairs for view in pair})


def spelled(size: float) -> str:
    """A number of bytes in words, such as `1.5 GiB`."""
    for unit, factor in (("GiB", GIB), ("MiB", 1 << 20)):
        if size >= factor:
            return f"{size / factor:.3g} {unit}"
    return f"{size / 1024:.3g} KiB"


def counted(passes: int) -> str:
    """A number of passes in words."""
    return "1 pass" if passes == 1 else f"{passes} passes"


MEMORY = 4.0  # GiB, for products or factored layers, where a plan is made without looking at the machine


class Groups:
    """The sources of a comparison, and which of them stand along its rows and along its columns."""

    def __init__(self, a: Any, b: Any) -> None:
        rows, columns = _sources(a), [] if b is None else _sources(b)
        if not rows or (b is not None and not columns):
            raise InputError("There is nothing to compare: an empty list was given.")
        self.square = b is None
        self.sources = rows + columns
        self.row_sources = list(range(len(rows)))
        self.column_sources = self.row_sources if self.square else list(range(len(rows), len(rows) + len(columns)))

    def with_sources(self, sources: list[Any]) -> Groups:
        """The same arrangement with other sources in the place of these."""
        count = len(self.row_sources)
        return Groups(sources[:count], None if self.square else sources[count:])


def _sources(argument: Any) -> list[Any]:
    """The sources that an argument of `compare` names, as a flat list.

    An array becomes representations of one layer, a list of arrays the layers of one source.
    """
    if _is_array(argument):
        return [Representations.from_arrays([argument])]
    if isinstance(argument, (list, tuple)):
        if argument and all(map(_is_array, argument)):
            return [Representations.from_arrays(argument)]
        return [
            source for part in argument for source in (_sources(part) if isinstance(part, (list, tuple)) else [part])
        ]
    return [argument]


def _is_array(argument: Any) -> bool:
    """Whether an argument is an array, or a table of pandas or polars."""
    return isinstance(argument, (np.ndarray, Tensor)) or hasattr(argument, "to_numpy")


def source_names(defaults: list[str], names: Sequence[str] | None) -> list[str]:
    """The sources' names, those given or else the defaults; equal ones are numbered."""
    if names is not None and len(names) != len(defaults):
        raise InputError(f"{len(names)} names were given for {len(defaults)} models.")
    used = defaults if names is None else list(map(str, names))
    return [f"{name} ({used[: k + 1].count(name)})" if used.count(name) > 1 else name for k, name in enumerate(used)]


class Views:
    """The layers that are compared, a view each, and which of them are rows and columns of the result."""

    groups: Groups
    labels: list[str]  # one name per source
    layers: list[list[tuple[int, str]]]  # per source its layers and their names
    widths: list[int]  # of every view
    n: int  # rows of each view; 0 until they are counted
    provenance: dict[str, Any]

    def __init__(self) -> None:
        self.views = [(s, layer) for s, layers in enumerate(self.layers) for layer, _ in layers]
        index = {view: k for k, view in enumerate(self.views)}
        self.row_views = [index[s, layer] for s in self.groups.row_sources for layer, _ in self.layers[s]]
        self.column_views = [index[s, layer] for s in self.groups.column_sources for layer, _ in self.layers[s]]

    @cached_property
    def pairs(self) -> list[Pair]:
        """Every pair of views that is wanted, the smaller first."""
        return sorted({(min(i, j), max(i, j)) for i in self.row_views for j in self.column_views})

    @property
    def axes(self) -> tuple[Axis, Axis]:
        """The axes of the result's rows and columns."""

        def axis(sources: Iterable[int]) -> Axis:
            entries = [(self.labels[s], layer, name) for s in sources for layer, name in self.layers[s]]
            models, layers, names = zip(*entries, strict=True)
            return Axis(models, layers, names)

        return axis(self.groups.row_sources), axis(self.groups.column_sources)


@dataclass(frozen=True)
class Plan:
    """Measures with their options over some views, within `memory` GiB of products, Gram matrices or factored layers.

    How a measure is computed never depends on the other measures: no value changes with what is asked for beside it.
    """

    measures: tuple[Measure, ...]
    options: dict[str, Any]
    memory: float = MEMORY
    groups: int = 0  # of texts, for intervals: Gram matrices are then made without each of them in turn
    single: bool = False  # float32 products for measures that bear them: where the rows, and nothing else, cost time
    split: bool = False  # products of bfloat16 parts for those: where rows come from 16-bit models and tensor cores are
    keep: Place | None = None  # where a pass over the texts leaves the models' rows; None where it leaves moments

    @property
    def row_measures(self) -> list[Measure]:
        """Measures that need the rows themselves."""
        return [m for m in self.measures if m.needs == "rows"]

    @property
    def unbiased(self) -> Plan:
        """The plan for the unbiased forms of its measures, of those that have one and no options of their own."""
        return self.subset([measure(m.unbiased) for m in self.measures if m.unbiased and not m.own(self.options)])

    @property
    def unbiased_hsic(self) -> bool:
        """Whether unbiased HSIC is needed, for a measure or, beside intervals, for its unbiased form."""
        beside = self.unbiased.measures if self.groups else ()
        return any(m.cross == "hsic" for m in (*self.measures, *beside))

    @property
    def sum_measures(self) -> list[Measure]:
        """Measures that are a mean over rows, whose sums any pass can gather beside what else it computes."""
        return [m for m in self.measures if m.needs == "sums"]

    @property
    def dual(self) -> list[Measure]:
        """Measures that can be computed from n x n Gram matrices."""
        return [m for m in self.measures if m.dual is not None and not m.own(self.options).get("standardize")]

    def gram_measures(self, views: Views, stored: bool) -> list[Measure]:
        """Measures that are computed from n x n Gram matrices: all that can be, if those are the cheaper side."""
        able = self.dual
        return able if able and stored and grams_are_cheaper(views, self.memory * GIB, self.groups + 1) else []

    def moment_measures(self, views: Views, stored: bool) -> list[Measure]:
        """Measures that are computed from moments: those that need them and are not computed from Gram matrices."""
        dual = self.gram_measures(views, stored)
        return [m for m in self.measures if m.needs == "moments" and m not in dual]

    def exact(self, measure: Measure) -> bool:
        """Whether the measure's products are made in float64."""
        return measure.exact or not (self.single or self.split)

    def subset(self, measures: Sequence[Measure]) -> Plan:
        """The same plan for some of its measures."""
        return replace(self, measures=tuple(measures))

    def passes(self, views: Views, copies: int = 1) -> list[list[Pair]]:
        """The pairs of views in tiles whose products, `copies` sets of them, fit into memory: one pass for each."""

        def cost(pairs: Sequence[Pair]) -> int:
            return copies * product_bytes(views.widths, {*pairs, *((view, view) for view in views_of(pairs))})

        parts = tiles(views.pairs, cost, self.memory * GIB)
        if len(parts) > 1:
            log.info(
                "The products of all layers take %s, and there are %s: %d passes over the rows, of at most %s each.",
                spelled(cost(views.pairs)),
                spelled(self.memory * GIB),
                len(parts),
                spelled(max(map(cost, parts))),
            )
        return parts


def grams_are_cheaper(views: Views, room: float, times: int = 1) -> bool:
    """Whether Gram matrices fit and take fewer multiply-adds, n^2 d per view and n^2 per pair, against n d^2 per pair.

    They are made so many `times`, where products are made once.
    """
    products = views.n * sum(views.widths[i] * views.widths[j] for i, j in views.pairs)
    fit = 8 * len(views.widths) * views.n**2 <= room
    dual = gram_operations(views.n, views.widths, len(views.pairs))
    return views.n >= LEAST_FOR_GRAMS and fit and times * dual < products
