"""Scores by lm-evaluation-harness: the harness runs a loaded model, and its numbers come back as a result.

The result has a row for every task and metric, each with the kind of number that it is.
"""

from __future__ import annotations

import copy
import fnmatch
import importlib.metadata
import importlib.util
import io
import logging
import math
import random
import re
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager, redirect_stderr
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import torch

from layerscope.drawing.captions import caveat
from layerscope.drawing.figures.bars import BarsFigure
from layerscope.errors import (
    DataError,
    InputError,
    LayerscopeError,
    ModelError,
    UnknownNameError,
    device_fault,
    first_line,
    log,
    near,
)
from layerscope.evaluation.score import GENERATION, Number, Score
from layerscope.models import Model
from layerscope.models.architecture import evaluating
from layerscope.models.heads import HEADS
from layerscope.models.lineage import learned
from layerscope.models.load import quiet
from layerscope.results import Finding, provenance_of
from layerscope.results.finding import DETAIL

if TYPE_CHECKING:
    import pandas

    from layerscope.drawing.figure import Figure


LIKELIHOOD = "multiple choice by likelihood"
# The kind of score that a task has, by its `output_type`.
KINDS = {
    "multiple_choice": LIKELIHOOD,
    "loglikelihood": "likelihood of one answer",
    "loglikelihood_rolling": "perplexity",
    "generate_until": GENERATION,
}
_MIXED = "several kinds"


class HarnessScore(Score):
    """Scores of lm-evaluation-harness: a table with a row for every task and metric.

    As a number it is the first metric of its one task; of several it is NaN, for they have no number in common.
    """

    name = "harness"
    rows: list[dict[str, Any]]

    @property
    def frame(self) -> pandas.DataFrame:
        """One row per number: task, split, metric, filter, value, stderr, n, shots, higher_is_better, kind."""
        import pandas

        return pandas.DataFrame(self.rows)

    @property
    def higher_is_better(self) -> bool:
        return bool(self.rows[0]["higher_is_better"])

    @property
    def numbers(self) -> list[Number]:
        return [_number(row) for row in self.rows]

    @property
    def asked_for(self) -> list[Number]:
        return self.numbers

    def findings(self) -> list[Finding]:
        """A word on what choices by likelihood do not show, where nothing else was asked."""
        kinds = {row["kind"] for row in self.rows}
        hidden = "Choices by likelihood hide damage that generation shows, and none of these tasks generates."
        return [Finding(hidden, "", None, DETAIL)] if kinds == {LIKELIHOOD} else []

    def figures(self) -> list[Figure]:
        shown = [row for row in self.rows if row["metric"] == self.rows[0]["metric"]]
        numbers = [_number(row) for row in shown]
        return [
            BarsFigure(
                title="Scores of lm-evaluation-harness",
                shows=f"{self.rows[0]['metric']} of {self.row['model']}, with 95% intervals.",
                reading="Higher is better." if self.higher_is_better else "Lower is better.",
                caveat=caveat(self.note, min(number.n for number in numbers)),
                names=tuple(number.task for number in numbers),
                values=tuple(number.value for number in numbers),
                low=tuple(number.low for number in numbers),
                high=tuple(number.high for number in numbers),
                y_name=str(self.rows[0]["metric"]),
            )
        ]

    def __repr__(self) -> str:
        tasks = list(dict.fromkeys(row["task"] for row in self.rows))
        if len(tasks) == 1:
            return f"HarnessScore({tasks[0]}: {self.metric} {float(self):.4f}, n = {self.n:,})"
        return f"HarnessScore({len(tasks)} tasks: {', '.join(tasks[:5])}{', ..' if len(tasks) > 5 else ''})"

    def __reduce__(self) -> Any:
        return _rebuilt, (*self.__getnewargs_ex__(), self.rows)


def _rebuilt(value: tuple[float], arguments: dict[str, Any], rows: list[dict[str, Any]]) -> HarnessScore:
    """Return a score with its rows, when it is unpickled."""
    score = HarnessScore(*value, **arguments)
    score.rows = rows
    return score


