"""The engine `ray` runs jobs as Ray tasks, here or on a cluster. Ray schedules them and restarts lost ones."""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from importlib.util import find_spec
from typing import Any

from layerscope.engine.jobs import Engine, Job, Outcome, work, worker_environment
from layerscope.errors import InputError

_TRIES = 3


class Ray(Engine):
    """The engine that runs jobs on Ray: `ray` starts one here, `ray:auto` or `ray:HOST:PORT` joins a cluster."""

    name = "ray"

    def check(self) -> None:
        if find_spec("ray") is None:
            raise InputError("The engine ray was asked for, and Ray is not installed: pip install 'layerscope[ray]'.")

    def run(self, jobs: Sequence[Job]) -> Iterator[tuple[int, Outcome]]:
        if not jobs:
            return
        import ray

        started = self._start(ray)
        try:
            task = ray.remote(work)
            places = {
                task.options(
                    name=job.name,
                    num_cpus=job.cpus,
                    num_gpus=job.gpus,
                    max_retries=_TRIES,
                    runtime_env={"env_vars": worker_environment(job.cpus)},
                ).remote(job): place
                for place, job in enumerate(jobs)
            }
            while places:
                done, _ = ray.wait(list(places), num_returns=1)
                for reference in done:
                    try:
                        outcome = ray.get(reference)
                    except ray.exceptions.RayError as error:
                        reason = f"Ray gave it up ({type(error).__name__}: {str(error).splitlines()[0]})"
                        outcome = Outcome(None, reason, 0.0)
                    yield places.pop(reference), outcome
        finally:
            if started:
                ray.shutdown()

    def _start(self, ray: Any) -> bool:
        """Join a cluster or start one; return whether it was started here, and so must be ended here."""
        if ray.is_initialized():
            return False
        os.environ.setdefault("RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO", "0")
        try:
            ray.init(address=self.where or "local", log_to_driver=False, logging_level="ERROR", include_dashboard=False)
        except (ConnectionError, ValueError, RuntimeError, TimeoutError) as error:
            raise InputError(
                f"No Ray cluster could be joined at {self.where or 'this machine'}: {str(error).splitlines()[0]} "
                "Start one with `ray start --head`, or use --engine ray for one on this machine."
            ) from error
        return True
