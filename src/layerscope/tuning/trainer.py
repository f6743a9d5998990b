"""The Hugging Face Trainer around a network: its arguments, its progress bar, and what came out of it."""

from __future__ import annotations

import math
import os
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from pydantic import Field

from layerscope.data import Task, metrics
from layerscope.errors import DataError, InputError, choose
from layerscope.models import Model
from layerscope.models.anatomy import accepted_inputs
from layerscope.models.checkpoints import quiet
from layerscope.progress import progress
from layerscope.store import Saved, read_json, write_json
from layerscope.team import Team
from layerscope.tuning.freezing import Prefixed
from layerscope.tuning.hyperparameters import Hyperparameters
from layerscope.tuning.rows import Collate, ItemRows

if TYPE_CHECKING:
    from transformers import TrainingArguments


_SPENT = "seconds.json"  # of a training that is under way, up to its last checkpoint
_SHORT = 256  # tokens, up to which many texts are scored at once


@dataclass
class Outcome:
    """What the Trainer did, with the best epoch's weights left in the network."""

    logits: np.ndarray  # of the validation rows
    epochs: list[dict[str, float]]  # epoch, score and loss on validation, at every look
    epoch_seconds: list[float]  # of training, evaluation not counted
    seconds: float
    steps: int
    by: str = "score"  # or "loss": what decided which epoch is kept

    @property
    def best(self) -> dict[str, float]:
        """The epoch with the highest score, or the lowest loss; where none has any, the last, which is then kept."""
        sign = 1 if self.by == "score" else -1
        known = [entry for entry in self.epochs if not math.isnan(entry[self.by])]
        return max(known, key=lambda entry: sign * entry[self.by]) if known else self.epochs[-1]


@dataclass(frozen=True)
class Marking:
    """How rows become batches and answers marks; `metrics` gives a `score`, and a `held_out` loss if that decides."""

    collate: Callable[[Sequence[dict[str, Any]]], dict[str, Any]]
    metrics: Callable[[Any], dict[str, float]]
    by: str = "score"

    @staticmethod
    def of(tuned: Model, task: Task) -> Marking:
        """By the task's metric."""
        return Marking(Collate(tuned, task.regression, accepted_inputs(tuned.network)), _Metrics(task))


def train(
    wrapped: Prefixed,
    tuned: Model,
    marking: Marking,
    rows: tuple[ItemRows, ItemRows],
    hyperparameters: Hyperparameters,
    *,
    seed: int,
    folder: Path,
    title: str,
) -> Outcome:
    """Train on the first rows and score on the second at every look; goes on from a checkpoint in the folder."""
    from transformers import EarlyStoppingCallback, Trainer, TrainerState
    from transformers.trainer import TRAINER_STATE_NAME

    if hyperparameters.checkpointing:
        tuned.network.gradient_checkpointing_enable({"use_reentrant": False})
    with quiet():
        trainer = Trainer(
            model=wrapped,
            args=_arguments(hyperparameters, tuned, seed, folder, marking.by),
            data_collator=marking.collate,
            train_dataset=rows[0],
            eval_dataset=rows[1],
            compute_metrics=marking.metrics,
        )
        for callback in list(trainer.callback_handler.callbacks):
            if type(callback).__name__ in ("PrinterCallback", "ProgressCallback"):
                trainer.remove_callback(callback)
        if hyperparameters.patience is not None:
            trainer.add_callback(EarlyStoppingCallback(hyperparameters.patience))
        last = _last_checkpoint(folder)
        with _Bar(trainer, title, folder / _SPENT, goes_on=last is not None) as bar:
            if last is None or not _is_finished(last):
                trainer.train(resume_from_checkpoint=last)
            else:  # a kill came after the last step: the Trainer would take another one
                trainer.state = TrainerState.load_from_json(f"{last}/{TRAINER_STATE_NAME}")
                trainer.state.best_model_checkpoint = trainer.state.best_model_checkpoint or last
                trainer._load_best_model()
    seconds = bar.seconds
    epochs = evaluations(trainer.state.log_history)
    if hyperparameters.checkpointing:
        tuned.network.gradient_checkpointing_disable()
    logits = trainer.predict(trainer.eval_dataset).predictions  # by all processes together
    answers = logits[0] if isinstance(logits, tuple) else logits
    return Outcome(answers, epochs, bar.epochs, seconds, trainer.state.global_step, marking.by)


def evaluations(history: Sequence[Mapping[str, Any]]) -> list[dict[str, float]]:
    """Epoch, score and loss of every evaluation; one step counts once, also where a resumed training looked again."""
    steps = {entry["step"]: entry for entry in reversed(history) if "eval_score" in entry}
    return [
        {
            "epoch": entry["epoch"],
            "score": entry["eval_score"],
            "loss": entry.get("eval_held_out", entry["eval_loss"]),
        }
        for _, entry in sorted(steps.items())
    ]


