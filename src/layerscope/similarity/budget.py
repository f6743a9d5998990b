"""What a comparison may use and what it needs: memory, disk and speeds of the machine, and the size of the work.

`with_budget` brings both together and completes a `Plan`; `report_costs` logs afterwards what the comparison took.
"""

from __future__ import annotations

import os
import shutil
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

import numpy as np
import psutil
import torch

from layerscope.distributed import Team
from layerscope.errors import log
from layerscope.extraction.encoding import encode, texts_of
from layerscope.extraction.loop import block_parameters
from layerscope.extraction.pooling import Reading
from layerscope.extraction.stream import Streamer
from layerscope.models.devices import free_memory, free_on
from layerscope.similarity.execution_plan import (
    GIB,
    Plan,
    Resources,
    Workload,
    choose_plan,
    counted,
    spelled,
)
from layerscope.similarity.layer_sources import LayerSource, Streamed, row_dtype
from layerscope.similarity.moments import float64_is_free, has_bfloat16_cores
from layerscope.store import home

_SHARE = 0.5  # of the memory that is free: batches, the tokenizer and other programs need some as well
_DISK_SHARE = 0.8
_FORWARD = {"cpu": 3e10, "cuda": 3e13, "mps": 3e12}  # operations per second in float32; a CPU's per core
_HALF = 5  # times as fast in 16 bits, where the device has units for them
_FLOAT64 = {"cpu": 2e10, "cuda": 3e13, "mps": 2e10}
_SLOW_FLOAT64 = 5e11


def resources_for(
    device: torch.device, memory: float | None, *, processes: int = 1, dtype: torch.dtype = torch.float32
) -> Resources:
    """The memory, disk and speed that one of several processes may use; `memory` is an upper bound in GiB, or None."""
    on_this_host = min(processes, int(os.environ.get("LOCAL_WORLD_SIZE", processes)))
    bound = float("inf") if memory is None else memory * GIB
    cores = torch.get_num_threads() if device.type == "cpu" else 1
    half = _HALF if dtype.itemsize == 2 and device.type == "cuda" else 1
    fast_float64 = device.type != "cuda" or float64_is_free(device)
    return Resources(
        host=int(min(bound, _SHARE * free_memory() / on_this_host)),
        device=int(min(bound, _SHARE * free_on(device))) if device.type == "cuda" else None,
        disk=int(_DISK_SHARE * _free_on_disk(home())),
        forward=_FORWARD.get(device.type, 3e12) * cores * half,
        products=(_FLOAT64.get(device.type, 2e10) if fast_float64 else _SLOW_FLOAT64) * cores,
    )


def _free_on_disk(folder: Path) -> int:
    """Bytes that are free on the disk of a folder, which need not exist yet."""
    while not folder.exists() and folder != folder.parent:
        folder = folder.parent
    try:
        return shutil.disk_usage(folder).free
    except OSError:
        return 0


def peak_of(device: torch.device) -> dict[str, int]:
    """The most bytes that this process has held so far, on the host and on a GPU."""
    try:
        import resource
    except ImportError:  # Windows
        return {"host": int(psutil.Process().memory_info().rss)}
    unit = 1 if os.uname().sysname == "Darwin" else 1024
    peak = {"host": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * unit}
    if device.type == "cuda":
        peak["device"] = int(torch.cuda.max_memory_allocated(device))
    return peak


_SAMPLE = 64  # texts that are tokenised to see how long they are
_BATCHES = 2  # that are run to time a pass
_WORTH = 50  # times as many batches must there be, so that the timing costs little


def with_budget(plan: Plan, inputs: LayerSource, *, shuffled: bool, memory: float | None) -> Plan:
    """Complete a plan: the memory that it may use, and for models where a pass leaves their rows, or moments.

    Nothing is compared here. Models run only over a few batches, to time a pass, where the choice depends on that.
    """
    if not isinstance(inputs, Streamed):
        return replace(plan, memory=resources_for(inputs.device, memory).host / GIB)
    team = Team.current()
    work = workload_of(plan, inputs, shuffled=shuffled, processes=team.size)
    dtype = inputs.models[0].network.dtype
    # Every process must choose the same plan, so the first one's resources count for all.
    resources = team.broadcast(resources_for(inputs.device, memory, processes=team.size, dtype=dtype))
    chosen = choose_plan(work, resources, pass_timer(inputs, work))
    if team.is_main:
        if chosen.passes > 1:
            log.warning("%s over the texts: %s.", counted(chosen.passes), chosen.reason)
        log.info("Plan: %s.", chosen)
    halves = all(model.network.dtype.itemsize == 2 for model in inputs.models)
    # Shuffled values and intervals are differences of values, in which rounding counts for more.
    split = halves and has_bfloat16_cores(inputs.device) and not (shuffled or plan.groups)
    plan = replace(plan, memory=chosen.room / GIB, split=split)
    if chosen.keep == "moments":
        return plan
    slow_float64 = inputs.device.type == "cuda" and not float64_is_free(inputs.device)
    return replace(plan, single=slow_float64 and not plan.groups, keep=chosen.where)


