"""`layerscope advise`"""

from __future__ import annotations

import logging
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import typer

from layerscope.cli import console
from layerscope.cli.command import Given, command
from layerscope.cli.console import FORMAT, Format, answer, show
from layerscope.cli.options import PRINT_AS, PUBLIC, PUSH_TO_HUB, SAVE
from layerscope.cli.record import OUT, keep
from layerscope.cli.saving import check_publishing, check_save, chosen, print_plan, publish, saved
from layerscope.errors import InputError, log

if TYPE_CHECKING:
    from pandas import DataFrame

    from layerscope.cutting.advice import Advice
    from layerscope.data import Task
    from layerscope.tuning.heal_advice import HealedAdvice

_SCORES = ("blocks", "rule", "chosen_on", "change_low", "score", "low", "high")
_COSTS = ("parameters", "macs", "latency_1_ms", "latency_32_ms", "chosen")


@command(
    "advise",
    panel=console.LOSE,
    examples=[
        "layerscope advise path/to/classifier --task sst2 --tolerance 0.01 --save smaller",
        "layerscope advise path/to/language-model --task wikitext --rules angular,greedy,random --blocks 24",
        "layerscope advise path/to/language-model --task wikitext --parameters 100M --print-as mergekit",
        "layerscope advise path/to/classifier --task sst2 --patch texts.txt --save smaller",
    ],
)
def advise(
    given: Given,
    heal: int | None = typer.Option(
        None, "--heal", help="Heal the plans on the Pareto front for N steps; show scores before and after."
    ),
    heal_on: str | None = typer.Option(
        None, "--heal-on", help="With --heal: texts to heal on, where the task has no train split."
    ),
    save: Path | None = SAVE,
    push_to_hub: str | None = PUSH_TO_HUB,
    public: bool = PUBLIC,
    save_anyway: bool = typer.Option(
        False,
        "--save-anyway",
        help="With a target, a tolerance and --save: save the best plan that meets the target, even if it loses more "
        "than the tolerance. The exit code is 3 all the same.",
    ),
    print_as: str | None = PRINT_AS,
    out: Path | None = OUT,
    all: bool = typer.Option(
        False, "--all", help="Print every candidate, not only the best one for each number of blocks."
    ),
    format: Format = FORMAT,
) -> None:
    """Find the blocks that a model can lose: the smallest model within a tolerance, or the best one of a given size.

    Rules propose plans and every plan is evaluated. One half of the rows chooses, the other half scores the choice.
    Within a tolerance, a quarter of the choosing half picks a candidate of each size and the rest confirms the picks,
    so that the confidence still holds after the choice. How long it will take is printed first. Printed are the best
    plan for each number of blocks and how the rules did; --verbose adds each rule's best plan of each size.

    A target and a tolerance together ask for the best plan that meets the target, and whether it is within the
    tolerance. Where it is not, or where no block can go, nothing is saved and the exit code is 3.
    """
    from layerscope.cutting.plan import check_tool

    check_tool(print_as)
    check_publishing(push_to_hub, public, save)
    _check(given, heal, heal_on, save, save_anyway)
    model = given["model"]
    given.require_task()
    texts = None if heal_on is None else given.open_task(heal_on)
    check_save(save, given.model)
    advice = given.call("advise")
    title, depth = f"What {given.label('model')} can lose on {given['task']}", given.model.depth
    if format is Format.table:
        show(_table(advice, all, format).to_dict("records"), format, title)
        _show_rules(advice)
        print("\n".join(map(str, advice.findings())))
    if print_as is not None and not advice.choice.removed(depth):
        print("No block can go, so there is no plan to print.", file=sys.stderr)
    elif print_as is not None:
        print_plan(print_as, advice.choice, model, depth, format)
    healed: HealedAdvice | None = None
    if heal is not None:
        healed = _heal(given, advice, heal, texts, format)
    verdict = advice.verdict if healed is None else healed.verdict
    answer().verdict = vars(verdict)
    chosen(advice.choice if healed is None or healed.choice is None else healed.choice, depth)
    if format is Format.table and (_targeted(given) or not verdict.met):
        print(f"{'Met' if verdict.met else 'Not met'}: {verdict.says}")
    if format is Format.json:
        show(_json_rows(advice, healed, all), format)
    keep(out, "advise", title, {"advice": advice, **({} if healed is None else {"healed": healed})})
    if save is not None and not verdict.met and not save_anyway:
        print(f"Nothing was saved in {save}.", file=sys.stderr)
    elif save is not None:
        how = _save(given, advice, healed, save)
        saved(save, format, how)
        publish(save, push_to_hub, public, format)


def _targeted(given: Given) -> bool:
    """Whether a target was given."""
    return "blocks" in given or "parameters" in given or "latency" in given


def _check(given: Given, heal: int | None, heal_on: str | None, save: Path | None, save_anyway: bool) -> None:
    """Raise InputError where two options do not go together."""
    if save_anyway and not (save is not None and _targeted(given) and "tolerance" in given):
        raise InputError(
            "--save-anyway saves the best plan that meets a target where it is outside the tolerance; give a target "
            "(--blocks, --parameters or --latency), --tolerance and --save too, or leave it out."
        )
    if heal_on is not None and heal is None:
        raise InputError("--heal-on names texts to heal on; give --heal STEPS too, or leave it out.")
    if heal is not None and "patch" in given:
        raise InputError(
            "--patch judges plans by what they are worth patched, and --heal trains the plain cuts; choose a plan with "
            "--patch first, then heal it: layerscope heal MODEL --without BLOCKS --patch TEXTS."
        )


def _heal(given: Given, advice: Advice, heal: int, texts: Task | None, format: Format) -> HealedAdvice:
    """Heal the plans of the front, and show their scores before and after."""
    from layerscope.tuning.heal_advice import HELD_OUT, heal_advice

    # Windows and texts are as long as those that chose.
    options = {"seed": given["seed"] or 0, "max_length": advice.evaluator.reading.max_length}
    healed = heal_advice(advice, given.task, steps=heal, on=texts, **options)
    if format is Format.table:
        show(healed.frame.to_dict("records"), format, f"Healed with {heal} steps, on {HELD_OUT}")
        print("\n".join(map(str, healed.findings())))
    return healed


def _save(given: Given, advice: Advice, healed: HealedAdvice | None, folder: Path) -> str:
    """Save what was chosen, and say how that was done."""
    import layerscope as ls

    if healed is not None and healed.model is not None:
        ls.save(healed.model, folder, scores=() if healed.score is None else healed.score)
        return "reopened and compared"
    # The float type of weights can only be changed in memory.
    return advice.save_model(folder, None if "dtype" in given else given["model"])


def _json_rows(advice: Advice, healed: HealedAdvice | None, all: bool) -> list[dict[Any, Any]]:
    """The table, and what healing changes of those plans that were healed."""
    rows: list[dict[Any, Any]] = _table(advice, all, Format.json).to_dict("records")
    if healed is not None:
        healed_rows = {row["blocks"]: row for row in healed.frame.to_dict("records")}
        for row in rows:
            found = healed_rows.get(row["blocks"])
            names = ("before", "after", "low", "high", "chosen")
            row["healed"] = None if found is None else {name: found[name] for name in names}
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
            "How the rules did, on rows that did not choose: at how many sizes each has the best plan (of random plans "
            "the middle one counts). The column rule above says which rules found a plan, whatever rows picked it",
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