def _arguments(
    hyperparameters: Hyperparameters, tuned: Model, seed: int, folder: Path, by: str = "score"
) -> TrainingArguments:
    from transformers import TrainingArguments

    h = hyperparameters
    looks: dict[str, Any] = {"eval_strategy": "epoch", "save_strategy": "epoch"}
    if h.evaluate_every is not None:
        every = {"eval_steps": h.evaluate_every, "save_steps": h.evaluate_every}
        looks = {"eval_strategy": "steps", "save_strategy": "steps", **every}
    return TrainingArguments(
        output_dir=str(folder),
        learning_rate=h.rates[0],
        num_train_epochs=h.epochs,
        max_steps=h.max_steps or -1,
        per_device_train_batch_size=h.batch,
        per_device_eval_batch_size=max(h.batch, 32) if h.max_length <= _SHORT else h.batch,
        gradient_accumulation_steps=h.accumulate,
        warmup_steps=h.warmup,
        lr_scheduler_type=h.schedule,
        weight_decay=h.weight_decay,
        adam_epsilon=h.adam_epsilon,
        bf16=h.bf16,
        seed=seed,
        data_seed=seed,
        restore_callback_states_from_checkpoint=h.patience is not None,  # how long it has been patient already
        **looks,
        save_total_limit=1,
        load_best_model_at_end=True,
        metric_for_best_model="score" if by == "score" else "held_out",
        greater_is_better=by == "score",
        logging_strategy="steps" if h.report_to else "no",
        logging_steps=10,
        logging_nan_inf_filter=False,  # it would wait for the GPU in every step
        report_to=list(h.report_to) or "none",
        disable_tqdm=True,
        remove_unused_columns=False,
        label_names=["labels"],
        use_cpu=tuned.device.type == "cpu",
        dataloader_pin_memory=tuned.device.type == "cuda",
        accelerator_config={"non_blocking": tuned.device.type == "cuda"},  # batches go there while the last is trained
        ddp_find_unused_parameters=Team.current().size > 1,  # a few embeddings are in no forward
    )


def check_trackers(names: Any) -> tuple[str, ...]:
    """The trackers that are named, if the Trainer knows them and their packages are here."""
    if not names:
        return ()
    from transformers.integrations import get_available_reporting_integrations
    from transformers.integrations.integration_utils import INTEGRATION_TO_CALLBACK

    given = names.split(",") if isinstance(names, str) else names
    asked = tuple(str(name).strip() for name in given if str(name).strip())
    for name in asked:
        choose("tracker", name, sorted(INTEGRATION_TO_CALLBACK))
        if name not in get_available_reporting_integrations():
            raise InputError(f"The tracker {name} is not installed; install it with: pip install {name}.")
    if "tensorboard" in asked:  # its own place is a folder of the store that goes when the training is done
        os.environ.setdefault("TENSORBOARD_LOGGING_DIR", "runs")
    return asked


class _Metrics:
    """The task's metric, as the Trainer asks for it."""

    def __init__(self, task: Task) -> None:
        self._task = task

    def __call__(self, prediction: Any) -> dict[str, float]:
        logits, labels = prediction.predictions, prediction.label_ids
        if np.isnan(logits).any():
            return {"score": math.nan}  # the most likely class of a NaN is not an answer
        guesses = logits[..., 0] if self._task.regression else logits.argmax(axis=-1)
        return {"score": metrics.score(self._task.metric, labels, guesses, self._task.classes)}


def _last_checkpoint(folder: Path) -> str | None:
    """The newest whole checkpoint; its state is written last."""
    whole = {}
    for path in folder.glob("checkpoint-*"):
        try:
            whole[read_json(path / "trainer_state.json", _State).global_step] = path
        except DataError:  # not written to its end
            continue
    return str(whole[max(whole)]) if whole else None


def _is_finished(checkpoint: str) -> bool:
    """Whether a training had come to its end when the checkpoint was written: all steps, or out of patience."""
    state = read_json(Path(checkpoint) / "trainer_state.json", _State)
    told = state.stateful_callbacks.get("TrainerControl", {}).get("args", {})
    return state.global_step >= state.max_steps > 0 or bool(told.get("should_training_stop"))


class _State(Saved):
    """What is read of the Trainer's own notes."""

    global_step: int
    max_steps: int = 0
    stateful_callbacks: dict[str, Any] = Field(default_factory=dict)


class _Spent(Saved):
    """How long a training took up to its last checkpoint."""

    seconds: float = 0.0


class _Bar:
    """A progress bar over the steps of a Trainer, and how long they take: those before a kill count, too."""

    def __init__(self, trainer: Any, title: str, spent: Path, goes_on: bool) -> None:
        self._trainer, self._title, self._spent = trainer, title, spent
        self.epochs: list[float] = []  # seconds of training of every epoch, evaluation not counted
        self._started, self._begun = 0.0, time.perf_counter()
        self._before = read_json(spent, _Spent).seconds if goes_on and spent.exists() else 0.0

    @property
    def seconds(self) -> float:
        """Since the training began, without the time in which it was not under way."""
        return self._before + time.perf_counter() - self._begun

    def __enter__(self) -> _Bar:
        from transformers import TrainerCallback

        bar, title = self, self._title

        class Steps(TrainerCallback):  # type: ignore[misc]
            def on_train_begin(self, args: Any, state: Any, control: Any, **_: Any) -> None:
                bar._context = progress(title, state.max_steps, "steps")
                bar._advance = bar._context.__enter__()
                bar._advance(state.global_step)

            def on_epoch_begin(self, args: Any, state: Any, control: Any, **_: Any) -> None:
                bar._started = time.perf_counter()

            def on_epoch_end(self, args: Any, state: Any, control: Any, **_: Any) -> None:
                bar.epochs.append(time.perf_counter() - bar._started)

            def on_save(self, args: Any, state: Any, control: Any, **_: Any) -> None:
                if state.is_world_process_zero:
                    write_json(bar._spent, {"seconds": bar.seconds})

            def on_step_end(self, args: Any, state: Any, control: Any, **_: Any) -> None:
                bar._advance(1)
                if state.global_step >= state.max_steps and args.eval_strategy == "steps":
                    control.should_evaluate = control.should_save = True  # what was learned last counts too

        self._context: Any = None
        self._advance: Any = None
        self._trainer.add_callback(Steps())
        return self

    def __exit__(self, *error: Any) -> None:
        if self._context is not None:
            self._context.__exit__(*error)
