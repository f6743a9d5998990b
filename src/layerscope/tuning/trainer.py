"""The Hugging Face Trainer around a network: its rows and batches, its arguments, its progress bar, and its outcome."""

from __future__ import annotations

import math
import re
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from pydantic import Field
from torch import Tensor
from torch.utils.data import Dataset

from layerscope import metrics
from layerscope.data import Examples, Task
from layerscope.distributed import Team
from layerscope.errors import DataError, ModelError, is_out_of_memory, log
from layerscope.extraction.forward import padded
from layerscope.extraction.items import Item, Items
from layerscope.extraction.loop import Loop, cut_texts
from layerscope.extraction.pooling import Reading
from layerscope.models import Model
from layerscope.models.architecture import accepted_inputs
from layerscope.models.checkpoints import quiet
from layerscope.models.devices import free_on
from layerscope.models.selfcheck import head_padding
from layerscope.progress import progress
from layerscope.store import Saved, read_json, write_json
from layerscope.tuning.checkpoint_writer import PARTS, CheckpointWriter, trainer_class
from layerscope.tuning.frozen_cache import CHOICES, INDEX, ROWS, STATES, PrefixCache, PrefixedNetwork
from layerscope.tuning.hyperparameters import Hyperparameters

if TYPE_CHECKING:
    from transformers import TrainingArguments


class ItemRows(Dataset):
    """A dataset with one entry per row: its items (tokens of a text, or of each choice), its label, its cached states.

    Rows without a label have their number in its place.
    """

    def __init__(
        self,
        items: Items | Sequence[Item],
        counts: Sequence[int] | None = None,
        labels: np.ndarray | None = None,
        cache: PrefixCache | None = None,
        first_row: int | None = None,
        first_kept: int | None = None,
    ) -> None:
        self.items = Items.from_list(items)
        self.first_kept = first_kept  # the number of the first row where the training keeps states as it goes
        counts = [1] * len(items) if counts is None else counts
        ends = np.cumsum(counts)
        self.places = [list(range(end - count, end)) for end, count in zip(ends, counts, strict=True)]
        self.labels = np.arange(len(self.places)) if labels is None else labels
        self.cache = cache
        self.first_row = first_row  # where the cache's table begins in one on the device, if it lies there

    def __len__(self) -> int:
        return len(self.places)

    def __getitem__(self, index: int) -> dict[str, Any]:
        return {"items": self.places[index], "label": self.labels[index], "rows": self}

    def states(self, places: Sequence[int], left: bool = False) -> dict[str, Any]:
        """Return what a batch of these items brings along for the frozen blocks; nothing without a cache."""
        if self.first_kept is not None:
            return {ROWS: [self.first_kept + place for place in places]}
        if self.cache is None:
            return {}
        if self.first_row is None:
            return {STATES: self.cache.batch(places, left)}
        return {INDEX: self.cache.index(places, left) + self.first_row}


class TextRows(ItemRows):
    """A dataset with one entry per text: its tokens (one item per choice), its label, its cached states."""

    def __init__(
        self,
        model: Model,
        examples: Examples,
        max_length: int,
        cache: PrefixCache | None = None,
        first_row: int | None = None,
    ) -> None:
        items = Loop.over_tokens([model], Reading("cls", max_length=max_length)).items(examples)[0]
        self.cut_off = cut_texts(examples, [items])  # how many of the texts
        counts = None if examples.choices is None else [len(c) for c in examples.choices]
        super().__init__(items, counts, examples.labels, cache, first_row)


