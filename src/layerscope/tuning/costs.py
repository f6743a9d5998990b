"""What a strategy trains and what that costs, before anything is trained."""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from layerscope.cutting.costs import Costs
from layerscope.cutting.plan import LayerPlan, spans
from layerscope.data import Task
from layerscope.data import task as open_task
from layerscope.drawing.words import numbers
from layerscope.errors import InputError
from layerscope.models import Model
from layerscope.models.load import load_whole
from layerscope.results import Result, provenance_of
from layerscope.tuning.job import prepared
from layerscope.tuning.method import Method, counts, method_of, possible
from layerscope.tuning.papers import every
from layerscope.tuning.parts import needed_best, parts
from layerscope.tuning.strategy import Asked, Strategy, name_of

if TYPE_CHECKING:
    import pandas

    from layerscope.drawing.figure import Figure


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

    def __repr__(self) -> str:
        return f"Strategies({', '.join(row['strategy'] for row in self.rows)})"


def costs(model: Model, task: Task, strategy: Strategy, method: Method) -> dict[str, Any]:
    """What a strategy in numbers trains, and the multiply-adds per token, forward and backward."""
    tuned = prepared(model, task, strategy)
    embeddings, blocks, depth = strategy.trains_embeddings(model.depth), strategy.blocks, tuned.depth
    work = Costs(tuned)
    forward = work.macs(LayerPlan.truncated(depth, depth)) / work.tokens
    # Backward goes from the head down to the lowest trained block: twice the multiply-adds of the forward there.
    lowest = 1 if embeddings else (blocks[0] if blocks else depth + 1)
    frozen = (work.macs(LayerPlan.truncated(depth, lowest - 1)) - work.macs(LayerPlan([]))) / work.tokens
    total, trainable = counts(method.apply(tuned, strategy, embeddings, 0))
    return {
        "blocks": spans(blocks),
        "head": strategy.head,
        "parameters": total,
        "trainable": trainable,
        "forward": round(forward),
        "backward": round(2 * (forward - frozen)),
        "cached": round(forward - frozen),
    }


def cost_table(
    model: Model, task: Task, strategies: Mapping[str, Strategy], method: Method, **settings: Any
) -> Strategies:
    """The cost of strategies in numbers, by their texts."""
    rows = [
        {"strategy": text, "resolved": str(resolved), **costs(model, task, resolved, method)}
        for text, resolved in strategies.items()
    ]
    about = {"task": task.name, "method": method.name, "size": method.size, **settings}
    return Strategies(rows, provenance_of([model], None, about))


def training_cost(
    model: Any,
    task: Any,
    strategy: Asked = "full",
    method: str | Method = "finetune",
    *,
    best: int | None = None,
    size: int | None = None,
) -> Strategies:
    """What one strategy trains and costs, before anything is trained.

    Args:
        model: A model, or what `ls.load` takes.
        task: A task, or what `ls.task` takes; it decides the head.
        strategy: The strategy, as `ls.tune` takes it.
        method: The method, as `ls.tune` takes it.
        best: l*, where the strategy needs it; looked for in the training rows if it is not given.
        size: The method's size.

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
    best = needed_best(opened, [asked], best, lambda: parts(data)[0])
    resolved = asked.resolve(opened.depth, best)
    return cost_table(opened, data, {name_of(strategy): resolved}, chosen, best=best)


def strategies(
    model: Any, task: Any, *, best: int | None = None, method: str | Method = "finetune", size: int | None = None
) -> Strategies:
    """The papers' strategies with what each trains and costs, before anything is trained.

    Args:
        model: A model, or what `ls.load` takes.
        task: A task, or what `ls.task` takes; it decides the head.
        best: l*; looked for in the training rows if it is not given.
        method: The method, as `ls.tune` takes it.
        size: The method's size.

    Returns:
        Strategies, one row for each that the model and the method can have.

    Example:
        >>> import layerscope as ls
        >>> table = ls.strategies("garden:bert-s0", "pydocs", best=2).frame
        >>> list(table["strategy"])[:2]
        ['full', '(L, L, L)']
    """
    opened, data, chosen = load_whole(model, "the cost of a training"), open_task(task), method_of(method, size)
    texts = every(opened.depth)
    best = needed_best(opened, map(Strategy.parse, texts), best, lambda: parts(data)[0])
    return cost_table(opened, data, possible(opened, texts, best, chosen, logging.INFO), chosen, best=best)
