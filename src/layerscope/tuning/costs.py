"""The cost of a strategy, before anything is trained: what it trains, and the multiply-adds of a step.

Also which rows are learned from and which are scored, and l*, the layer that strategies are built around.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from layerscope import metrics
from layerscope.cutting.costs import Costs
from layerscope.cutting.plan import LayerPlan, spans
from layerscope.data import Examples, Task, TaskSource
from layerscope.data import task as open_task
from layerscope.data.splits import train_validation_split
from layerscope.drawing.captions import numbers
from layerscope.errors import InputError, log
from layerscope.models import Model
from layerscope.models.extras import parameter_count
from layerscope.models.lineage import known_rows
from layerscope.models.load import ModelSource, load_whole
from layerscope.probing.permutation import LEVEL
from layerscope.probing.specialty import specialty
from layerscope.results import Finding, NextStep, Result, provenance_of
from layerscope.results.finding import DETAIL
from layerscope.tuning.method import Method, method_of, possible, trainable_count
from layerscope.tuning.strategy import Asked, Strategy, check_best, every, name_of
from layerscope.tuning.training_job import prepared

if TYPE_CHECKING:
    import pandas

    from layerscope.drawing.figure import Figure


_PERMUTATIONS = 20  # of the labels, before l* is taken


def parts(
    task: Task, train_limit: int | None = None, validation_limit: int | None = None, model: Model | None = None
) -> tuple[Examples, Examples]:
    """Return the rows to learn from and the rows to score, without rows to score that the model learned from before.

    Of a single split a fifth is held out, the same for every seed.
    """
    train, validation = train_validation_split(task, (train_limit, validation_limit))
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
    seen = None if model is None else known_rows([model], validation, in_other_data=len(task.splits) == 1)
    if model is None or seen is None or not seen.any():
        return train, validation
    if seen.all():
        raise InputError(
            f"{model.name} has learned from all {len(seen)} rows of {task.name} ({validation.split}) that were to be "
            "scored; give a task with other rows to score, or tune the model that it was made from."
        )
    log.warning("%s learned from %d of the rows that were to be scored; they are left out.", model.name, seen.sum())
    return train, validation.take(~seen)


def best_layer(model: Model, train: Examples, max_length: int = 128) -> int:
    """Return l*, the layer of least nu on the training rows, the same that `specialty` finds."""
    log.warning("l* is not given (--specialty-layer, best=): looking for it in %d rows of %s.", len(train), train.task)
    curve = specialty(model, train, max_length=max_length, null=_PERMUTATIONS, press=False)
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
    """Return l* as it is given, or looked for in the training rows where one of the strategies needs it.

    A single strategy that has numbers for no l* is refused before.
    """
    best = check_best(best, model.depth)
    asked = list(strategies)
    if best is not None or not any(strategy.needs_best for strategy in asked):
        return best
    if len(asked) == 1:
        asked[0].check(model.depth)
    return best_layer(model, train(), max_length)


class Strategies(Result):
    """Strategies with what each trains and costs.

    `frame` has the columns strategy, resolved (in numbers), blocks, head, parameters, trainable, and multiply-adds per
    token: forward, backward, and cached, the forward that is left with the frozen blocks' output kept.
    """

    name = "strategies"

    def __init__(self, rows: Sequence[Mapping[str, Any]], provenance: Mapping[str, Any]) -> None:
        self.rows, self.provenance = [dict(row) for row in rows], provenance

    @property
    def row(self) -> dict[str, Any]:
        """The only row, where one strategy was asked for."""
        if len(self.rows) != 1:
            raise InputError(f"There are {len(self.rows)} strategies here; take a row of .frame.")
        return self.rows[0]

    @property
    def frame(self) -> pandas.DataFrame:
        """One row per strategy."""
        import pandas

        return pandas.DataFrame(self.rows)

    def figures(self) -> list[Figure]:
        return [numbers("Strategies", "What each strategy (bottom, top, head) trains and costs.", self.rows)]

    def findings(self) -> list[Finding]:
        """The strategies that train the fewest parameters and the most."""
        frame = self.frame
        some = frame[frame["trainable"] > 0].sort_values("trainable")
        if len(some) < 2:
            return []
        least, most = some.iloc[0], some.iloc[-1]
        text = (
            f"Of {len(some)} strategies {least['strategy']} trains the fewest parameters ({int(least['trainable']):,}) "
            f"and {most['strategy']} the most ({int(most['trainable']):,})."
        )
        return [Finding(text, "counted, nothing is trained", True, DETAIL)]

    def next_step(self) -> NextStep:
        """The study that trains them."""
        return NextStep("tune", ("--study", "--seeds", "3", "-o", "study"), "Train them, and compare their scores")

    def __repr__(self) -> str:
        return f"Strategies({', '.join(row['strategy'] for row in self.rows)})"


def costs(model: Model, task: Task, strategy: Strategy, method: Method) -> dict[str, Any]:
    """Return what a strategy in numbers trains, and the multiply-adds per token, forward and backward."""
    tuned = prepared(model, task, strategy)
    embeddings, blocks, depth = strategy.trains_embeddings(model.depth), strategy.blocks, tuned.depth
    work = Costs(tuned)
    forward = work.macs(LayerPlan.truncated(depth, depth)) / work.tokens
    # Backward goes from the head down to the lowest trained block: twice the multiply-adds of the forward there.
    lowest = 1 if embeddings else (blocks[0] if blocks else depth + 1)
    frozen = (work.macs(LayerPlan.truncated(depth, lowest - 1)) - work.macs(LayerPlan([]))) / work.tokens
    total = parameter_count(tuned.network)
    trained = method.apply(tuned, strategy, embeddings, 0)
    if not method.standard:  # what is added stays beside the weights
        total = parameter_count(method.plain(tuned, trained).network)
    return {
        "blocks": spans(blocks),
        "head": strategy.head,
        "parameters": total,
        "trainable": trainable_count(trained),
        "forward": round(forward),
        "backward": round(2 * (forward - frozen)),
        "cached": round(forward - frozen),
    }


def cost_table(
    model: Model, task: Task, strategies: Mapping[str, Strategy], method: Method, **settings: Any
) -> Strategies:
    """Return the cost of strategies in numbers, by their texts."""
    rows = [
        {"strategy": text, "resolved": str(resolved), **costs(model, task, resolved, method)}
        for text, resolved in strategies.items()
    ]
    recorded = {"task": task.name, "method": method.name, "size": method.size, **settings}
    return Strategies(rows, provenance_of([model], None, recorded))


def training_cost(
    model: ModelSource,
    task: TaskSource,
    strategy: Asked = "full",
    method: str | Method = "finetune",
    *,
    specialty_layer: int | None = None,
    size: int | None = None,
) -> Strategies:
    """What one strategy trains and costs, before anything is trained.

    Args:
        model: A checkpoint: a folder, a hub id, `id@revision`, a GGUF file, `demo:minilm`, `demo:smollm2`,
            `garden:NAME`, `random:` and one of these, or a `Model`.
        task: A task of the registry (`layerscope tasks` lists them), a file, a folder, a hub id, or a `Task`. It
            decides the head.
        strategy: The strategy, as `ls.tune` takes it.
        method: `finetune`, `adapter`, `lora` or `prefix`; in Python also a `Method` of your own.
        specialty_layer: l*, the layer of the task's specialty, where a strategy needs it; if not given, a pass over the
            training split finds it: the layer of the least nu (`ls.specialty`).
        size: The width of an adapter, the rank of LoRA or the number of virtual tokens.

    Returns:
        Strategies with one row, which is also `.row`: parameters in all and trainable, multiply-adds per token
        forward and backward, and the forward that is left with the frozen blocks' output kept.

    Example:
        >>> import layerscope as ls
        >>> cost = ls.training_cost("garden:bert-s0", "pydocs", "top-1").row
        >>> cost["trainable"] < cost["parameters"], cost["cached"] < cost["forward"]
        (True, True)
    """
    opened, data, asked, chosen = (
        load_whole(model, "the cost of a training"),
        open_task(task),
        Strategy.parse(strategy),
        method_of(method, size),
    )
    best = needed_best(opened, [asked], specialty_layer, lambda: parts(data)[0])
    resolved = asked.resolve(opened.depth, best)
    return cost_table(opened, data, {name_of(strategy): resolved}, chosen, best=best)


def strategies(
    model: ModelSource,
    task: TaskSource,
    *,
    specialty_layer: int | None = None,
    method: str | Method = "finetune",
    size: int | None = None,
) -> Strategies:
    """The papers' strategies with what each trains and costs, before anything is trained.

    Args:
        model: A checkpoint: a folder, a hub id, `id@revision`, a GGUF file, `demo:minilm`, `demo:smollm2`,
            `garden:NAME`, `random:` and one of these, or a `Model`.
        task: A task of the registry (`layerscope tasks` lists them), a file, a folder, a hub id, or a `Task`. It
            decides the head.
        specialty_layer: l*, the layer of the task's specialty, where a strategy needs it; if not given, a pass over the
            training split finds it: the layer of the least nu (`ls.specialty`).
        method: `finetune`, `adapter`, `lora` or `prefix`; in Python also a `Method` of your own.
        size: The width of an adapter, the rank of LoRA or the number of virtual tokens.

    Returns:
        Strategies, one row for each that the model and the method can have.

    Example:
        >>> import layerscope as ls
        >>> table = ls.strategies("garden:bert-s0", "pydocs", specialty_layer=2).frame
        >>> list(table["strategy"])[:2]
        ['full', '(L, L, L)']
    """
    opened, data, chosen = load_whole(model, "the cost of a training"), open_task(task), method_of(method, size)
    texts = every(opened.depth)
    best = needed_best(opened, map(Strategy.parse, texts), specialty_layer, lambda: parts(data)[0])
    return cost_table(opened, data, possible(opened, texts, best, chosen, logging.INFO), chosen, best=best)