class Collate:
    """Makes padded tensors of entries, as the network takes them."""

    def __init__(self, model: Model, regression: bool, accepted: set[str]) -> None:
        self._pad = model.pad_token
        padding = head_padding(model)
        if padding == "none":
            raise ModelError(
                f"The head of {model.name} ({type(model.network).__name__}) reads padding, so it cannot be trained on "
                "texts of different lengths in one batch; open the model with another summary (summary_type) or a "
                "padding token (pad_token_id) in its config."
            )
        self._left = padding == "left"
        self._choice = model.multiple_choice
        self._regression = regression
        self._accepted = accepted

    def __call__(self, entries: Sequence[dict[str, Any]]) -> dict[str, Tensor]:
        rows: ItemRows = entries[0]["rows"]
        most = max(len(entry["items"]) for entry in entries)
        # Texts with fewer choices repeat their first one; CHOICES says which are real.
        places = [p for e in entries for p in (e["items"] + [e["items"][0]] * (most - len(e["items"])))]
        batch = padded(rows.items.at(np.asarray(places)), self._pad, self._left)
        batch = {k: v for k, v in batch.items() if k in self._accepted}
        batch |= rows.states(places, self._left)
        if self._choice:
            batch = {k: v if k in (STATES, INDEX) else v.view(len(entries), most, -1) for k, v in batch.items()}
            real = torch.tensor([[c < len(e["items"]) for c in range(most)] for e in entries])
            batch |= {} if bool(real.all()) else {CHOICES: real}
        kind = torch.float32 if self._regression else torch.int64
        batch["labels"] = torch.tensor([entry["label"] for entry in entries], dtype=kind)
        return batch


_SPENT = "seconds.json"  # of a training that is under way, up to its last checkpoint
_SHORT = 256  # tokens, up to which many texts are scored at once


@dataclass
class Outcome:
    """The outcome of a training; the best epoch's weights are in the network."""

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
        defined = [entry for entry in self.epochs if not math.isnan(entry[self.by])]
        return max(defined, key=lambda entry: sign * entry[self.by]) if defined else self.epochs[-1]


@dataclass(frozen=True)
class EvalSpec:
    """How rows become batches and answers become metrics: a `score`, and a `held_out` loss if that decides."""

    collate: Callable[[Sequence[dict[str, Any]]], dict[str, Any]]
    metrics: Callable[[Any], dict[str, float]]
    by: str = "score"

    @staticmethod
    def from_task(tuned: Model, task: Task) -> EvalSpec:
        """Return the evaluation by the task's metric."""
        return EvalSpec(Collate(tuned, task.regression, accepted_inputs(tuned.network)), _Metrics(task))


def check_memory(
    wrapped: PrefixedNetwork, tuned: Model, eval_spec: EvalSpec, rows: ItemRows, hyperparameters: Hyperparameters
) -> None:
    """Raise ModelError where a training would run out of the GPU's memory, before its first step.

    What a step takes is measured on one row and on two, the longest there are, and grows by as much with every further
    one; the optimizer keeps two numbers of every one that is trained.
    """
    h, device = hyperparameters, tuned.device
    lengths = [max(len(rows.items[place]) for place in places) for places in rows.places]
    longest = sorted(range(len(rows)), key=lambda row: -lengths[row])
    batch = min(h.batch, len(rows))
    moments = sum(2 * p.nbytes for p in wrapped.parameters() if p.requires_grad)
    try:
        # The first step also makes what stays from step to step, such as rounded weights.
        _, first, second = (
            _bytes_of_step(wrapped, eval_spec.collate([rows[row] for row in longest[:count]]), device, h.bf16)
            for count in (1, 1, 2)
        )
        each = max(second - first, 1.0)
    except Exception as error:
        if not is_out_of_memory(error):
            raise
        wrapped.zero_grad(set_to_none=True)
        torch.cuda.empty_cache()
        first = each = math.inf
    free = free_on(device)
    needed = first + moments + ((batch - 1) * each if batch > 1 else 0.0)
    log.info("A training step takes about %.1f GB beside the model, and %.1f GB are free.", needed / 1e9, free / 1e9)
    weights = sum(parameter.nbytes for parameter in tuned.network.parameters())
    if weights > free:
        raise ModelError(
            f"{tuned.name} is opened once more when it is trained, to be compared with what was saved; that takes "
            f"{weights / 1e9:.1f} GB beside the model, and {free / 1e9:.1f} GB of {device} are free. Take a GPU with "
            "more memory."
        )
    if needed <= free:
        return
    fitting = math.floor((free - first - moments) / each) + 1 if math.isfinite(first) else 0
    if fitting > 0:
        smaller = f"batches of {fitting}, with their gradients added up (batch={fitting}, accumulate=.., --batch), or "
    else:
        smaller = "a GPU with more memory, or "
    takes = f"about {needed / 1e9:.1f} GB" if math.isfinite(needed) else "more, even for single rows,"
    kept = "" if h.checkpointing else "blocks that are run again in the backward pass (checkpointing=True), or "
    raise ModelError(
        f"Training {tuned.name} in batches of {batch} rows of up to {max(lengths)} tokens takes {takes} beside the "
        f"model, and {free / 1e9:.1f} GB of {device} are free. Take {smaller}{kept}shorter texts (max_length)."
    )


