"""Which rows are learned from and which are scored, and the layer l* that the first ones point to."""

from __future__ import annotations

from collections.abc import Callable, Iterable

from layerscope.data import Examples, Task, metrics
from layerscope.errors import InputError, log
from layerscope.models import Model
from layerscope.models.lineage import known_rows
from layerscope.probing.labelled import parted
from layerscope.probing.permuting import LEVEL
from layerscope.probing.variability import specialty
from layerscope.tuning.strategy import Strategy, check_best

_PERMUTATIONS = 20  # of the labels, before l* is taken


def parts(
    task: Task, train_limit: int | None = None, validation_limit: int | None = None, model: Model | None = None
) -> tuple[Examples, Examples]:
    """The rows to learn from and the rows to score; of a single split a fifth is held out, the same for every seed.

    Rows that the model learned from before are not scored.
    """
    train, validation = parted(task, (train_limit, validation_limit))
    if train.labels is None or validation.labels is None:
        raise InputError(
            f"{task.name} has no labels, so there is nothing to learn; name the column that holds them (label=, "
            "--label)."
        )
    if task.label_names is not None and len(task.label_names) < 2:
        raise InputError(
            f"Every row of {task.name} is of one class, {task.label_names[0]!r}: there is nothing to learn."
        )
    metrics.check_fits(task.metric, task.regression, task.name)
    known = None if model is None else known_rows([model], validation, in_other_data=len(task.splits) == 1)
    if model is None or known is None or not known.any():
        return train, validation
    if known.all():
        raise InputError(
            f"{model.name} has learned from all {len(known)} rows of {task.name} ({validation.split}) that were to be "
            "scored; give a task with other rows to score, or tune the model that it was made from."
        )
    log.warning("%s learned from %d of the rows that were to be scored; they are left out.", model.name, known.sum())
    return train, validation.take(~known)


def best_layer(model: Model, train: Examples, max_length: int = 128) -> int:
    """l*: the layer of least nu on the training rows, the same that `specialty` finds."""
    log.warning("l* is not given (--best, best=): looking for it in %d rows of %s.", len(train), train.task)
    curve = specialty(model, train, max_length=max_length, null=_PERMUTATIONS)
    best = curve.best
    if best is None:
        raise InputError(f"No layer of {model.name} separates the classes of {train.task}; give l* as best=.")
    log.warning(
        "l* is %d: the layer of %s with the least nu on %s (%d rows).", best, model.name, train.task, len(train)
    )
    if not curve.p_best < LEVEL:
        log.warning(
            "nu is no lower there than with permuted labels (p = %.2f after allowing for the choice among layers): "
            "that layer does not show the labels, so l* says little.",
            curve.p_best,
        )
    return best


def needed_best(
    model: Model,
    strategies: Iterable[Strategy],
    best: int | None,
    train: Callable[[], Examples],
    max_length: int = 128,
) -> int | None:
    """l* as it is given, or looked for in the training rows where one of the strategies needs it.

    A single strategy that has numbers for no l* is refused before.
    """
    best = check_best(best, model.depth)
    asked = list(strategies)
    if best is not None or not any(strategy.needs_best for strategy in asked):
        return best
    if len(asked) == 1:
        asked[0].check(model.depth)
    return best_layer(model, train(), max_length)
