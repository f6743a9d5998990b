"""The engine `local` runs every job in this process, one after another."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from layerscope.engine.jobs import Engine, Job, Outcome, work
from layerscope.errors import InputError


class Local(Engine):
    """The engine that runs jobs in this process."""

    name = "local"

    def check(self) -> None:
        if self.where:
            raise InputError(
                f"The engine local:{self.where} was asked for; local takes nothing after it (processes:N does)."
            )

    def run(self, jobs: Sequence[Job]) -> Iterator[tuple[int, Outcome]]:
        for place, job in enumerate(jobs):
            yield place, work(job)