def _number(row: Mapping[str, Any]) -> Number:
    """Return a row of the table as a number with a 95% interval, made from the standard error."""
    named = row["metric"] if row["filter"] in ("", "none") else f"{row['metric']} ({row['filter']})"
    width = 1.96 * row["stderr"] or math.nan  # answers that are all alike say nothing of their spread
    return Number(
        task=str(row["task"]),
        split=str(row["split"]),
        metric=named,
        value=row["value"],
        n=row["n"],
        kind=row["kind"],
        low=row["value"] - width,
        high=row["value"] + width,
        interval_note="" if width > 0 else "the harness gives no standard error, or all answers are alike",
    )


def score_of(model: Model, output: Mapping[str, Any], asked: Mapping[str, Any]) -> HarnessScore:
    """Return the score of a model from the harness's output, with the settings that were asked for."""
    rows = [row for name in output["results"] for row in _rows(output, name)]
    if not rows:
        raise InputError("lm-eval gave no number for the tasks that were named.")
    tasks = list(dict.fromkeys(row["task"] for row in rows))
    single = len([name for name in tasks if not _is_member(output, name)]) == 1
    first = next(row for row in rows if not _is_member(output, row["task"]))
    note = "" if single else "several tasks have no number in common: the table has each"
    if learned(model.network):
        note = "; ".join(part for part in (note, "rows that the model learned from are not left out") if part)
    versions = {name: output["versions"].get(name) for name in tasks if output["versions"].get(name) is not None}
    settings = {**asked, "versions": versions}
    data = {"task": ", ".join(tasks), "split": first["split"] if single else "", "texts": first["n"]}
    score = HarnessScore(
        first["value"] if single else math.nan,
        metric=first["metric"] if single else "",
        metrics={f"{row['task']}/{_number(row).metric}": row["value"] for row in rows},
        n=first["n"] if single else sum(row["n"] for row in {row["task"]: row for row in rows}.values()),
        majority=math.nan,
        provenance=provenance_of([model], data, settings),
        note=note,
        kind=first["kind"] if single else _MIXED,
        interval=(_number(first).low, _number(first).high) if single else (math.nan, math.nan),
        interval_note=_number(first).interval_note if single else "several tasks have no number in common",
    )
    score.rows = rows
    return score


def _is_member(output: Mapping[str, Any], name: str) -> bool:
    """Return whether a task belongs to a group that has a number itself."""
    groups = output.get("group_subtasks") or {}
    return any(name in members for group, members in groups.items() if group != name and _rows(output, group))


def _members(output: Mapping[str, Any], name: str) -> list[str]:
    """Return the tasks under a name: the task itself, or those of its groups."""
    below = (output.get("group_subtasks") or {}).get(name) or []
    return [leaf for each in below for leaf in _members(output, each)] if below else [name]


def _rows(output: Mapping[str, Any], name: str) -> list[dict[str, Any]]:
    """Return the numbers of one task or group as rows of the table."""
    result, leaves = output["results"].get(name, {}), _members(output, name)
    configs = [output["configs"].get(leaf, {}) for leaf in leaves]
    kinds = {KINDS.get(str(config.get("output_type")), str(config.get("output_type"))) for config in configs}
    splits = {str(config.get("test_split") or config.get("validation_split") or "") for config in configs}
    sizes = [int((output["n-samples"].get(leaf) or {}).get("effective", 0)) for leaf in leaves]
    rows = []
    for key, value in result.items():
        metric, comma, filtered = str(key).partition(",")
        if not comma or metric.endswith("_stderr") or not isinstance(value, (int, float)):
            continue
        error = result.get(f"{metric}_stderr,{filtered}")
        rows.append(
            {
                "task": name,
                "split": next(iter(splits)) if len(splits) == 1 else "",
                "metric": metric,
                "filter": filtered,
                "value": float(value),
                "stderr": float(error) if isinstance(error, (int, float)) else math.nan,
                "n": sum(sizes),
                "shots": output["n-shot"].get(leaves[0]),
                "higher_is_better": (output["higher_is_better"].get(name) or {}).get(metric, True),
                "kind": next(iter(kinds)) if len(kinds) == 1 else _MIXED,
            }
        )
    return rows


