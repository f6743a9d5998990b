"""What a strategy trains and what that costs, before anything is trained."""

from __future__ import annotations

from typing import Any

from layerscope.analysis.tuning import best_layer, parts
from layerscope.data import Task
from layerscope.data import task as open_task
from layerscope.models import Model, load
from layerscope.surgery import LayerPlan
from layerscope.surgery.costs import Costs
from layerscope.tuning.heads import classifier_of
from layerscope.tuning.methods import Method, apply, counts
from layerscope.tuning.strategy import Strategy


def costs(model: Model, task: Task, strategy: Strategy, method: Method) -> dict[str, Any]:
    """What a strategy with numbers trains, and the multiply-adds of a token, forward and backward."""
    tuned = classifier_of(model, task)
    keep = LayerPlan.truncated(tuned.depth, int(strategy.head))
    work = Costs(tuned)
    forward = work.macs(keep) / work.tokens
    blocks = strategy.blocks
    # Backward runs from the head down to the lowest trained block: twice the multiply-adds of the forward there.
    lowest = 1 if strategy.trains_embeddings(model.depth) else (blocks[0] if blocks else int(strategy.head) + 1)
    below = LayerPlan.truncated(tuned.depth, lowest - 1)
    frozen = (work.macs(below) - work.macs(LayerPlan([]))) / work.tokens
    apply(tuned, strategy, method, strategy.trains_embeddings(model.depth), 0)
    dropped = work.parameters(LayerPlan.truncated(tuned.depth, tuned.depth)) - work.parameters(keep)
    total, trained = counts(tuned.network)
    return {
        "blocks": f"{blocks[0]}-{blocks[-1]}" if blocks else "none",
        "head": strategy.head,
        "parameters": total - dropped,
        "trained": trained,
        "forward": round(forward),
        "backward": round(2 * (forward - frozen)),
        "cached": round(forward - frozen) if lowest > 1 else round(forward),
    }


def training_cost(
    model: Any,
    task: Any,
    strategy: str | Strategy = "full",
    method: str = "finetune",
    *,
    best: int | None = None,
    size: int | None = None,
) -> dict[str, Any]:
    """What a strategy trains: parameters in all and trained, multiply-adds a token forward and backward, and the
    forward that is left with the frozen blocks' output cached."""
    opened, data, parsed = load(model), open_task(task), Strategy.parse(strategy)
    if parsed.needs_best and best is None:
        best = best_layer(opened, parts(data)[0])
    resolved = parsed.resolve(opened.depth, best)
    return {"strategy": str(resolved), **costs(opened, data, resolved, Method.of(method, size))}
