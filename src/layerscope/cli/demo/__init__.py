"""`layerscope demo`"""

from __future__ import annotations

import logging
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from itertools import takewhile
from pathlib import Path
from typing import TYPE_CHECKING, Any

import typer

from layerscope.cli import console
from layerscope.cli.command import option_of, plain_command
from layerscope.cli.console import FORMAT, Format, show
from layerscope.cli.record import recorded, writable
from layerscope.errors import LayerscopeError, log

if TYPE_CHECKING:
    from layerscope.cli.demo.stage import Outcome, Settings, Stage
    from layerscope.cli.demo.steps import Step
    from layerscope.results import Record

REPORT = "report.html"
_OWN = "On your own model: "  # before the command that does a step to one's own model
NEXT = (
    "layerscope compare path/to/model --task reviews.csv --measure cka -o out",
    "layerscope advise path/to/classifier --task reviews.csv --save smaller -o out",
    "layerscope specialty path/to/model --task reviews.csv -o out",
)
_OUT = typer.Option(
    Path("demo-output"), "--out", "-o", callback=writable, help="Where records, the report and the model go."
)


@plain_command(console.REST, "layerscope demo")
def demo(
    device: str | None = option_of("load", "device"),
    dtype: str | None = option_of("load", "dtype"),
    out: Path = _OUT,
    format: Format = FORMAT,
) -> None:
    """Show what layerscope does, offline: tune a real small model twice, look into it, cut it, and write a report."""
    from layerscope.cli.demo.stage import Settings

    done = play(
        Settings(device=device, dtype=dtype or "float32"), out, say=print if format is Format.table else _nothing
    )
    if format is Format.json:
        show([vars(each) for each in done], format)
    if any(each.state in ("failed", "left out") for each in done):
        raise typer.Exit(1)


@dataclass
class Done:
    """How a step went."""

    step: str
    state: str  # done, kept (from an earlier run), failed, left out, not installed
    seconds: float
    record: str | None  # its folder
    findings: list[str]


def play(settings: Settings, out: Path, say: Any = print) -> list[Done]:
    """All steps in turn; after each one the report shows what there is, so that nothing is lost with a later one."""
    from layerscope.cli.demo.stage import Stage
    from layerscope.cli.demo.steps import STEPS

    started = time.perf_counter()
    stage = Stage(settings, out)
    say(stage.about, flush=True)
    done: list[Done] = []
    try:
        for number, step in enumerate(STEPS, 1):
            say(f"\n{number}/{len(STEPS)}  {_title(step, settings)}", flush=True)
            with _few_notes():
                done.append(_taken(number, step, stage, done))
            for sentence in done[-1].findings:
                if sentence != stage.about:  # which the page repeats, as it is read alone
                    say(f"  {sentence}")
            say("  (from an earlier run)" if done[-1].state == "kept" else f"  ({done[-1].seconds:.0f} s)", flush=True)
            _report(settings, out, done)
    except KeyboardInterrupt:
        finished = sum(each.record is not None for each in done)
        where = f"; {out / REPORT} shows them" if finished else ""
        print(f"\n{finished} of {len(STEPS)} steps are finished{where}.", file=sys.stderr)
        raise
    _end(done, out, time.perf_counter() - started, say)
    return done


def _taken(number: int, step: Step, stage: Stage, before: list[Done]) -> Done:
    """A step's result: from its record if that is this very step's, else computed; a failure is a sentence."""
    folder = stage.out / f"{number}-{step.name}"
    if (said := _kept(folder, step, stage)) is not None:
        return Done(step.name, "kept", 0.0, str(folder), said)
    if step.tuned and any(each.step == "tune" and each.state == "failed" for each in before):
        return Done(step.name, "left out", 0.0, None, ["Left out: it needs the tuned models."])
    if reason := step.missing(stage.settings):
        return Done(step.name, "not installed", 0.0, None, [f"The step {step.name} is left out: {reason}"])
    from layerscope.results import write_record

    started = time.perf_counter()
    try:
        result = step.act(stage)
        seconds = time.perf_counter() - started
        write_record(folder, _record(step, stage, result, seconds))
    except Exception as error:
        if "--debug" in sys.argv:
            raise
        kind = "" if isinstance(error, LayerscopeError) else f"{type(error).__name__}, "
        fault = f"This step failed: {kind}{error} The others go on; the same command tries it again."
        return Done(step.name, "failed", time.perf_counter() - started, None, [fault])
    return Done(step.name, "done", round(seconds, 1), str(folder), list(result.said))


def _kept(folder: Path, step: Step, stage: Stage) -> list[str] | None:
    """What an earlier run of the same step said, or None where there is none."""
    from layerscope.results import read_record

    if step.leaves and not (stage.out / step.leaves / "config.json").is_file():
        return None
    try:
        record = read_record(folder)
    except LayerscopeError:
        return None
    if record.settings.get("demo") != stage.key:
        return None
    # The sentences of the step stand before the findings of its results, and the command stands between them.
    return list(takewhile(lambda said: not said.startswith(_OWN), (finding.text for finding in record.findings)))


def _record(step: Step, stage: Stage, result: Outcome, seconds: float) -> Record:
    from layerscope.results import Finding, NextStep
    from layerscope.results.finding import DETAIL

    said = [*result.said, f"{_OWN}{result.own}"]
    record = recorded(
        step.kind,
        _title(step, stage.settings),
        result.results,
        findings=[Finding(sentence, weight=DETAIL) for sentence in said],
        figures=result.figures,
        seconds=seconds,
        demo=stage.key,
        **result.settings,
    )
    return replace(record, next=NextStep(step.kind, why="Do the same on your own model", line=result.own))


def _title(step: Step, settings: Settings) -> str:
    return step.title.format(model=settings.model, task=settings.task, language_model=settings.language_model)


def _report(settings: Settings, out: Path, done: list[Done]) -> None:
    import layerscope as ls

    if folders := [each.record for each in done if each.record is not None]:
        ls.report(folders, out / REPORT, title=f"layerscope demo: {settings.model} on {settings.task}")


def _end(done: list[Done], out: Path, seconds: float, say: Any) -> None:
    failed = [each.step for each in done if each.record is None]
    if failed:
        say(f"\nWithout a result: {', '.join(failed)}. Everything else is in the report.")
    if any(each.record for each in done):
        say(f"\nThe report is {(out / REPORT).absolute()}: open it in a browser. ({seconds:.0f} s)")
    say("Next, on your own model and data:")
    for command in NEXT:
        say(f"  {command}")


@contextmanager
def _few_notes() -> Iterator[None]:
    """Without the notes of single commands, such as how many texts are cut off; `--verbose` keeps them."""
    level = log.level
    if level != logging.INFO:
        log.setLevel(logging.ERROR)
    try:
        yield
    finally:
        log.setLevel(level)


def _nothing(*_: Any, **__: Any) -> None:
    """Say nothing: the output is for a program."""
