"""`layerscope advise`"""

from __future__ import annotations

import logging
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import typer

from layerscope.cli import helptext
from layerscope.cli.cutting import PRINT_AS, check_save, print_plan, saved
from layerscope.cli.options import COLUMNS, Columns, Data, Given, Publishing, integers, with_columns
from layerscope.cli.output import FORMAT, Format, show
from layerscope.cli.publishing import check_publishing, publish
from layerscope.cli.record import OUT, keep
from layerscope.errors import InputError, log
from layerscope.registry import Registry

if TYPE_CHECKING:
    from pandas import DataFrame

    from layerscope.cutting.advice_results import Advice
    from layerscope.data import Task
    from layerscope.tuning.healed_advice import HealedAdvice

PLACE = 60  # in the help text
PANEL = helptext.LOSE
RULES: Registry[object] = Registry("layerscope.cutting.rules", "rule")  # for their names alone: nothing is imported
_SCORES = ("blocks", "rule", "chosen_on", "change_low", "score", "low", "high")
_COSTS = ("parameters", "macs", "latency_1_ms", "latency_32_ms", "chosen")


def register(app: typer.Typer) -> None:
    app.command(
        epilog="Example:  `layerscope advise path/to/classifier --task sst2 --tolerance 0.01 --save smaller`  \n"
        "`layerscope advise path/to/language-model --task wikitext --rules angular,greedy,random --blocks 24`  \n"
        "`layerscope advise path/to/language-model --task wikitext --parameters 100M --print-as mergekit`"
    )(advise)


@with_columns
def advise(
    model: str = Given.model,
    task: str = Data.task,
    tolerance: str | None = typer.Option(
        None,
        help="How much of the metric may be lost: 0.01 (the default), or a share such as 5%, as perplexity needs.",
    ),
    confidence: float = typer.Option(0.9, help="How sure that must be; 0 takes what looks good enough, and warns."),
    rules: str | None = typer.Option(
        None, help=f"Where plans come from: {', '.join(RULES)}, separated by commas; chosen by the depth if not given."
    ),
    blocks: int | None = typer.Option(None, help="In place of a tolerance: the best plan that keeps N blocks."),
    parameters: str | None = typer.Option(
        None, help="In place of a tolerance: the best plan with at most N parameters: 100M, or 80%."
    ),
    latency: str | None = typer.Option(
        None, help="In place of a tolerance: the best plan that takes at most 40ms, or 80% of the time, for one text."
    ),
    remove: str | None = typer.Option(
        None, help="How many blocks plans leave out: 4, or 1,2,4-8; chosen by the depth if not given."
    ),
    max_span: int | None = typer.Option(
        None, help="The longest span that is left out, in blocks (spans, angular, deepest)."
    ),
    evaluations: int = typer.Option(256, help="How many plans the greedy search may evaluate."),
    timed: bool = typer.Option(True, "--timed/--no-timed", help="Measure the latency of every candidate."),
    heal: int | None = typer.Option(
        None, "--heal", help="Heal the plans on the Pareto front for N steps; show scores before and after."
    ),
    heal_on: str | None = typer.Option(
        None, "--heal-on", help="With --heal: texts to heal on, where the task has no train split."
    ),
    save: Path | None = Given.save,
    push_to_hub: str | None = Publishing.push_to_hub,
    public: bool = Publishing.public,
    print_as: str | None = PRINT_AS,
    out: Path | None = OUT,
    all: bool = typer.Option(
        False, "--all", help="Print every candidate, not only the best one for each number of blocks."
    ),
    seed: int = typer.Option(0, help="Decides which rows pick, confirm and score."),
    split: str | None = Data.split,
    limit: int | None = Given.limit,
    max_length: int | None = Given.max_length,
    all_rows: bool = Given.all_rows,
    device: str | None = Given.device,
    dtype: str = Given.dtype,
    columns: Columns = COLUMNS,
    format: Format = FORMAT,
) -> None:
    """Find the blocks that a model can lose: the smallest model within a tolerance, or the best one of a given size.

    Rules propose plans and every plan is evaluated. One half of the rows chooses, the other half scores the choice.
    Within a tolerance, a quarter of the choosing half picks a candidate of each size and the rest confirms the picks,
    so that the confidence still holds after the choice. How long it will take is printed first. Printed are the best
    plan for each number of blocks and how the rules did; --verbose adds each rule's best plan of each size.
    """
    import layerscope as ls
    from layerscope.cutting.advice import consult
    from layerscope.cutting.exports import check_tool
    from layerscope.tuning.healed_advice import HELD_OUT

    check_tool(print_as)
    check_publishing(push_to_hub, public, save)
    if tolerance is not None and (blocks, parameters, latency) != (None, None, None):
        raise InputError(
            "--blocks, --parameters and --latency ask for the best plan of a size, whatever it loses, and --tolerance "
            "for the smallest that loses little; give one or the other."
        )
    opened = ls.load(model, device=device, dtype=dtype)
    check_save(save, opened)
    data = columns.open(task)
    if heal_on is not None and heal is None:
        raise InputError("--heal-on names texts to heal on; give --heal STEPS too, or leave it out.")
    texts = None if heal_on is None else columns.open(heal_on)
    consultation = consult(
        opened,
        data,
        tolerance=0.01 if tolerance is None else tolerance,
        confidence=confidence,
        rules=rules,
        blocks=blocks,
        parameters=parameters,
        latency=latency,
        remove=None if remove is None else integers(remove),
        max_span=max_span,
        evaluations=evaluations,
        timed=timed,
        split=split,
        limit=limit,
        max_length=max_length,
        seed=seed,
        all_rows=all_rows,
    )
    print(consultation.effort, file=sys.stderr)
    advice = consultation.advice()
    title = f"What {model} can lose on {task}"
    if format is Format.table:
        show(_table(advice, all, format).to_dict("records"), format, title)
        _show_rules(advice)
        print("\n".join(advice.findings()))
    if print_as is not None and not advice.choice.removed(opened.depth):
        print("No block can go, so there is no plan to print.", file=sys.stderr)
    elif print_as is not None:
        print_plan(print_as, advice.choice, model, opened.depth, format)
    healed = None if heal is None else _heal(advice, data, heal, texts, seed)
    if healed is not None and format is Format.table:
        show(healed.frame.to_dict("records"), format, f"Healed with {heal} steps, on {HELD_OUT}")
        print("\n".join(healed.findings()))
    if format is Format.json:
        show(_json_rows(advice, healed, all), format)
    keep(out, "advise", title, {"advice": advice, **({} if healed is None else {"healed": healed})})
    if save is not None and healed is not None and healed.model is not None:
        ls.save(healed.model, save, scores=() if healed.score is None else healed.score)
    elif save is not None:
        ls.save(advice.model, save, scores=advice.score)
    if save is not None:
        whole = healed is None and not advice.choice.removed(opened.depth)
        saved(save, format, "the whole model, since no block can go" if whole else "reopened and compared")
        publish(save, push_to_hub, public, format)


