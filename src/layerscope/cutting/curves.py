"""What a tuned model loses with its blocks: the truncation curve and the skip map (Phang et al. 2021, section 4)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from layerscope.cutting.costs import Costs
from layerscope.cutting.curve_results import SkipMap, Truncation
from layerscope.cutting.plan import LayerPlan
from layerscope.cutting.sweep import sweep
from layerscope.cutting.trained_heads import HeadTraining, TrainedHeads, check_same
from layerscope.errors import InputError, choose, whole
from layerscope.evaluation.exam import Exam, exam
from layerscope.evaluation.leaving_out import without_groups
from layerscope.evaluation.sitting import Sitting
from layerscope.models import load

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
    all_rows: bool = False,
    train_limit: int | None = None,
    **training: Any,
) -> Truncation:
    """Put the head on every layer 0..L in turn, by one forward over the data and not L + 1.

    The result is kept in the store; a killed command goes on where it was.

    Args:
        model: A model, or what `ls.load` takes. The curve of a language model is its logit lens.
        task: The task that it is scored on, as in `ls.evaluate`.
        mode: `untuned` trains nothing: the tuned head reads every layer. `tuned` trains the tuned head further on each
            frozen layer, `tunedorig` a new head on each layer of the untuned model `base`.
        base: The untuned model, for `tunedorig`.
        split: The split to score; `validation` where there is one.
        limit: Use only the first N examples.
        max_length: The longest text in tokens: as the model allows, at most 512; where heads are trained 128.
        batch_tokens: Tokens per batch, padding included.
        all_rows: Also score the rows that the model learned from.
        train_limit: Where heads are trained: use only the first N training examples.
        **training: Where heads are trained: `learning_rate`, `epochs`, `batch`, `seed`.

    Returns:
        A `Truncation`, whose `frame` has the columns layer, score, majority (always the most frequent class), low and
        high (95 % by the bootstrap over texts), parameters and macs (multiply-adds of a text of 128 tokens) of the
        model cut there.

    Example:
        >>> import layerscope as ls
        >>> tuned = ls.tune("garden:bert-s0", "pydocs", max_steps=2, train_limit=64, validation_limit=32, max_length=16)
        >>> curve = ls.truncation_curve(tuned.model, "pydocs", limit=32, max_length=16)
        >>> list(curve.frame["layer"])[:3]
        [0, 1, 2]
    """
    choose("mode", mode, MODES)
    if (base is not None) != (mode == "tunedorig"):
        raise InputError("base=, the untuned model, belongs to mode='tunedorig', which needs it.")
    given = dict(training) if train_limit is None else {**training, "train_limit": train_limit}
    if given and mode == "untuned":
        raise InputError(f"mode='untuned' trains nothing, so it has no option {next(iter(given))!r}.")
    given_rows: dict[str, Any] = {"split": split, "limit": limit, "all_rows": all_rows}
    sitting = exam(model, task, **given_rows, max_length=max_length, batch_tokens=batch_tokens)
    plans = truncations(sitting.model.depth)
    if mode == "untuned":
        logits = sweep(sitting, plans, f"truncation of {sitting.model.name}")
        scores, bounds = [sitting.value(part) for part in logits], _bounds(sitting, logits)
        left_out = without_groups(sitting, logits)
    else:
        if not isinstance(sitting, Exam):
            raise InputError(
                f"mode={mode!r} trains heads for classes, numbers and choices, and {sitting.model.name} is asked for "
                f"{sitting.metric}; leave mode out: its own head reads every layer."
            )
        source = sitting.model if base is None else load(base)
        check_same(sitting.model, source)
        heads = TrainedHeads(
            source,
            sitting.task,
            sitting.examples,
            new_head=base is not None,
            max_length=max_length or 128,
            train_limit=train_limit,
            training=HeadTraining.read(training),
        )
        scores, bounds, left_out = heads.scores().tolist(), heads.bounds(), heads.left_out()
    frame = _frame(sitting, plans, scores, bounds)
    frame.insert(0, "layer", range(sitting.model.depth + 1))
    frame.insert(2, "majority", sitting.majority)
    return Truncation(frame, sitting.provenance(mode=mode, **given), left_out)


def skip_map(
    model: Any,
    task: Any,
    *,
    max_span: int | None = None,
    split: str | None = None,
    limit: int | None = None,
    max_length: int | None = None,
    batch_tokens: int | None = None,
    all_rows: bool = False,
) -> SkipMap:
    """Score a model without each contiguous span of blocks first..last, nothing trained; prefixes are shared.

    Args:
        model: A model, or what `ls.load` takes.
        task: The task that it is scored on, as in `ls.evaluate`.
        max_span: How many blocks are left out at once, at most.
        split: The split to score; `validation` where there is one.
        limit: Use only the first N examples.
        max_length: The longest text in tokens: as the model allows, at most 512.
        batch_tokens: Tokens per batch, padding included.
        all_rows: Also score the rows that the model learned from.

    Returns:
        A `SkipMap`, whose `frame` has the columns first, last, score, whole (the score of the whole model), low and
        high (95 % by the bootstrap over texts), parameters and macs.

    Example:
        >>> import layerscope as ls
        >>> tuned = ls.tune("garden:bert-s0", "pydocs", max_steps=2, train_limit=64, validation_limit=32, max_length=16)
        >>> len(ls.skip_map(tuned.model, "pydocs", max_span=1, limit=32, max_length=16).frame)
        12
    """
    given_rows: dict[str, Any] = {"split": split, "limit": limit, "all_rows": all_rows}
    sitting = exam(model, task, **given_rows, max_length=max_length, batch_tokens=batch_tokens)
    depth = sitting.model.depth
    spans = contiguous(depth, max_span)
    plans = [LayerPlan.skipped(depth, first, last) for first, last in spans]
    logits = sweep(sitting, [*plans, LayerPlan.truncated(depth, depth)], f"skip map of {sitting.model.name}")
    *scores, whole = (sitting.value(part) for part in logits)
    frame = _frame(sitting, plans, scores, _bounds(sitting, logits[:-1]))
    frame.insert(0, "first", [first for first, _ in spans])
    frame.insert(1, "last", [last for _, last in spans])
    frame.insert(3, "whole", whole)
    return SkipMap(frame, sitting.provenance(max_span=max_span), without_groups(sitting, logits[:-1]))


def truncations(depth: int) -> list[LayerPlan]:
    """The head on layer 0, 1, .. L."""
    return [LayerPlan.truncated(depth, keep) for keep in range(depth + 1)]


def contiguous(depth: int, max_span: int | None = None) -> list[tuple[int, int]]:
    """Every span of blocks first..last, of at most `max_span` blocks."""
    if max_span is not None and (not whole(max_span) or not 1 <= max_span <= depth):
        raise InputError(f"max_span is {max_span}; this model has {depth} blocks, so 1..{depth} are allowed.")
    most = max_span or depth
    return [(i, j) for i in range(1, depth + 1) for j in range(i, min(i + most, depth + 1))]


def _bounds(sitting: Sitting, logits: Sequence[np.ndarray] | np.ndarray) -> np.ndarray:
    """(plans, 2) an interval over texts for every score; NaN where the score is undefined."""
    known = [not np.isnan(sitting.value(part)) for part in logits]
    return np.asarray([sitting.interval(p) if k else (np.nan, np.nan) for p, k in zip(logits, known, strict=True)])


def _frame(sitting: Sitting, plans: list[LayerPlan], scores: list[float], bounds: np.ndarray) -> pandas.DataFrame:
    import pandas

    costs = Costs(sitting.model)
    columns = {
        "score": scores,
        "low": bounds[:, 0],
        "high": bounds[:, 1],
        "parameters": [costs.parameters(plan) for plan in plans],
        "macs": [costs.macs(plan) for plan in plans],
    }
    about = {"task": sitting.task.name, "split": sitting.examples.split, "metric": sitting.metric}
    return pandas.DataFrame(columns).assign(**about, n=len(sitting.examples))
