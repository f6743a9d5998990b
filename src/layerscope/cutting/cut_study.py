"""`ls.cut_study`: cut a model, score what is left beside the whole, and save it."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

from layerscope import metrics
from layerscope.cutting.curves import healing_step
from layerscope.cutting.cut import cut, cut_network, refuse_adapters
from layerscope.cutting.cut_on_disk import FolderCut
from layerscope.cutting.patch import Patch
from layerscope.cutting.patch import patch as patch_network
from layerscope.cutting.patch_texts import texts_of
from layerscope.cutting.plan import LayerPlan
from layerscope.cutting.save import save as save_checkpoint
from layerscope.data import TaskSource
from layerscope.data import task as open_task
from layerscope.distributed import Team
from layerscope.drawing.captions import numbers
from layerscope.errors import LayerscopeError, first_line
from layerscope.evaluation.evaluate import make_evaluator
from layerscope.models.extras import parameter_count
from layerscope.models.lineage import RECORD
from layerscope.models.load import ModelSource, load
from layerscope.models.sources import folder_of
from layerscope.results import Finding, NextStep, Tabled, provenance_of
from layerscope.results.finding import (
    ANSWER,
    SUPPORT,
    better_end,
    interval,
    number,
    over_windows,
    rows,
    worse,
    worse_end,
)
from layerscope.store import check_free

if TYPE_CHECKING:
    import pandas

    from layerscope.drawing.figure import Figure
    from layerscope.evaluation.evaluator import Evaluator
    from layerscope.evaluation.score import Score
    from layerscope.models import Model


class CutStudy(Tabled):
    """A cut model beside the whole one.

    `.plan` is what was cut, `.depth` how many blocks the whole model has, `.saved` the folder, `.how` in words how it
    came there, `.patch` what was solved for it, where that was asked for.

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
        whole: Model | None = None,
        saved: Path | None = None,
        how: str = "",
        patch: Patch | None = None,
        patched: Any = None,
    ) -> None:
        super().__init__(frame, provenance)
        self.plan, self.depth, self.saved, self.how, self._whole = plan, depth, saved, how, whole
        self.patch, self._patched = patch, patched

    @cached_property
    def model(self) -> Any:
        """The smaller network, which is cut when it is asked for; None where the whole was not opened either."""
        if self._patched is not None:
            return self._patched
        return None if self._whole is None else cut(self._whole, self.plan)

    def figures(self) -> list[Figure]:
        return [numbers("The cut model beside the whole", "Score and size; nothing was trained.", self.frame)]

    def findings(self) -> list[Finding]:
        """What the cut costs, where it was scored, whether it is shown to lose anything, and what a patch did."""
        said = [] if self.patch is None else [Finding(text, "", None, SUPPORT) for text in self.patch.sentences()]
        if "score" not in self.frame:
            return said
        whole, *others = self.frame.to_dict("records")
        findings = over_windows(self.provenance)
        for row in others:
            metric, up = str(row["metric"]), metrics.higher_is_better(str(row["metric"]))
            low, high = float(row["low"]), float(row["high"])
            text = (
                f"Cut, the model ({row['blocks']}) has {metric} {number(row['score'])}, and {number(whole['score'])} "
                f"uncut, with {row['parameters'] / whole['parameters']:.0%} of the parameters."
            )
            # Intervals that do not meet show a difference, however the two scores go together.
            loses = worse(better_end(low, high, up), worse_end(whole["low"], whole["high"], up), up)
            unsure = "" if loses or math.isnan(low) else " meets that of the uncut model"
            evidence = f"{interval(low, high)}{unsure}{rows(self.provenance.get('data', {}).get('n'))}"
            findings.append(Finding(text, evidence, None if math.isnan(low) else bool(loses), ANSWER))
        return [*findings, *said]

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
    patch: TaskSource | None = None,
    other: TaskSource | None = None,
    split: str | None = None,
    limit: int | None = None,
    max_length: int | None = None,
    batch_tokens: int | None = None,
    all_rows: bool = False,
) -> CutStudy:
    """Cut a model, score what is left beside the whole, and save it as a standard checkpoint. Nothing is trained.

    A folder is saved by cutting it on disk, shard by shard, where that is possible. Without a task nothing is scored,
    and then the network is never built.

    Args:
        model: A checkpoint: a folder, a hub id, `id@revision`, a GGUF file, `demo:minilm`, `demo:smollm2`,
            `garden:NAME`, `random:` and one of these, or a `Model`.
        plan: What stays: a `LayerPlan`, or words: `first 8` (the first eight blocks), `without 3-5,9`.
        task: A task of the registry (`layerscope tasks` lists them), a file, a folder, a hub id, or a `Task`; saving
            alone needs none.
        save: A folder that gets the smaller checkpoint, compared with the whole one.
        patch: Texts, whose labels are not used: what the cut takes away is solved for on them, and folded into weights
            that stay, where that helps on texts held out of them. None of them is scored.
        other: With a patch: texts of another domain, on which it must not be worse than the plain cut either.
        split: The split; `validation` where there is one, else the only one.
        limit: Use only the first N examples.
        max_length: The longest text in tokens: what the model allows, at most 512 (running text: 2,048).
        batch_tokens: Tokens per batch, padding included.
        all_rows: Also score the rows that the model learned from.

    Returns:
        A `CutStudy`: `frame` has the whole model, the cut one and the patched one with score, interval and parameters.

    Example:
        >>> import layerscope as ls
        >>> ls.cut_study("garden:bert-s0", ls.LayerPlan([1, 2, 4])).plan.keep
        (1, 2, 4)
    """
    import pandas

    folder = None if save is None else Path(save)
    if folder is not None:
        check_free(folder, RECORD, folder_of(model))
    if task is None:
        return _without_task(model, plan, folder, patch, other)
    data, whole = open_task(task), load(model)
    if folder is not None:
        refuse_adapters(whole)
    chosen = plan if isinstance(plan, LayerPlan) else LayerPlan.parse(plan, whole.depth, whole.name)
    texts = texts_of(whole, patch, other, data)
    rows: dict[str, Any] = {"split": split, "limit": limit, "max_length": max_length, "batch_tokens": batch_tokens}
    evaluator = make_evaluator(whole, data, **rows, all_rows=all_rows, used=() if texts is None else texts.used)
    smaller = cut_network(whole, chosen, share=True)
    networks = {f"1-{whole.depth}": whole, str(chosen): load(smaller)}
    scores = [_score(evaluator.with_model(each)) for each in networks.values()]
    solved = None if texts is None else patch_network(whole, chosen, smaller, texts)
    if solved is not None and solved.applied:
        networks[f"{chosen}, patched"] = load(smaller)
        scores.append(_score(evaluator.with_model(load(smaller))))
    table = pandas.DataFrame(
        {
            "blocks": list(networks),
            "metric": scores[0].metric,
            "score": [float(score) for score in scores],
            "low": [score.interval[0] for score in scores],
            "high": [score.interval[1] for score in scores],
            "parameters": [parameter_count(each.network) for each in networks.values()],
        }
    )
    how = ""
    if folder is not None and not Team.is_helper():  # one of several processes writes
        on_disk = None if patch is not None else _folder_cut(model, chosen)[0]
        if on_disk is not None:
            how = _write(on_disk, chosen, folder, scores[1:])
        else:
            save_checkpoint(smaller, folder, scores=scores[-1])
            how = "reopened and compared"
    made: dict[str, Any] = {"whole": whole, "saved": folder, "how": how}
    made |= {} if solved is None else {"patch": solved, "patched": smaller}
    return CutStudy(table, scores[0].provenance, plan=chosen, depth=whole.depth, **made)


