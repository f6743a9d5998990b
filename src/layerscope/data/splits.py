"""The split of a task into rows to learn from and rows to score."""

from __future__ import annotations

from layerscope.data.examples import Examples
from layerscope.data.task import Task
from layerscope.errors import check_count

HELD_OUT = 0.2  # the share that is scored of a task with a single split


def train_validation_split(
    task: Task, limits: tuple[int | None, int | None] = (None, None), whole: bool = False
) -> tuple[Examples, Examples]:
    """Return the rows to learn from and the rows to score, at most as many of each as `limits` says.

    Of a single split a fifth is held out, the same for every seed: the choice of a strategy and tuning must learn from
    the same rows, or they would find two different l*. With `whole` they are known as examples of the whole splits.
    """
    for limit in limits:
        check_count(limit, "limit")
    return task.parted(HELD_OUT, limits=limits, whole=whole)
