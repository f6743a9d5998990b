"""What a tuned model loses with its blocks: the truncation curve and the skip map (Phang et al. 2021, section 4)."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from layerscope.analysis.sweep import sweep
from layerscope.analysis.tuned_curves import check_same, options_of, trained_heads
from layerscope.errors import InputError, choose
from layerscope.extract.exam import Exam, exam
from layerscope.models import load
from layerscope.surgery import LayerPlan
from layerscope.surgery.costs import Costs

if TYPE_CHECKING:
    import pandas

MODES = ("untuned", "tuned", "tunedorig")


def truncation_curve(
    model: Any,
    task: Any,
    *,
    mode: str = "untuned",
    base: Any = None,
    split: str | None = None,
    limit: int | None = None,
    max_length: int | None = None,
    batch_tokens: int | None = None,
    **options: Any,
) -> pandas.DataFrame:
    """The head on every layer 0..L, by one forward over the data and not L + 1.

    `mode="untuned"` trains nothing: the tuned head reads every layer. `"tuned"` trains the tuned head further on each
    frozen layer, `"tunedorig"` a new head on each layer of the untuned model `base`; those take `learning_rate`,
    `epochs`, `batch`, `train_limit` and `seed`, and read texts as extraction does (128 tokens unless `max_length` says
    otherwise).

    Columns: layer, score, majority (always the most frequent class), parameters and macs (multiply-adds of a text of
    128 tokens) of the model cut there. Kept in the store; a killed run goes on where it was.
    """
    choose("mode", mode, MODES)
    if (base is not None) != (mode == "tunedorig"):
        raise InputError("base=, the untuned model, belongs to mode='tunedorig', which needs it.")
    if options and mode == "untuned":
        raise InputError(f"mode='untuned' trains nothing, so it has no option {next(iter(options))!r}.")
    found = exam(model, task, split=split, limit=limit, max_length=max_length, batch_tokens=batch_tokens)
    plans = truncations(found.model.depth)
    if mode == "untuned":
        logits = sweep(found, plans, f"truncation of {found.model.name}")
        scores = [found.score(part) for part in logits]
    else:
        source = found.model if base is None else load(base)
        check_same(found.model, source)
        scores = trained_heads(
            source,
            found.task,
            found.examples,
            new_head=base is not None,
            max_length=max_length or 128,
            **options_of(options),
        ).tolist()
    frame = _frame(found, plans, scores)
    frame.insert(0, "layer", range(found.model.depth + 1))
    frame.insert(2, "majority", found.majority)
    return frame


def skip_map(
    model: Any,
    task: Any,
    *,
    max_span: int | None = None,
    split: str | None = None,
    limit: int | None = None,
    max_length: int | None = None,
    batch_tokens: int | None = None,
) -> pandas.DataFrame:
    """The score without each contiguous span of blocks first..last, nothing trained; prefixes are shared.

    Columns: first, last, score, whole (the score of the whole model), parameters, macs. `max_span` limits how many
    blocks are left out at once.
    """
    found = exam(model, task, split=split, limit=limit, max_length=max_length, batch_tokens=batch_tokens)
    depth = found.model.depth
    chosen = contiguous(depth, max_span)
    plans = [LayerPlan.skipped(depth, first, last) for first, last in chosen]
    logits = sweep(found, [*plans, LayerPlan.truncated(depth, depth)], f"skip map of {found.model.name}")
    *scores, whole = (found.score(part) for part in logits)
    frame = _frame(found, plans, scores)
    frame.insert(0, "first", [first for first, _ in chosen])
    frame.insert(1, "last", [last for _, last in chosen])
    frame.insert(3, "whole", whole)
    return frame


def truncations(depth: int) -> list[LayerPlan]:
    """The head on layer 0, 1, .. L."""
    return [LayerPlan.truncated(depth, keep) for keep in range(depth + 1)]


def contiguous(depth: int, max_span: int | None = None) -> list[tuple[int, int]]:
    """Every span of blocks first..last, of at most `max_span` blocks."""
    if max_span is not None and not 1 <= max_span <= depth:
        raise InputError(f"max_span is {max_span}; this model has {depth} blocks, so 1..{depth} are allowed.")
    most = max_span or depth
    return [(i, j) for i in range(1, depth + 1) for j in range(i, min(i + most, depth + 1))]


def _frame(found: Exam, plans: list[LayerPlan], scores: list[float]) -> pandas.DataFrame:
    import pandas

    costs = Costs(found.model)
    return pandas.DataFrame(
        {
            "score": scores,
            "parameters": [costs.parameters(plan) for plan in plans],
            "macs": [costs.macs(plan) for plan in plans],
        }
    ).assign(task=found.task.name, split=found.examples.split, metric=found.task.metric, n=len(found.examples))