def _heal(advice: Advice, data: Task, steps: int, texts: Task | None, seed: int) -> HealedAdvice:
    """The front's plans, healed; windows and texts are as long as those that chose."""
    from layerscope.tuning.healed_advice import heal_advice

    return heal_advice(advice, data, steps=steps, on=texts, seed=seed, max_length=advice.exam.reading.max_length)


def _json_rows(advice: Advice, healed: HealedAdvice | None, all: bool) -> list[dict[Any, Any]]:
    """The table, and what healing changes of those plans that were healed."""
    rows: list[dict[Any, Any]] = _table(advice, all, Format.json).to_dict("records")
    if healed is not None:
        known = {row["blocks"]: row for row in healed.frame.to_dict("records")}
        for row in rows:
            own = known.get(row["blocks"], {})
            row["healed"] = {name: own[name] for name in ("before", "after", "low", "high", "chosen")} if own else None
    return rows


def _show_rules(advice: Advice) -> None:
    """How the rules did, in one row each; with --verbose their best plans of each size, too."""
    if log.isEnabledFor(logging.INFO):
        rows = advice.rules.to_dict("records")
        show(rows, Format.table, "Each rule's best plan of each size, beside random blocks")
    if len(advice.rule_names) > 1:
        rows = advice.rules_in_short.to_dict("records")
        show(
            rows,
            Format.table,
            "How the rules did: at how many sizes each has the best plan, on rows that did not choose",
        )


def _table(advice: Advice, all: bool, format: Format) -> DataFrame:
    """The whole model, the best plan of each size and what was chosen; in JSON the front too; or every candidate."""
    from layerscope.cutting.candidates import best_of_each_size

    frame = advice.frame
    shown = frame["chosen"] | frame["change"].notna() | best_of_each_size(frame)
    if format is Format.json:
        shown |= frame["front"]
    if not all:
        frame = frame[shown]
    frame = frame.sort_values("macs")
    if format is Format.table:
        frame = frame.assign(blocks=frame["blocks"].where(frame["removed"] > 0, frame["blocks"] + " (whole model)"))
    return frame[[*_SCORES, *(name for name in _COSTS if frame[name].notna().any())]]