def _bytes_of_step(wrapped: PrefixedNetwork, batch: dict[str, Any], device: torch.device, bf16: bool) -> float:
    """Return the most bytes that a step on a batch takes beside what is there; nothing is learned from it."""
    given = {name: value.to(device) if isinstance(value, Tensor) else value for name, value in batch.items()}
    wrapped.train()
    with torch.random.fork_rng(devices=[device]):
        torch.cuda.reset_peak_memory_stats(device)
        before = torch.cuda.memory_allocated(device)
        with torch.autocast(device.type, torch.bfloat16, enabled=bf16):
            loss = wrapped(**given)["loss"]
        loss.backward()
        most = torch.cuda.max_memory_allocated(device) - before
    wrapped.zero_grad(set_to_none=True)
    return float(most)


class _BestAnswers:
    """Metrics of every look at the rows that are scored; keeps the answers of the best one, which need no other pass.

    Of equal looks the first counts, and the last where none has a value: as the Trainer chooses the weights it keeps.
    """

    def __init__(self, eval_spec: EvalSpec) -> None:
        self._metrics, self._by_score = eval_spec.metrics, eval_spec.by == "score"
        self._best = math.nan
        self.answers: np.ndarray | None = None

    def __call__(self, prediction: Any) -> dict[str, float]:
        values = self._metrics(prediction)
        value = values["score"] if self._by_score else -values["held_out"]
        if math.isnan(self._best) or value > self._best:
            given = prediction.predictions
            self._best, self.answers = value, given[0] if isinstance(given, tuple) else given
        return values


def train(
    wrapped: PrefixedNetwork,
    tuned: Model,
    eval_spec: EvalSpec,
    rows: tuple[ItemRows, ItemRows],
    hyperparameters: Hyperparameters,
    *,
    seed: int,
    folder: Path,
    title: str,
) -> Outcome:
    """Train on the first rows and score on the second at every look; go on from a checkpoint in the folder, if any."""
    from transformers import EarlyStoppingCallback, TrainerState
    from transformers.trainer import TRAINER_STATE_NAME

    if hyperparameters.checkpointing:
        tuned.network.gradient_checkpointing_enable({"use_reentrant": False})
    if tuned.device.type == "cuda":
        check_memory(wrapped, tuned, eval_spec, rows[0], hyperparameters)
    seen = _BestAnswers(eval_spec)
    with quiet(), closing(CheckpointWriter()) as writer:
        trainer = trainer_class()(
            model=wrapped,
            args=_arguments(hyperparameters, tuned, seed, folder, eval_spec.by),
            data_collator=eval_spec.collate,
            train_dataset=rows[0],
            eval_dataset=rows[1],
            compute_metrics=seen,
        )
        trainer.writer = writer
        # The folder of the training is named by its key, which tells trainings of one title apart.
        _keep_events(trainer, f"{title}, {hyperparameters.rates[0]:g}, seed {seed}, {folder.parent.name[:8]}")
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
    answers = seen.answers
    if last is not None or answers is None:  # the best weights may be of a look before an interruption
        logits = trainer.predict(trainer.eval_dataset).predictions  # by all processes together
        answers = logits[0] if isinstance(logits, tuple) else logits
    return Outcome(answers, epochs, bar.epochs, seconds, trainer.state.global_step, eval_spec.by)


