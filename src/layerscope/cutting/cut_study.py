"""`ls.cut_study`: cut a model, score what is left beside the whole, and save it."""

from __future__ import annotations

import math
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from layerscope import metrics
from layerscope.cutting.curves import healing_step
from layerscope.cutting.cut import cut, refuse_adapters
from layerscope.cutting.cut_on_disk import FolderCut
from layerscope.cutting.plan import LayerPlan
from layerscope.cutting.save import save as save_checkpoint
from layerscope.data import TaskSource
from layerscope.data import task as open_task
from layerscope.distributed import Team
from layerscope.drawing.captions import numbers
from layerscope.errors import LayerscopeError, first_line
from layerscope.evaluation.evaluate import evaluate
from layerscope.models.lineage import RECORD
from layerscope.models.load import ModelSource, load
from layerscope.results import Finding, NextStep, Tabled, provenance_of
from layerscope.results.finding import ANSWER, better_end, interval, number, rows, worse
from layerscope.store import check_free

if TYPE_CHECKING:
    import pandas

    from layerscope.drawing.figure import Figure


class CutStudy(Tabled):
    """A cut model beside the whole one.

    `.plan` is what was cut, `.depth` how many blocks the whole model has, `.model` the smaller network (None where it
    was cut on disk), `.saved` the folder, `.how` in words how it came there.

    Example:
        >>> import layerscope as ls
        >>> study = ls.cut_study("garden:bert-s0", "first 2")
        >>> str(study.plan), study.saved is None
        ('keep 1-2, head on layer 2', True)
    """

    name = "cut"

    def __init__(
        self,
        frame: pandas.DataFrame,
        provenance: Mapping[str, Any],
        *,
        plan: LayerPlan,
        depth: int,
        model: Any = None,
        saved: Path | None = None,
        how: str = "",
    ) -> None:
        super().__init__(frame, provenance)
        self.plan, self.depth, self.model, self.saved, self.how = plan, depth, model, saved, how

    def figures(self) -> list[Figure]:
        return [numbers("The cut model beside the whole", "Score and size; nothing was trained.", self.frame)]

    def findings(self) -> list[Finding]:
        """What the cut costs, and whether it is shown to lose anything; nothing where it was not scored."""
        if "score" not in self.frame:
            return []
        whole, *others = self.frame.to_dict("records")
        findings = []
        for row in others:
            metric, up = str(row["metric"]), metrics.higher_is_better(str(row["metric"]))
            low, high = float(row["low"]), float(row["high"])
            text = (
                f"Cut, the model ({row['blocks']}) has {metric} {number(row['score'])}, and {number(whole['score'])} "
                f"uncut, with {row['parameters'] / whole['parameters']:.0%} of the parameters."
            )
            loses = worse(better_end(low, high, up), whole["score"], up)
            unsure = "" if loses or math.isnan(low) else " includes the uncut model's score"
            evidence = f"{interval(low, high)}{unsure}{rows(self.provenance.get('data', {}).get('n'))}"
            findings.append(Finding(text, evidence, None if math.isnan(low) else bool(loses), ANSWER))
        return findings

    def next_step(self) -> NextStep | None:
        """The healing of the cut model."""
        return healing_step(self.plan, self.depth)

    def __repr__(self) -> str:
        return f"CutStudy({self.plan} of {self.depth} blocks)"


