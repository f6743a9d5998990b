"""`layerscope demo`: tunes a small real model twice, then studies what came of it, and a language model."""

from __future__ import annotations

import shutil
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

import typer

from layerscope.cli import console
from layerscope.cli.command import option_of, plain_command
from layerscope.cli.console import FORMAT, Format, show
from layerscope.cli.record import recorded, writable
from layerscope.errors import LayerscopeError

if TYPE_CHECKING:
    from layerscope.models import Model
    from layerscope.recipes.study import ModelStudy

REPORT = "report.html"
TUNED, STUDIED, LANGUAGE = "1-tuned", "2-study", "3-language-model"
NEXT = "layerscope study path/to/model --task reviews.csv -o out"
_CHECKPOINT = "checkpoint"  # of a training
_OUT = typer.Option(Path("demo-output"), "--out", "-o", callback=writable, help="Where records and reports go.")


@dataclass(frozen=True)
class Settings:
    """What the demo looks at, and how much of it: three minutes on two cores."""

    model: str = "demo:minilm"
    task: str = "pydocs"
    seeds: tuple[int, ...] = (1, 2)
    steps: int = 100
    batch: int = 16
    learning_rate: float = 3e-4
    max_length: int = 24  # tokens that are read of a text; most of pydocs are shorter
    texts: int = 400  # of the validation split
    budget: float = 1.5  # minutes for the study of the tuned model
    tolerance: float = 0.02  # accuracy that the smaller model may lose
    language_model: str = "demo:smollm2"
    language_texts: int = 60  # that it reads, joined
    window: int = 64  # tokens that it reads at once
    language_budget: float = 1.5
    lost: str = "25%"  # of its perplexity, which the smaller one may have more
    device: str | None = None  # where models run; the first GPU where there is one
    dtype: str = "float32"  # that they are opened in


@dataclass
class Done:
    """How a step went."""

    step: str
    state: str  # done, failed, left out, not installed
    seconds: float
    folder: str | None  # with its record, or its study
    findings: list[str]
    records: list[Path] = field(default_factory=list)


@plain_command(console.REST, "layerscope demo")
def demo(
    device: str | None = option_of("load", "device"),
    dtype: str | None = option_of("load", "dtype"),
    out: Path = _OUT,
    format: Format = FORMAT,
) -> None:
    """Show what layerscope does, offline: tune a small real model twice, study it and a language model, and report."""
    settings = Settings(device=device, dtype=dtype or "float32")
    done = play(settings, out, say=print if format is Format.table else _nothing)
    if format is Format.json:
        show([{name: value for name, value in vars(each).items() if name != "records"} for each in done], format)
    if any(each.state in ("failed", "left out") for each in done):
        raise typer.Exit(1)


def play(settings: Settings, out: Path, say: Any = print) -> list[Done]:
    """Take all steps in turn; after each the report shows what there is, so that nothing is lost with a later one."""
    from layerscope.recipes.study import quietly

    started = time.perf_counter()
    steps: dict[str, tuple[str, Callable[[], tuple[Path, Sequence[Path], list[str]]]]] = {
        "tune": (f"Tune {settings.model} on {settings.task}, with two seeds", lambda: _tune(settings, out)),
        "study": (
            f"layerscope study of what came of it, with --base {settings.model} and --other the second seed",
            lambda: _told(_study(settings, out)),
        ),
        "language": (
            f"layerscope study of a language model, {settings.language_model}",
            lambda: _told(_study_language(settings, out)),
        ),
    }
    done: list[Done] = []
    try:
        for number, (name, (title, act)) in enumerate(steps.items(), 1):
            say(f"\n{number}/{len(steps)}  {title}", flush=True)
            with quietly():
                done.append(_taken(name, act, settings, done))
            for sentence in done[-1].findings:
                say(f"  {sentence}")
            say(f"  ({done[-1].seconds:.0f} s)", flush=True)
            _report(settings, out, done)
    except KeyboardInterrupt:
        finished = sum(each.folder is not None for each in done)
        where = f"; {out / REPORT} shows them" if finished else ""
        print(f"\n{finished} of {len(steps)} steps are finished{where}.", file=sys.stderr)
        raise
    if lacking := [each.step for each in done if each.folder is None]:
        say(f"\nWithout a result: {', '.join(lacking)}. Everything else is in the report.")
    if any(each.folder for each in done):
        took = time.perf_counter() - started
        say(f"\nThe report is {(out / REPORT).absolute()}: open it in a browser. ({took:.0f} s)")
    say(f"Next, on your own model and data:\n  {NEXT}")
    return done