def evaluations(history: Sequence[Mapping[str, Any]]) -> list[dict[str, float]]:
    """Return epoch, score and loss of every evaluation; a step that a resumed training looked at again counts once."""
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
        save_total_limit=2,  # the last one may still be on its way to the disk
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


def _keep_events(trainer: Any, name: str) -> None:
    """Have TensorBoard's event files written to a folder of this name below `runs`, or TENSORBOARD_LOGGING_DIR.

    The Trainer would put them beside its checkpoints, which go when the training is done. Each training has a folder of
    its own, as TensorBoard draws all files of one folder as one line.
    """
    from transformers.integrations import TensorBoardCallback

    for callback in trainer.callback_handler.callbacks:
        if isinstance(callback, TensorBoardCallback):
            # Its end tells trainings apart, and a file's name may have 255 bytes where a model's is a long path.
            folder = Path(callback.logging_dir or "runs") / re.sub(r"[^A-Za-z0-9.+-]+", "-", name)[-150:].strip("-.")
            callback.logging_dir = str(folder)
            log.info("TensorBoard's event files are in %s.", folder)


class _Metrics:
    """Computes the task's metric in the form that the Trainer asks for."""

    def __init__(self, task: Task) -> None:
        self._task = task

    def __call__(self, prediction: Any) -> dict[str, float]:
        logits, labels = prediction.predictions, prediction.label_ids
        if np.isnan(logits).any():
            return {"score": math.nan}  # the most likely class of a NaN is not an answer
        guesses = logits[..., 0] if self._task.regression else logits.argmax(axis=-1)
        return {"score": metrics.score(self._task.metric, labels, guesses, self._task.classes)}


def _last_checkpoint(folder: Path) -> str | None:
    """Return the newest whole checkpoint, or None: every part is there once it is whole, whichever is written last."""
    whole = {}
    for path in folder.glob("checkpoint-*"):
        if not all((path / part).is_file() for part in PARTS):
            continue
        try:
            whole[read_json(path / "trainer_state.json", _State).global_step] = path
        except DataError:  # not written to its end
            continue
    return str(whole[max(whole)]) if whole else None


def _is_finished(checkpoint: str) -> bool:
    """Return whether a training had ended when the checkpoint was written: all steps done, or out of patience."""
    state = read_json(Path(checkpoint) / "trainer_state.json", _State)
    control = state.stateful_callbacks.get("TrainerControl", {}).get("args", {})
    return state.global_step >= state.max_steps > 0 or bool(control.get("should_training_stop"))


class _State(Saved):
    """The part of the Trainer's own state file that is read."""

    global_step: int
    max_steps: int = 0
    stateful_callbacks: dict[str, Any] = Field(default_factory=dict)


class _Spent(Saved):
    """How long a training took up to its last checkpoint."""

    seconds: float = 0.0


class _Bar:
    """A progress bar over the steps of a Trainer, which also measures how long they take; those before a kill count."""

    def __init__(self, trainer: Any, title: str, spent: Path, goes_on: bool) -> None:
        self._trainer, self._title, self._spent = trainer, title, spent
        self.epochs: list[float] = []  # seconds of training of every epoch, evaluation not counted
        self._started, self._begun = 0.0, time.perf_counter()
        self._before = read_json(spent, _Spent).seconds if goes_on and spent.exists() else 0.0

    @property
    def seconds(self) -> float:
        """The seconds since the training began, without the time in which it was not under way."""
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