def cut_study(
    model: ModelSource,
    plan: LayerPlan | str,
    task: TaskSource | None = None,
    *,
    save: str | Path | None = None,
    split: str | None = None,
    limit: int | None = None,
    max_length: int | None = None,
    batch_tokens: int | None = None,
    all_rows: bool = False,
) -> CutStudy:
    """Cut a model, score what is left beside the whole, and save it as a standard checkpoint. Nothing is trained.

    Without a task nothing is scored: then a folder is cut on disk, shard by shard, where that is possible, and the
    network is never built.

    Args:
        model: A checkpoint: a folder, a hub id, `id@revision`, a GGUF file, `demo:minilm`, `demo:smollm2`,
            `garden:NAME`, `random:` and one of these, or a `Model`.
        plan: What stays: a `LayerPlan`, or words: `first 8` (the first eight blocks), `without 3-5,9`.
        task: A task of the registry (`layerscope tasks` lists them), a file, a folder, a hub id, or a `Task`; saving
            alone needs none.
        save: A folder that gets the smaller checkpoint, reopened and compared.
        split: The split; `validation` where there is one, else the only one.
        limit: Use only the first N examples.
        max_length: The longest text in tokens: what the model allows, at most 512 (running text: 2,048).
        batch_tokens: Tokens per batch, padding included.
        all_rows: Also score the rows that the model learned from.

    Returns:
        A `CutStudy`: `frame` has the whole model and the cut one with score, interval and parameters.

    Example:
        >>> import layerscope as ls
        >>> ls.cut_study("garden:bert-s0", ls.LayerPlan([1, 2, 4])).plan.keep
        (1, 2, 4)
    """
    import pandas

    folder = None if save is None else Path(save)
    if folder is not None:
        check_free(folder, RECORD)
    if task is None:
        return _without_task(model, plan, folder)
    data, whole = open_task(task), load(model)
    if folder is not None:
        refuse_adapters(whole)
    chosen = plan if isinstance(plan, LayerPlan) else LayerPlan.parse(plan, whole.depth, whole.name)
    smaller = cut(whole, chosen)
    rows: dict[str, Any] = {"split": split, "limit": limit, "max_length": max_length, "batch_tokens": batch_tokens}
    scores = [evaluate(each, data, **rows, all_rows=all_rows) for each in (whole, smaller)]
    table = pandas.DataFrame(
        {
            "blocks": (f"1-{whole.depth}", str(chosen)),
            "metric": scores[0].metric,
            "score": [float(score) for score in scores],
            "low": [score.interval[0] for score in scores],
            "high": [score.interval[1] for score in scores],
            "parameters": [sum(p.numel() for p in network.parameters()) for network in (whole.network, smaller)],
        }
    )
    how = ""
    if folder is not None and not Team.is_helper():  # one of several processes writes
        save_checkpoint(smaller, folder, scores=scores[1])
        how = "reopened and compared"
    return CutStudy(table, scores[0].provenance, plan=chosen, depth=whole.depth, model=smaller, saved=folder, how=how)


def _without_task(source: ModelSource, plan: LayerPlan | str, folder: Path | None) -> CutStudy:
    """Cut a model that is not scored: on disk where that is possible, else in memory."""
    import pandas

    on_disk, reason = None, ""
    if isinstance(source, (str, Path)):
        try:
            on_disk, reason = FolderCut(str(source)), ""
        except LayerscopeError as error:
            reason = first_line(error).rstrip(".")
    whole = load(source) if on_disk is None else on_disk.model
    reason = reason or f"it is open in {str(whole.network.dtype).removeprefix('torch.')}"
    chosen = plan if isinstance(plan, LayerPlan) else LayerPlan.parse(plan, whole.depth, str(source))
    if on_disk is not None:
        try:
            on_disk.select(chosen)  # raises where the plan cannot be cut on disk; then it is cut in memory
        except LayerscopeError as error:
            on_disk, reason = None, first_line(error).rstrip(".")
            whole = load(source)
    frame = pandas.DataFrame({"blocks": [f"1-{whole.depth}", str(chosen)]})
    origin = provenance_of([] if on_disk is not None else [whole])
    if folder is None or Team.is_helper():
        return CutStudy(frame, origin, plan=chosen, depth=whole.depth)
    if on_disk is not None:
        compared = on_disk.write(chosen, folder)
        how = f"cut on disk, every tensor compared by its hash{', reopened and compared' * compared}"
        return CutStudy(frame, origin, plan=chosen, depth=whole.depth, saved=folder, how=how)
    refuse_adapters(whole)
    smaller = cut(whole, chosen)
    save_checkpoint(smaller, folder)
    how = f"cut in memory ({reason}), reopened and compared"
    return CutStudy(frame, origin, plan=chosen, depth=whole.depth, model=smaller, saved=folder, how=how)
