"""The route of a comparison: what is known of the work before it begins, the choice, and what it took."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace

import numpy as np
import torch

from layerscope.errors import log
from layerscope.extraction.costs import block_parameters
from layerscope.extraction.encode import encode, texts_of
from layerscope.extraction.reading import Reading
from layerscope.extraction.streaming import Streamer
from layerscope.similarity.arriving import Arrival, Streamed
from layerscope.similarity.keeping import own_type
from layerscope.similarity.planning import Plan
from layerscope.similarity.precision import float64_is_free
from layerscope.similarity.resources import peak_of, resources_for
from layerscope.similarity.routes import GIB, Facts, Route, choose_route, counted, spelled
from layerscope.team import Team

_SAMPLE = 64  # texts that are tokenised to see how long they are
_BATCHES = 2  # in which a pass is timed
_WORTH = 50  # times as many must there be, so that the timing costs little


def decide(plan: Plan, arrival: Arrival, *, shuffled: bool, memory: float | None) -> tuple[Plan, Arrival]:
    """The plan with the memory that it may use, and where its rows or moments come from.

    Where rows are kept, the pass over the texts is made here.
    """
    team = Team.current()
    if not isinstance(arrival, Streamed):
        return replace(plan, memory=resources_for(arrival.device, memory).host / GIB), arrival
    facts = facts_of(plan, arrival, shuffled=shuffled, processes=team.size)
    dtype = arrival.models[0].network.dtype
    available = team.tell(resources_for(arrival.device, memory, processes=team.size, dtype=dtype))
    route = choose_route(facts, available, _measuring(arrival, facts))
    _announce(route)
    plan = replace(plan, memory=route.room / GIB)
    if route.keep == "moments":
        return plan, arrival
    slow = arrival.device.type == "cuda" and not float64_is_free(arrival.device)
    return replace(plan, single=slow and not plan.groups), arrival.kept(route.where)


def facts_of(plan: Plan, arrival: Streamed, *, shuffled: bool, processes: int = 1) -> Facts:
    """The shape of the work of models over a task."""
    reading = Reading(**arrival.reading)
    rows, tokens = _counted(arrival, reading)
    dual = plan.dual
    crossed = [m for m in plan.measures if m.needs == "moments"]
    return Facts(
        rows=rows,
        widths=tuple(arrival.widths),
        pairs=tuple(arrival.pairs) if crossed else (),
        number=max(own_type(model, reading).itemsize for model in arrival.models),
        parameters=sum(map(block_parameters, arrival.models)),
        tokens=tokens,
        groups=plan.groups if crossed else 0,
        primal=len(dual) < len(crossed),
        dual=bool(dual),
        row_measures=bool(plan.of_rows) or shuffled,
        processes=processes,
    )


def _counted(arrival: Streamed, reading: Reading) -> tuple[int, int]:
    """Rows and tokens of all texts, judged by some of the texts."""
    examples = arrival.examples
    items = len(texts_of(examples))
    if not items:
        return 0, 0
    places = np.unique(np.linspace(0, len(examples) - 1, _SAMPLE).round().astype(np.int64))
    sample = encode(arrival.models[0], examples.take(places), reading)
    length = float(np.mean([len(item) for item in sample]))
    rows = float(np.mean([len(item.unit) for item in sample]))
    exact = {"words": sum(map(len, examples.words or ())), "tokens": int(1.1 * rows * items)}
    return exact.get(reading.pool, items), int(length * items)


def _measuring(arrival: Streamed, facts: Facts) -> Callable[[], float] | None:
    """How to measure what a pass takes, the same for every process; None where that would take long beside it."""
    streamer = Streamer(arrival.models, None, Reading(**arrival.reading))
    tokens = int(_BATCHES * streamer.loop.batches.budget)
    if facts.tokens < _WORTH * tokens:
        return None
    team = Team.current()
    return lambda: team.tell(seconds_of_a_pass(arrival, streamer, tokens, facts.tokens / team.size))


def seconds_of_a_pass(arrival: Streamed, streamer: Streamer, first: int, tokens: float) -> float:
    """What the models take for so many tokens, measured on the `first` ones, with a warm-up over the same."""
    lengths = encode(arrival.models[0], arrival.examples.take(slice(first)), streamer.reading).lengths
    count = max(1, int(np.searchsorted(np.cumsum(lengths), first)))
    taken = 0.0
    for _ in range(2):
        start = time.perf_counter()
        streamer.feed(arrival.examples.take(slice(count)), (), "the first batches, for the plan")
        if arrival.device.type == "cuda":
            torch.cuda.synchronize(arrival.device)
        taken = time.perf_counter() - start
    return taken * tokens / int(lengths[:count].sum())


def _announce(route: Route) -> None:
    if not Team.current().is_main:
        return
    if route.passes > 1:
        log.warning("%s over the texts: %s.", counted(route.passes), route.reason)
    log.info("Plan: %s.", route)


@contextmanager
def reported(arrival: Arrival) -> Iterator[None]:
    """Say afterwards what a comparison took."""
    device = arrival.device
    if device.type == "cuda":
        torch.cuda.reset_peak_memory_stats(device)
    start = time.perf_counter()
    yield
    if Team.current().is_main:
        passes = f"{counted(arrival.passes)} over the texts, " if isinstance(arrival, Streamed) else ""
        peaks = ", ".join(f"{spelled(size)} on the {place}" for place, size in peak_of(device).items())
        log.info("It took %.3g s, %sat most %s so far.", time.perf_counter() - start, passes, peaks)
