"""Which way to take: moments, or kept rows and products or Gram matrices of them; where they lie, and how many passes.

A route is chosen before anything runs, by a pure function of the shape of the work and of what the machine has. The
forward pass of a large model costs far more than any product, so that it is run once if that is possible at all.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Literal

from layerscope.similarity.moments import BLOCK, Pair, product_bytes

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
class Facts:
    """The shape of the work."""

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
    processes: int = 1

    @property
    def own_rows(self) -> int:
        """The rows of one process."""
        return -(-self.rows // self.processes)

    @property
    def row_bytes(self) -> int:
        """What the rows of one process take."""
        return self.own_rows * sum(self.widths) * self.number

    @property
    def copies(self) -> int:
        """How many sets of products lie beside one another: one, or each group's, the whole and what is left."""
        return self.groups + 2 if self.groups else 1

    def cost(self, pairs: Sequence[Pair]) -> int:
        """Bytes of the products of some pairs of views; each view with itself is always kept."""
        views = {view for pair in pairs for view in pair}
        return self.copies * product_bytes(self.widths, {*pairs, *((view, view) for view in views)})

    def buffer(self, room: int) -> int:
        """Bytes of the rows that wait for a product of all views."""
        count = max(1, self.groups)
        return 8 * sum(self.widths) * count * block_rows(self.widths, -(-self.own_rows // count), room / count)

    @property
    def forward(self) -> float:
        """Operations of one pass over the texts, of one process."""
        return 2.0 * self.parameters * self.tokens / self.processes

    @property
    def products(self) -> float:
        """Operations of all d x d products, of one process."""
        return 2.0 * self.own_rows * sum(self.widths[i] * self.widths[j] for i, j in self.pairs)

    @property
    def grams(self) -> float:
        """Operations of the n x n Gram matrices and of their inner products."""
        return 2.0 * gram_operations(self.rows, self.widths, len(self.pairs)) * (self.groups + 1)

    @property
    def gram_bytes(self) -> int:
        return 8 * len(self.widths) * self.rows**2


@dataclass(frozen=True)
class Resources:
    """What may be used: bytes, and operations per second."""

    host: int
    device: int | None  # None where the models run on the host
    disk: int
    forward: float = 1e11
    products: float = 1e11

    @property
    def work(self) -> int:
        """Bytes where products are made."""
        return self.host if self.device is None else self.device


@dataclass(frozen=True)
class Route:
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
        kept = "moments" if self.keep == "moments" else "rows"
        grams = ", n x n Gram matrices of them" if self.grams else ""
        return (
            f"{kept} {PLACES[self.where]} ({spelled(self.size)}){grams}, {counted(self.passes)} over the texts; about "
            f"{self.forward_seconds:.2g} s in the models and {self.other_seconds:.2g} s beside them"
        )


def choose_route(facts: Facts, resources: Resources, measured: Callable[[], float] | None = None) -> Route:
    """The cheapest way that fits into memory with one pass over the texts.

    Where none does, rows lie in the store, unless going over the texts again takes less time than that: `measured` then
    gives the seconds of one pass, which are otherwise estimated.
    """
    if facts.row_measures:
        candidates = _rows(facts, resources)
        return min(candidates, key=lambda route: _judged(facts, route)) if candidates else _store(facts, resources)
    candidates = [*_moments(facts, resources), *_rows(facts, resources)]
    if not candidates or all(route.where == "store" for route in candidates):
        seconds = None if measured is None else measured()
        candidates = [replace(route, forward_seconds=seconds or route.forward_seconds) for route in candidates]
        candidates.append(_several_passes(facts, resources, seconds, candidates))
    return min(candidates, key=lambda route: _judged(facts, route))


def _judged(facts: Facts, route: Route) -> float:
    """Seconds, with those that it takes to get the memory: products of rows need theirs beside the rows."""
    beside = min(route.room, facts.cost(facts.pairs)) if route.keep == "rows" and not route.grams else 0
    return route.forward_seconds + route.other_seconds + (route.size + beside) / _PAGES


def _moments(facts: Facts, resources: Resources) -> list[Route]:
    size, room = facts.cost(facts.pairs), resources.work
    if size + facts.buffer(room) > room:
        return []
    where: Place = "host" if resources.device is None else "device"
    seconds = facts.products / resources.products
    return [Route("moments", where, size, room, 1, False, _forward(facts, resources), seconds)]


def _rows(facts: Facts, resources: Resources) -> list[Route]:
    """Rows wherever they fit. Those that measures ask for lie in the store, where the next measure finds them."""
    store = [_store(facts, resources)] if _stored_bytes(facts) <= resources.disk else []
    if facts.row_measures and (store or facts.processes > 1):
        return store
    routes = []
    if resources.device is not None and facts.row_bytes <= _FOR_ROWS * resources.device:
        routes.append(_route_of_rows(facts, resources, "device", resources.device - facts.row_bytes, 0.0))
    if facts.row_bytes <= _FOR_ROWS * resources.host:
        apart = resources.device is not None
        room = resources.work if apart else resources.host - facts.row_bytes
        routes.append(_route_of_rows(facts, resources, "host", room, 2 * facts.row_bytes / _LINK if apart else 0.0))
    return routes or store


def _stored_bytes(facts: Facts) -> int:
    return facts.rows * sum(facts.widths) * _STORED


def _store(facts: Facts, resources: Resources) -> Route:
    size = _stored_bytes(facts)
    return _route_of_rows(facts, resources, "store", resources.work, size / _DISK)


def _route_of_rows(facts: Facts, resources: Resources, where: Place, room: int, moving: float) -> Route:
    size = facts.row_bytes if where != "store" else _stored_bytes(facts)
    all_here = where == "store" or facts.processes == 1
    grams = facts.dual and all_here and facts.gram_bytes <= room and facts.grams < facts.products
    room = min(room, max(_TILE, facts.gram_bytes if grams else 0))
    operations = (facts.grams if grams else 0.0) + (facts.products if facts.primal or not grams else 0.0)
    seconds = moving + operations / resources.products
    return Route("rows", where, size, room, 1, grams, _forward(facts, resources), seconds)


def _several_passes(facts: Facts, resources: Resources, seconds: float | None, instead: Sequence[Route]) -> Route:
    """Moments of some pairs in each pass; `seconds` are those of one pass, and `instead` is what else could be done."""
    parts = tiles(facts.pairs, facts.cost, resources.work)
    needs = {"products of all pairs of layers": facts.cost(facts.pairs), "rows": facts.row_bytes}
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
    others = facts.products / resources.products
    forward = (_forward(facts, resources) if seconds is None else seconds) * len(parts)
    size = max(map(facts.cost, parts))
    return Route("moments", where, size, resources.work, len(parts), False, forward, others, reason)


def _forward(facts: Facts, resources: Resources) -> float:
    return facts.forward / resources.forward


def gram_operations(rows: int, widths: Sequence[int], pairs: int) -> int:
    """Multiply-adds of Gram matrices: n^2 d per view, and n^2 per pair."""
    return rows**2 * (sum(widths) + pairs)


def block_rows(widths: Sequence[int], rows: int, room: float) -> int:
    """How many rows of all views go into one product, so that those that wait take a small part of the room."""
    most = int(room / _BUFFERS / (8 * sum(widths)))
    return max(1, min(BLOCK, max(most, _LEAST_BLOCK), rows))


def tiles(pairs: Sequence[Pair], cost: Callable[[Sequence[Pair]], int], budget: float) -> list[list[Pair]]:
    """The pairs in as few tiles as fit: the views in g groups of neighbours, one tile for every two groups.

    A tile of one pair is the smallest there is, even if that is above the budget.
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
    """The views of some pairs."""
    return sorted({view for pair in pairs for view in pair})


def spelled(size: float) -> str:
    """Bytes for people."""
    for unit, factor in (("GiB", GIB), ("MiB", 1 << 20)):
        if size >= factor:
            return f"{size / factor:.3g} {unit}"
    return f"{size / 1024:.3g} KiB"


def counted(passes: int) -> str:
    return "1 pass" if passes == 1 else f"{passes} passes"
