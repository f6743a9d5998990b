"""The engine `processes` runs jobs in several processes, each with its share of the cores and of the GPUs."""

from __future__ import annotations

import os
import signal
from collections import Counter
from collections.abc import Iterator, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ProcessPoolExecutor, wait
from concurrent.futures.process import BrokenProcessPool
from multiprocessing import get_context, parent_process
from threading import Thread
from typing import Any

from layerscope.engine.jobs import Engine, Job, Outcome, work, worker_environment
from layerscope.errors import InputError, log

_TRIES = 3  # of a job whose worker was lost, by a kill or for want of memory
_NOT_BEGUN = (
    "No process could be started: each begins by importing the script that asks for it. Save the script in a file (it "
    'cannot come from standard input), and put the call under `if __name__ == "__main__":`; or use the engine local.'
)


class Processes(Engine):
    """The engine that runs jobs in N processes of this machine."""

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
                    while todo:
                        # No more jobs are submitted than there are processes, so that only running ones are lost with a
                        # worker. On its last try a job runs alone: one that kills its worker takes others with it.
                        last_try = any(tries[place] == _TRIES - 1 for place in (todo[-1], *running.values()))
                        if len(running) >= (1 if last_try else int(self.where)):
                            break
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

    def _pool(self, jobs: int) -> tuple[ProcessPoolExecutor, Any]:
        """Return the processes, and an event that is set when the first of them has begun."""
        count = min(int(self.where), jobs)
        context = get_context("spawn")  # a fork of a process that has used torch's threads or a GPU may hang
        devices = context.SimpleQueue()
        for number in range(count):
            devices.put(number)
        cores, began = (os.cpu_count() or 1) / count, context.Event()
        arguments = (worker_environment(cores), devices, began)
        return ProcessPoolExecutor(count, context, initializer=_initialize, initargs=arguments), began


def _initialize(environment: dict[str, str], numbers: Any, began: Any) -> None:
    """Give this worker the environment of the process that started it, and a GPU of its own where there are several."""
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
    """Wait for the end of the process that started this worker, then end the worker too.

    A parent that was killed could not shut its workers down, and they would wait for work for ever.
    """
    parent = parent_process()
    assert parent is not None
    parent.join()
    os._exit(1)
