"""Scores by lm-evaluation-harness: an open model is given to it, and its numbers come back as a result."""

from __future__ import annotations

import fnmatch
import importlib.metadata
import importlib.util
import io
import logging
import random
import re
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager, redirect_stderr
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import torch

from layerscope.errors import (
    DataError,
    InputError,
    LayerscopeError,
    ModelError,
    UnknownNameError,
    first_line,
    log,
    near,
)
from layerscope.evaluation.harness_score import HarnessScore, score_of
from layerscope.models import Model
from layerscope.models.anatomy import evaluating
from layerscope.models.heads import WORDS
from layerscope.models.load import quiet

_BATCH = 8  # texts
_ROUNDS = 1000  # of the bootstrap, for the few metrics that have no other standard error
_ENDINGS = (".yaml", ".yml")


class Harness:
    """A model and the tasks that were asked for; what cannot be asked is refused here, before anything is run."""

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
        leaves = [leaf for task in self.tasks for leaf in _leaves(task)]
        asked = {str(leaf.get_config("output_type")) for leaf in leaves}
        if "generate_until" in asked and model.require_tokenizer().eos_token_id is None:
            raise ModelError(
                f"The tokenizer of {model.name} has no last token (EOS), at which lm-eval ends what is generated; set "
                "tokenizer.eos_token, or leave out the tasks that generate."
            )

    def score(self, limit: int | None = None, max_length: int | None = None) -> HarnessScore:
        """Run the harness."""
        from lm_eval import simple_evaluate
        from lm_eval.models.huggingface import HFLM

        model = self.model
        longest = max_length or model.positions
        try:
            with _quietly(), _own_randomness(), evaluating(model.network):
                tested = HFLM(
                    pretrained=model.network,
                    tokenizer=_copied(model.require_tokenizer()),  # it sets a token for padding
                    max_length=longest,
                    batch_size=1 if model.anatomy.unpadded else _BATCH,
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
            raise InputError(f"lm-eval stopped on {model.name}: {first_line(error)}.") from error
        version = importlib.metadata.version("lm_eval")
        batch = 1 if model.anatomy.unpadded else _BATCH
        return score_of(model, output, {"lm_eval": version, "limit": limit, "max_length": longest, "batch": batch})


def _require() -> None:
    if importlib.util.find_spec("lm_eval") is None:
        raise ModelError(
            "Tasks of lm-evaluation-harness need lm-eval; install it with: pip install 'layerscope[lm-eval]'."
        )


def _check(model: Model) -> None:
    """Raise the reason why the harness cannot ask this model."""
    if model.head != "next":
        raise ModelError(
            f"lm-evaluation-harness asks causal language models, and {model.name} ({type(model.network).__name__}) "
            f"{WORDS[model.head]}; evaluate it on a task that goes with its head (--task), or give a causal language "
            "model."
        )
    tokenizer = model.require_tokenizer()
    if tokenizer.eos_token_id is None and tokenizer.bos_token_id is None:
        raise ModelError(
            f"The tokenizer of {model.name} has neither a first nor a last token (BOS, EOS), and lm-eval puts one of "
            "them before a text that follows nothing; set tokenizer.bos_token or tokenizer.eos_token."
        )


def _copied(tokenizer: Any) -> Any:
    import copy

    return copy.deepcopy(tokenizer)


def _is_file(task: Any) -> bool:
    return isinstance(task, Path) or (isinstance(task, str) and task.endswith(_ENDINGS))


def _manager(tasks: Sequence[Any]) -> Any:
    """What finds tasks. The harness's own list takes most of a minute to read, so it is read only where needed."""
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
    """The name of the group that a file is, whose members are named elsewhere; empty where it is a task."""
    try:
        text = Path(task).expanduser().read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError):
        return ""  # it is told when the file is opened
    match = re.search(r"^group:\s*[\"']?([^\s\"'#]+)", text, re.MULTILINE)
    return match[1] if match else ""


def _opened(manager: Any, task: Any) -> list[Any]:
    """The tasks and groups that a name, a pattern, a file or a mapping stands for, with their data."""
    if isinstance(task, str) and not _is_file(task):
        known = fnmatch.filter(sorted(manager.task_index), task)
        if not known:
            raise UnknownNameError(
                f"lm-eval has no task {task!r}.{near(task, manager.task_index)} `lm-eval ls tasks` lists them; a file "
                "of your own ends in .yaml."
            )
        return [each for name in known for each in _loaded(manager, name, name)]
    if _is_file(task):
        path = Path(task).expanduser()
        if not path.is_file():
            raise DataError(f"There is no file {str(task)!r}, which was given as a task of lm-eval.")
        return _loaded(manager, _group(path) or str(path), str(task))
    if "group" in task:
        raise InputError("A group of lm-eval's tasks was given as a mapping; write it to a file that ends in .yaml.")
    return _loaded(manager, dict(task), str(task.get("task", "the task that was given")))


def _loaded(manager: Any, task: Any, name: str) -> list[Any]:
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


def _leaves(task: Any) -> list[Any]:
    return list(task.get_all_tasks()) if hasattr(task, "get_all_tasks") else [task]


@contextmanager
def _quietly() -> Iterator[None]:
    """Without the harness's reports; its bars stay where somebody can see them."""
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
    """The harness seeds every generator there is; afterwards they are as they were."""
    plain, arrays = random.getstate(), np.random.get_state()
    with torch.random.fork_rng():
        try:
            yield
        finally:
            random.setstate(plain)
            np.random.set_state(arrays)