_BATCH = 8  # texts
_ROUNDS = 1000  # of the bootstrap, for the few metrics that have no other standard error
_ENDINGS = (".yaml", ".yml")


class Harness:
    """A model and the harness's tasks for it; what cannot be asked raises an error here, before anything runs."""

    def __init__(self, model: Model, tasks: Any) -> None:
        self.model = model
        _require()
        _check(model)
        wanted = [tasks] if isinstance(tasks, (str, Path, Mapping)) else list(tasks)
        if not wanted:
            raise InputError("lm_eval names no task; give names such as 'hellaswag', or files that end in .yaml.")
        with _quietly(), _own_randomness():
            self.manager = _manager(wanted)
            self.tasks = [task for each in wanted for task in _opened(self.manager, each)]
        groups = [task.get_all_tasks() if hasattr(task, "get_all_tasks") else [task] for task in self.tasks]
        leaves = [leaf for group in groups for leaf in group]
        asked = {str(leaf.get_config("output_type")) for leaf in leaves}
        if "generate_until" in asked and model.require_tokenizer().eos_token_id is None:
            raise ModelError(
                f"The tokenizer of {model.name} has no last token (EOS), at which lm-eval ends what is generated; set "
                "tokenizer.eos_token, or leave out the tasks that generate."
            )

    def score(self, limit: int | None = None, max_length: int | None = None) -> HarnessScore:
        """Run the harness on the tasks and return its scores."""
        from lm_eval import simple_evaluate
        from lm_eval.models.huggingface import HFLM

        model = self.model
        longest = max_length or model.positions
        try:
            with _quietly(), _own_randomness(), evaluating(model.network):
                tested = HFLM(
                    pretrained=model.network,
                    tokenizer=copy.deepcopy(model.require_tokenizer()),  # the harness sets a token for padding on it
                    max_length=longest,
                    batch_size=1 if model.architecture.unpadded else _BATCH,
                )
                output = simple_evaluate(
                    tested,
                    tasks=self.tasks,
                    task_manager=self.manager,
                    limit=limit,
                    bootstrap_iters=_ROUNDS,
                    log_samples=False,
                )
        except LayerscopeError:
            raise
        except Exception as error:  # tasks run code of their own
            if device_fault(error) is not None:
                raise
            raise InputError(f"lm-eval stopped on {model.name}: {first_line(error)}.") from error
        version = importlib.metadata.version("lm_eval")
        batch = 1 if model.architecture.unpadded else _BATCH
        return score_of(model, output, {"lm_eval": version, "limit": limit, "max_length": longest, "batch": batch})


def _require() -> None:
    if importlib.util.find_spec("lm_eval") is None:
        raise ModelError(
            "Tasks of lm-evaluation-harness need lm-eval; install it with: pip install 'layerscope[lm-eval]'."
        )


def _check(model: Model) -> None:
    """Raise ModelError where the harness cannot ask this model, with the reason."""
    if not HEADS[model.head].causal:
        raise ModelError(
            f"lm-evaluation-harness asks causal language models, and {model.name} ({type(model.network).__name__}) "
            f"{HEADS[model.head].words}; evaluate it on a task that goes with its head (--task), or give a causal "
            "language model."
        )
    tokenizer = model.require_tokenizer()
    if tokenizer.eos_token_id is None and tokenizer.bos_token_id is None:
        raise ModelError(
            f"The tokenizer of {model.name} has neither a first nor a last token (BOS, EOS), and lm-eval puts one of "
            "them before a text that follows nothing; set tokenizer.bos_token or tokenizer.eos_token."
        )