def _score(evaluator: Evaluator) -> Score:
    """Return the score of an evaluator's model."""
    answers, cut_off = evaluator.answers_together(evaluator.examples)
    evaluator.note_cut(cut_off)
    return evaluator.score(answers)


def _folder_cut(source: ModelSource, plan: LayerPlan | str) -> tuple[FolderCut | None, LayerPlan | None, str]:
    """Return the folder that a source names, ready to be cut on disk, and the plan; or the reason why it cannot be."""
    if not isinstance(source, (str, Path)):
        return None, None, ""
    try:
        on_disk = FolderCut(str(source))
    except LayerscopeError as error:
        return None, None, first_line(error).rstrip(".")
    chosen = plan if isinstance(plan, LayerPlan) else LayerPlan.parse(plan, on_disk.model.depth, str(source))
    try:
        on_disk.select(chosen)
    except LayerscopeError as error:
        return None, None, first_line(error).rstrip(".")
    return on_disk, chosen, ""


def _write(on_disk: FolderCut, plan: LayerPlan, folder: Path, scores: Sequence[Score] = ()) -> str:
    """Write a checkpoint that is cut on disk, and return in words how it was compared."""
    compared = on_disk.write(plan, folder, scores)
    return f"cut on disk, every tensor compared by its hash{', reopened and compared' * compared}"


def _without_task(
    source: ModelSource,
    plan: LayerPlan | str,
    folder: Path | None,
    patch: TaskSource | None,
    other: TaskSource | None,
) -> CutStudy:
    """Cut a model that is not scored: on disk where that is possible, else in memory."""
    import pandas

    asked = patch is not None or other is not None
    on_disk, selected, reason = (None, None, "it is patched") if asked else _folder_cut(source, plan)
    if on_disk is not None and selected is not None:
        depth, origin = on_disk.model.depth, provenance_of([])
        frame = pandas.DataFrame({"blocks": [f"1-{depth}", str(selected)]})
        if folder is None or Team.is_helper():
            return CutStudy(frame, origin, plan=selected, depth=depth)
        how = _write(on_disk, selected, folder)
        return CutStudy(frame, origin, plan=selected, depth=depth, saved=folder, how=how)
    whole = load(source)
    reason = reason or f"it is open in {str(whole.network.dtype).removeprefix('torch.')}"
    chosen = plan if isinstance(plan, LayerPlan) else LayerPlan.parse(plan, whole.depth, str(source))
    frame = pandas.DataFrame({"blocks": [f"1-{whole.depth}", str(chosen)]})
    if not asked and (folder is None or Team.is_helper()):
        return CutStudy(frame, provenance_of([whole]), plan=chosen, depth=whole.depth)
    refuse_adapters(whole)
    smaller, how, made = cut_network(whole, chosen, share=True), "", dict[str, Any]()
    texts = texts_of(whole, patch, other)
    if texts is not None:
        made = {"patch": patch_network(whole, chosen, smaller, texts), "patched": smaller}
        reason = "it is patched" if made["patch"].applied else "a patch was solved for it, and not applied"
    if folder is not None and not Team.is_helper():
        save_checkpoint(smaller, folder)
        how = f"cut in memory ({reason}), reopened and compared"
    made |= {"whole": whole, "saved": folder, "how": how}
    return CutStudy(frame, provenance_of([whole]), plan=chosen, depth=whole.depth, **made)
