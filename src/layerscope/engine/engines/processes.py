"""Several processes on this machine, each with its share of cores and a GPU of its own where there are several."""

from __future__ import annotations

import os
import signal
from collections import Counter
from collections.abc import Collection, Iterator, Mapping, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ProcessPoolExecutor, wait
from concurrent.futures.process import BrokenProcessPool
from multiprocessing import get_context, parent_process
from threading import Thread
from typing import Any

from layerscope.engine.job import Engine, Job, Outcome, surroundings, work
from layerscope.errors import InputError, log

_TRIES = 3  # of a job whose worker was lost, by a kill or for want of memory
_NOT_BEGUN = (
    "No process could be started: each begins by importing the script that asks for it. Save the script in a file (it "
    'cannot come from standard input), and put the call under `if __name__ == "__main__":`; or use the engine local.'
)


class Processes(Engine):
    """Jobs in N processes."""

    name = "processes"

    def check(self) -> None:
        if not self.where.isdecimal() or not int(self.where):
            asked = f"{self.name}:{self.where}" if self.where else self.name
            raise InputError(f"The engine {asked} was asked for; say how many processes: processes:2, for example.")

    def run(self, jobs: Sequence[Job]) -> Iterator[tuple[int, Outcome]]:
        todo, tries = list(range(len(jobs)))[::-1], Counter[int]()
        while todo:
            pool, began = self._pool(len(todo))
            running: dict[Future[Outcome], int] = {}
            try:
                while todo or running:
                    while todo and self._has_room(todo[-1], running.values(), tries):
                        running[pool.submit(work, jobs[todo[-1]])] = todo[-1]
                        todo.pop()
                    for future in wait(running, return_when=FIRST_COMPLETED).done:
                        yield running[future], future.result()
                        del running[future]
            except BrokenProcessPool:
                if not began.is_set():
                    raise InputError(_NOT_BEGUN) from None
                lost = list(running.values())
                tries.update(lost)
                log.warning("A process was lost (killed, or out of memory); its work is started again.")
                for place in [place for place in lost if tries[place] >= _TRIES]:
                    yield place, Outcome(None, f"its process was lost {_TRIES} times (killed, or out of memory)", 0.0)
                todo += [place for place in lost if tries[place] < _TRIES]
            finally:
                pool.shutdown(wait=True, cancel_futures=True)

    def _has_room(self, place: int, running: Collection[int], tries: Mapping[int, int]) -> bool:
        """Whether a job can run beside others. On its last try it runs alone: one that dies takes others with it."""
        last = any(tries[other] == _TRIES - 1 for other in (place, *running))
        return len(running) < (1 if last else int(self.where))  # no more, so that only these share a lost worker

    def _pool(self, jobs: int) -> tuple[ProcessPoolExecutor, Any]:
        """The processes, and what tells whether any of them has begun."""
        count = min(int(self.where), jobs)
        context = get_context("spawn")  # a fork of a process that has used torch's threads or a GPU may hang
        devices = context.SimpleQueue()
        for number in range(count):
            devices.put(number)
        cores, began = (os.cpu_count() or 1) / count, context.Event()
        given = (surroundings(cores), devices, began)
        return ProcessPoolExecutor(count, context, initializer=_settle, initargs=given), began


def _settle(environment: dict[str, str], numbers: Any, began: Any) -> None:
    """Make this worker like the process that started it, with a GPU of its own where there is one for it."""
    began.set()
    if signal.getsignal(signal.SIGINT) is not signal.SIG_IGN:  # as the command has it that is run in the background
        signal.signal(signal.SIGINT, signal.SIG_DFL)  # it ends without a traceback; what it left is taken up again
    Thread(target=_end_with_parent, daemon=True).start()
    os.environ.update(environment)
    import torch

    torch.set_num_threads(int(environment["OMP_NUM_THREADS"]))
    visible = os.environ.get("CUDA_VISIBLE_DEVICES", "")
    devices = visible.split(",") if visible else [str(k) for k in range(torch.cuda.device_count())]
    if len(devices) > 1:
        os.environ["CUDA_VISIBLE_DEVICES"] = devices[numbers.get() % len(devices)]


def _end_with_parent() -> None:
    """End this worker when the process that started it is gone, even by a kill: nobody will give it work again."""
    parent = parent_process()
    assert parent is not None
    parent.join()
    os._exit(1)