def _is_file(task: Any) -> bool:
    return isinstance(task, Path) or (isinstance(task, str) and task.endswith(_ENDINGS))


def _manager(tasks: Sequence[Any]) -> Any:
    """Return the harness's finder of tasks.

    The harness's list of its own tasks takes most of a minute to read, so it is read only where a name needs it.
    """
    from lm_eval.tasks import TaskManager

    groups = [Path(task).expanduser() for task in tasks if _is_file(task) and _group(task)]
    manager = TaskManager(include_path=[path.parent for path in groups] or None, include_defaults=False)
    names = {task for task in tasks if isinstance(task, str) and not _is_file(task)}
    entries = [manager.task_index.get(_group(path)) for path in groups]
    for entry in entries:
        names |= {name for name in (entry.cfg or {}).get("task", ()) if isinstance(name, str)} if entry else set()
    if names - manager.task_index.keys():
        log.info("Reading the list of lm-eval's own tasks, which takes most of a minute.")
        for name, entry in _default_manager().task_index.items():
            manager.task_index.setdefault(name, entry)
    return manager


@cache
def _default_manager() -> Any:
    from lm_eval.tasks import TaskManager

    return TaskManager()


def _group(task: Any) -> str:
    """Return the name of the group that a file describes, or an empty text where the file is a task."""
    try:
        text = Path(task).expanduser().read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError):
        return ""  # opening the file raises the error later
    match = re.search(r"^group:\s*[\"']?([^\s\"'#]+)", text, re.MULTILINE)
    return match[1] if match else ""


def _opened(manager: Any, task: Any) -> list[Any]:
    """Return the tasks and groups that a name, a pattern, a file or a mapping stands for, with their data."""
    if isinstance(task, str) and not _is_file(task):
        names = fnmatch.filter(sorted(manager.task_index), task)
        if not names:
            raise UnknownNameError(
                f"lm-eval has no task {task!r}.{near(task, manager.task_index)} `lm-eval ls tasks` lists them; a file "
                "of your own ends in .yaml."
            )
        return [each for name in names for each in _loaded(manager, name, name)]
    if _is_file(task):
        path = Path(task).expanduser()
        if not path.is_file():
            raise DataError(f"There is no file {str(task)!r}, which was given as a task of lm-eval.")
        return _loaded(manager, _group(path) or str(path), str(task))
    if "group" in task:
        raise InputError("A group of lm-eval's tasks was given as a mapping; write it to a file that ends in .yaml.")
    return _loaded(manager, dict(task), str(task.get("task", "the task that was given")))


def _loaded(manager: Any, task: Any, name: str) -> list[Any]:
    """Return the tasks or topmost groups that the harness loads for one entry; raise DataError where it cannot."""
    try:
        loaded = manager.load([task])
    except Exception as error:  # data of any origin, and code of tasks
        raise DataError(
            f"lm-eval cannot open {name}: {first_line(error)}. Its data come from the hub or from the files that it "
            "names; download them where there is a network."
        ) from error
    groups = loaded.get("groups") or {}
    below = {child for children in (loaded.get("group_map") or {}).values() for child in children}
    top = [group for name, group in groups.items() if name not in below]
    return top or list(loaded["tasks"].values())


@contextmanager
def _quietly() -> Iterator[None]:
    """Silence the harness's log within the block; its progress bars stay where somebody can see them."""
    logger = logging.getLogger("lm_eval")
    level = logger.level
    logger.setLevel(logging.ERROR)
    with ExitStack() as stack:
        stack.enter_context(quiet())
        if not sys.stderr.isatty():
            stack.enter_context(redirect_stderr(io.StringIO()))
        try:
            yield
        finally:
            logger.setLevel(level)


@contextmanager
def _own_randomness() -> Iterator[None]:
    """Restore the state of all random generators afterwards, since the harness seeds every one of them."""
    plain, arrays = random.getstate(), np.random.get_state()
    with torch.random.fork_rng():
        try:
            yield
        finally:
            random.setstate(plain)
            np.random.set_state(arrays)