def _taken(
    name: str, act: Callable[[], tuple[Path, Sequence[Path], list[str]]], settings: Settings, before: Sequence[Done]
) -> Done:
    """Take a step and return how it went; a failure is a sentence."""
    if name == "study" and before[0].state == "failed":
        return Done(name, "left out", 0.0, None, ["Left out: it needs the tuned models."])
    if name == "language" and (reason := missing(settings)):
        return Done(name, "not installed", 0.0, None, [f"The step {name} is left out: {reason}"])
    started = time.perf_counter()
    try:
        folder, records, findings = act()
    except Exception as error:
        if "--debug" in sys.argv:
            raise
        kind = "" if isinstance(error, LayerscopeError) else f"{type(error).__name__}, "
        fault = f"This step failed: {kind}{error} The others go on; the same command tries it again."
        return Done(name, "failed", time.perf_counter() - started, None, [fault])
    seconds = round(time.perf_counter() - started, 1)
    return Done(name, "done", seconds, str(folder), findings, list(records))


def missing(settings: Settings) -> str:
    """Return what must be installed for the language model, in a sentence; nothing where all is there."""
    import importlib.util

    from layerscope.errors import ModelError
    from layerscope.models.sources import DEMO_LM, demo_lm_file

    if settings.language_model != DEMO_LM:
        return ""
    try:
        demo_lm_file()
    except ModelError as error:
        return str(error)
    there = importlib.util.find_spec("gguf") is not None
    return "" if there else f"{DEMO_LM} is a GGUF file; install what reads it with: pip install 'layerscope[gguf]'."


def _tune(s: Settings, out: Path) -> tuple[Path, Sequence[Path], list[str]]:
    """Tune the model with every seed; each training is kept in the store and made once, and its model goes into OUT."""
    import layerscope as ls
    from layerscope.models.lineage import RECORD
    from layerscope.store import atomic_folder

    options: dict[str, Any] = {"max_steps": s.steps, "batch": s.batch, "learning_rate": s.learning_rate}
    options |= {"max_length": s.max_length, "validation_limit": s.texts}
    trainings = ls.tune(_opened(s.model, s), s.task, seeds=list(s.seeds), **options)
    for training, place in zip(trainings.trainings, _tuned(s, out), strict=True):
        with atomic_folder(place, RECORD) as folder:
            shutil.copytree(training.path / _CHECKPOINT, folder, dirs_exist_ok=True)
    scores, majority = [f"{t.score:.3f}" for t in trainings.trainings], trainings.trainings[0].majority
    said = (
        f"{s.steps} steps of {s.batch} texts with seeds {' and '.join(map(str, s.seeds))} give {trainings.metric} "
        f"{' and '.join(scores)} on {s.texts} validation texts; always the most frequent class would give "
        f"{majority:.3f}."
    )
    record = recorded("tune", f"Tune {s.model} on {s.task}", {"trainings": trainings}, demo=asdict(s))
    ls.write_record(out / TUNED, record)
    return out / TUNED, [out / TUNED], [said]


def _tuned(s: Settings, out: Path) -> list[Path]:
    """Return where the tuned models are."""
    return [out / f"tuned-{seed}" for seed in s.seeds]


def _opened(source: str | Path, s: Settings) -> Model:
    import layerscope as ls

    return ls.load(source, device=s.device, dtype=s.dtype)


def _study(s: Settings, out: Path) -> ModelStudy:
    import layerscope as ls

    first, *others = (_opened(place, s) for place in _tuned(s, out))
    given: dict[str, Any] = {"budget": s.budget, "tolerance": s.tolerance, "limit": s.texts, "max_length": s.max_length}
    return ls.study(first, s.task, base=_opened(s.model, s), others=others, out=out / STUDIED, **given)


def _study_language(s: Settings, out: Path) -> ModelStudy:
    import layerscope as ls

    texts = ls.task(s.task, kind="text")
    given: dict[str, Any] = {"budget": s.language_budget, "tolerance": s.lost, "limit": s.language_texts}
    return ls.study(_opened(s.language_model, s), texts, max_length=s.window, out=out / LANGUAGE, **given)


def _told(study: ModelStudy) -> tuple[Path, Sequence[Path], list[str]]:
    """Return the folder of a study, its records and its findings."""
    return study.folder, list(study.records.values()), [str(finding) for finding in study.findings()]


def _report(settings: Settings, out: Path, done: Sequence[Done]) -> None:
    import layerscope as ls

    if records := [record for each in done for record in each.records]:
        ls.report(records, out / REPORT, title=f"layerscope demo: {settings.model} on {settings.task}")


def _nothing(*_: Any, **__: Any) -> None:
    """Say nothing: the output is for a program."""