def workload_of(plan: Plan, inputs: Streamed, *, shuffled: bool, processes: int = 1) -> Workload:
    """The shape of the work of models over a task; `shuffled`: whether texts will change places, which needs rows."""
    reading = Reading(**inputs.reading)
    rows, tokens = _estimated_size(inputs, reading)
    crossed = [m for m in plan.measures if m.needs == "moments"]
    return Workload(
        rows=rows,
        widths=tuple(inputs.widths),
        pairs=tuple(inputs.pairs) if crossed else (),
        number=max(row_dtype(model, reading).itemsize for model in inputs.models),
        parameters=sum(map(block_parameters, inputs.models)),
        tokens=tokens,
        groups=plan.groups if crossed else 0,
        primal=len(plan.dual) < len(crossed),
        dual=bool(plan.dual),
        row_measures=bool(plan.row_measures) or shuffled,
        second_look=inputs.several_rows and plan.unbiased_hsic,
        processes=processes,
    )


def _estimated_size(inputs: Streamed, reading: Reading) -> tuple[int, int]:
    """The number of rows and of tokens of all texts, estimated from the tokens of a sample of them."""
    examples = inputs.examples
    items = len(texts_of(examples))
    if not items:
        return 0, 0
    places = np.unique(np.linspace(0, len(examples) - 1, _SAMPLE).round().astype(np.int64))
    sample = encode(inputs.models[0], examples.take(places), reading)
    length = float(np.mean([len(item) for item in sample]))
    rows = float(np.mean([len(item.unit) for item in sample]))
    by_pool = {"words": sum(map(len, examples.words or ())), "tokens": int(1.1 * rows * items)}
    return by_pool.get(reading.pool, items), int(length * items)


def pass_timer(inputs: Streamed, work: Workload) -> Callable[[], float] | None:
    """A function that measures the seconds of a pass, the same number in every process.

    None where the texts are so few that the measurement would take long beside the pass itself.
    """
    streamer = Streamer(inputs.models, None, Reading(**inputs.reading))
    tokens = int(_BATCHES * streamer.loop.batches.budget)
    if work.tokens < _WORTH * tokens:
        return None
    team = Team.current()
    return lambda: team.broadcast(seconds_of_pass(inputs, streamer, tokens, work.tokens / team.size))


def seconds_of_pass(inputs: Streamed, streamer: Streamer, first: int, tokens: float) -> float:
    """The seconds that the models take for so many tokens, measured on the `first` ones."""
    lengths = encode(inputs.models[0], inputs.examples.take(slice(first)), streamer.reading).lengths
    count = max(1, int(np.searchsorted(np.cumsum(lengths), first)))
    seconds = 0.0
    for _ in range(2):  # the first time warms up
        start = time.perf_counter()
        streamer.feed(inputs.examples.take(slice(count)), (), "the first batches, for the plan")
        if inputs.device.type == "cuda":
            torch.cuda.synchronize(inputs.device)
        seconds = time.perf_counter() - start
    return seconds * tokens / int(lengths[:count].sum())


@contextmanager
def report_costs(inputs: LayerSource) -> Iterator[None]:
    """Log after a comparison how long it took, its passes over the texts, and the most memory that was held."""
    device = inputs.device
    if device.type == "cuda":
        torch.cuda.reset_peak_memory_stats(device)
    start = time.perf_counter()
    yield
    if Team.current().is_main:
        passes = f"{counted(inputs.passes)} over the texts, " if isinstance(inputs, Streamed) else ""
        peaks = ", ".join(f"{spelled(size)} on the {place}" for place, size in peak_of(device).items())
        log.info("It took %.3g s, %sat most %s so far.", time.perf_counter() - start, passes, peaks)
