"""The Hugging Face Trainer around a network: its arguments, its progress bar, and what came out of it."""

from __future__ import annotations

import math
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from pydantic import Field

from layerscope.data import Task, metrics
from layerscope.errors import DataError
from layerscope.models import Model
from layerscope.models.anatomy import accepted_inputs
from layerscope.models.checkpoints import quiet
from layerscope.progress import progress
from layerscope.store import Saved, read_json
from layerscope.team import Team
from layerscope.tuning.freezing import Prefixed
from layerscope.tuning.hyperparameters import Hyperparameters
from layerscope.tuning.rows import Collate, TextRows


@dataclass
class Outcome:
    """What the Trainer did, with the best epoch's weights left in the network."""

    logits: np.ndarray  # of the validation rows
    epochs: list[dict[str, float]]  # epoch, score and loss on validation
    epoch_seconds: list[float]  # of training, evaluation not counted
    seconds: float
    steps: int

    @property
    def best(self) -> dict[str, float]:
        """The epoch with the highest score."""
        return max(self.epochs, key=lambda entry: -math.inf if math.isnan(entry["score"]) else entry["score"])


def train(
    wrapped: Prefixed,
    tuned: Model,
    task: Task,
    rows: tuple[TextRows, TextRows],
    hyperparameters: Hyperparameters,
    *,
    seed: int,
    folder: Path,
    title: str,
) -> Outcome:
    """Train on the first rows and score on the second after every epoch; goes on from a checkpoint in the folder."""
    from transformers import EarlyStoppingCallback, Trainer, TrainerState
    from transformers.trainer import TRAINER_STATE_NAME

    accepted = accepted_inputs(tuned.network)
    with quiet():
        trainer = Trainer(
            model=wrapped,
            args=_arguments(hyperparameters, tuned, seed, folder),
            data_collator=Collate(tuned, task.regression, accepted),
            train_dataset=rows[0],
            eval_dataset=rows[1],
            compute_metrics=_Metrics(task),
        )
        for callback in list(trainer.callback_handler.callbacks):
            if type(callback).__name__ in ("PrinterCallback", "ProgressCallback"):
                trainer.remove_callback(callback)
        if hyperparameters.patience is not None:
            trainer.add_callback(EarlyStoppingCallback(hyperparameters.patience))
        started = time.perf_counter()
        last = _last_checkpoint(folder)
        with _Bar(trainer, title) as bar:
            if last is None or not _is_finished(last):
                trainer.train(resume_from_checkpoint=last)
            else:  # a kill came after the last step: the Trainer would take another one
                trainer.state = TrainerState.load_from_json(f"{last}/{TRAINER_STATE_NAME}")
                trainer.state.best_model_checkpoint = trainer.state.best_model_checkpoint or last
                trainer._load_best_model()
    seconds = time.perf_counter() - started
    epochs = evaluations(trainer.state.log_history)
    logits = trainer.predict(trainer.eval_dataset).predictions  # by all processes together
    return Outcome(logits, epochs, bar.epochs, seconds, trainer.state.global_step)


def evaluations(history: Sequence[Mapping[str, Any]]) -> list[dict[str, float]]:
    """Epoch, score and loss of every evaluation; one step counts once, also where a resumed training looked again."""
    steps = {entry["step"]: entry for entry in reversed(history) if "eval_score" in entry}
    return [
        {"epoch": entry["epoch"], "score": entry["eval_score"], "loss": entry["eval_loss"]}
        for _, entry in sorted(steps.items())
    ]


def _arguments(hyperparameters: Hyperparameters, tuned: Model, seed: int, folder: Path) -> Any:
    from transformers import TrainingArguments

    h = hyperparameters
    return TrainingArguments(
        output_dir=str(folder),
        learning_rate=h.rates[0],
        num_train_epochs=h.epochs,
        max_steps=h.max_steps or -1,
        per_device_train_batch_size=h.batch,
        per_device_eval_batch_size=max(h.batch, 32),
        gradient_accumulation_steps=h.accumulate,
        warmup_steps=h.warmup,
        lr_scheduler_type=h.schedule,
        weight_decay=h.weight_decay,
        adam_epsilon=h.adam_epsilon,
        bf16=h.bf16,
        seed=seed,
        data_seed=seed,
        restore_callback_states_from_checkpoint=h.patience is not None,  # how long it has been patient already
        eval_strategy="epoch",
        save_strategy="epoch",
        save_total_limit=1,
        load_best_model_at_end=True,
        metric_for_best_model="score",
        greater_is_better=True,
        logging_strategy="no",
        logging_nan_inf_filter=False,  # it would wait for the GPU in every step
        report_to="none",
        disable_tqdm=True,
        remove_unused_columns=False,
        label_names=["labels"],
        use_cpu=tuned.device.type == "cpu",
        dataloader_pin_memory=tuned.device.type == "cuda",
        ddp_find_unused_parameters=Team.current().size > 1,  # a few embeddings are in no forward
    )


class _Metrics:
    """The task's metric, as the Trainer asks for it."""

    def __init__(self, task: Task) -> None:
        self._task = task

    def __call__(self, prediction: Any) -> dict[str, float]:
        logits, labels = prediction.predictions, prediction.label_ids
        if np.isnan(logits).any():
            return {"score": math.nan}  # the most likely class of a NaN is no answer
        guesses = logits[..., 0] if self._task.regression else logits.argmax(axis=-1)
        return {"score": metrics.score(self._task.metric, labels, guesses)}


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


class _Bar:
    """A progress bar over the steps of a Trainer."""

    def __init__(self, trainer: Any, title: str) -> None:
        self._trainer, self._title = trainer, title
        self.epochs: list[float] = []  # seconds of training of every epoch, evaluation not counted
        self._started = 0.0

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

            def on_step_end(self, args: Any, state: Any, control: Any, **_: Any) -> None:
                bar._advance(1)

        self._context: Any = None
        self._advance: Any = None
        self._trainer.add_callback(Steps())
        return self

    def __exit__(self, *error: Any) -> None:
        if self._context is not None:
            self._context.__exit__(*error)
