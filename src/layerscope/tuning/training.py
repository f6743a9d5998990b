"""One training run on the Hugging Face Trainer: from a model, a strategy in numbers and a seed to a saved result."""

from __future__ import annotations

import inspect
import json
import math
import shutil
import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import torch

from layerscope.data import Examples, Task, metrics
from layerscope.errors import ModelError
from layerscope.extract.exam import Exam
from layerscope.models import Model, load
from layerscope.models.load import quiet
from layerscope.models.selfcheck import close
from layerscope.progress import progress
from layerscope.store import write_json
from layerscope.surgery import cut, save
from layerscope.surgery.plan import LayerPlan
from layerscope.team import Team
from layerscope.tuning.adapters import load_adapters, save_adapters
from layerscope.tuning.batches import Collate, TextRows
from layerscope.tuning.cache import PrefixCache, prefix_cache
from layerscope.tuning.freezing import Prefixed
from layerscope.tuning.heads import classifier_of
from layerscope.tuning.methods import Method, apply, check, counts
from layerscope.tuning.presets import Training
from layerscope.tuning.strategy import Strategy
from layerscope.version import __version__

RESULT = "run.json"
CHECKPOINT, ADAPTER = "checkpoint", "adapter"
_COMPARED = 32  # validation texts on which the saved result must answer as the trained one


@dataclass
class Job:
    """Everything that decides one run."""

    model: Model
    task: Task
    train: Examples
    validation: Examples
    strategy: Strategy  # in numbers
    method: Method
    training: Training  # with one learning rate
    seed: int
    epoch_seconds: list[float] = field(default_factory=list)

    def run(self, folder: Path) -> None:
        """Train, save and compare; in a folder with what an earlier try left, go on from there."""
        check(self.model, self.strategy, self.method)
        tuned = self.prepared()
        frozen = self._frozen()
        caches = self._caches(frozen)
        embeddings = self.strategy.trains_embeddings(self.model.depth)
        trained = apply(tuned, self.strategy, self.method, embeddings, self.seed)
        wrapped = Prefixed(tuned, frozen, embeddings, trained if self.method.name == "prefix" else None)
        total, trainable = counts(wrapped.network)
        trainer, history, seconds = self._train(wrapped, tuned, caches, folder / "checkpoints")
        logits = trainer.predict(trainer.eval_dataset).predictions  # by all processes together
        if np.isnan(logits).any():
            raise ModelError(
                f"The training of {self.model.name} diverged: its answers are no longer numbers. Take a learning rate "
                f"below {self.training.rates[0]:g}."
            )
        if Team.current().is_main:
            epochs = [
                {"epoch": entry["epoch"], "score": entry["eval_score"], "loss": entry["eval_loss"]}
                for entry in history
                if "eval_score" in entry
            ]
            best = max(epochs, key=lambda entry: _order(entry["score"]))
            self._save(tuned, trained, folder, logits)
            write_json(
                folder / RESULT,
                {
                    "model": self.model.name,
                    "task": self.task.name,
                    "strategy": str(self.strategy),
                    "embeddings": embeddings,
                    "method": {"name": self.method.name, "size": self.method.size},
                    "training": self.training.model_dump(),
                    "seed": self.seed,
                    "layerscope": __version__,
                    "score": best["score"],
                    "best_epoch": best["epoch"],
                    "epochs": epochs,
                    "metric": self.task.metric,
                    "majority": metrics.majority(self.task.metric, self._labels),
                    "seconds": seconds,
                    "epoch_seconds": self.epoch_seconds,
                    "seconds_an_epoch": float(np.mean(self.epoch_seconds[1:] or self.epoch_seconds)),
                    "cached": caches[0] is not None,
                    "parameters": total,
                    "trainable": trainable,
                    "steps": trainer.state.global_step,
                },
            )
            shutil.rmtree(folder / "checkpoints", ignore_errors=True)

    @property
    def _labels(self) -> np.ndarray:
        assert self.validation.labels is not None
        return self.validation.labels

    def prepared(self) -> Model:
        """A classifier for the task, cut at the strategy's head."""
        tuned = classifier_of(self.model, self.task, self.seed)
        if int(self.strategy.head) < tuned.depth:
            name = tuned.name
            tuned = load(cut(tuned, LayerPlan.truncated(tuned.depth, int(self.strategy.head))))
            tuned.name = name
        return tuned

    def _frozen(self) -> int:
        """The highest layer that no training can change."""
        if self.strategy.trains_embeddings(self.model.depth) or self.method.name == "prefix":
            return 0
        return int(self.strategy.head) if not self.strategy.blocks else self.strategy.blocks[0] - 1

    def _caches(self, frozen: int) -> tuple[PrefixCache | None, PrefixCache | None]:
        if not (frozen and self.training.cache):
            return None, None
        t = self.training
        train, validation = (
            prefix_cache(self.model, part, frozen, t.max_length, t.cache_dtype, t.cache_limit)
            for part in (self.train, self.validation)
        )
        return (train, validation) if train is not None and validation is not None else (None, None)

    def _hold(
        self, wrapped: Prefixed, caches: tuple[PrefixCache | None, PrefixCache | None], device: torch.device
    ) -> tuple[int | None, int | None]:
        """Cached states onto the GPU where they fit into half of what is free; where each split's begin there."""
        train, validation = caches
        if device.type != "cuda" or train is None or validation is None:
            return None, None
        size = (train.tokens + validation.tokens + 2) * self.model.width * (4 if _wide(self.training) else 2)
        if size > torch.cuda.mem_get_info(device)[0] / 2:
            return None, None
        wrapped.table = torch.cat([train.table(device), validation.table(device)])
        return 0, train.tokens + 1

    def _train(
        self, wrapped: Prefixed, tuned: Model, caches: tuple[PrefixCache | None, PrefixCache | None], folder: Path
    ) -> tuple[Any, list[dict[str, Any]], float]:
        from transformers import EarlyStoppingCallback, Trainer

        length = self.training.max_length
        starts = self._hold(wrapped, caches, tuned.device)
        rows = [
            TextRows(tuned, part, length, cache, start)
            for part, cache, start in zip((self.train, self.validation), caches, starts, strict=True)
        ]
        accepted = set(inspect.signature(tuned.network.forward).parameters)
        with quiet():
            trainer = Trainer(
                model=wrapped,
                args=self._arguments(folder, tuned),
                data_collator=Collate(tuned, self.task.regression, accepted),
                train_dataset=rows[0],
                eval_dataset=rows[1],
                compute_metrics=self._metrics,
            )
            for callback in list(trainer.callback_handler.callbacks):
                if type(callback).__name__ in ("PrinterCallback", "ProgressCallback"):
                    trainer.remove_callback(callback)
            if self.training.patience is not None:
                trainer.add_callback(EarlyStoppingCallback(self.training.patience))
            started = time.perf_counter()
            bar = _Bar(trainer, f"{self.model.name} on {self.task.name}, {self.strategy}, {self.method.name}")
            with bar:
                trainer.train(resume_from_checkpoint=_last(folder))
        self.epoch_seconds = bar.epochs
        return trainer, trainer.state.log_history, time.perf_counter() - started

    def _arguments(self, folder: Path, tuned: Model) -> Any:
        from transformers import TrainingArguments

        t = self.training
        return TrainingArguments(
            output_dir=str(folder),
            learning_rate=t.rates[0],
            num_train_epochs=t.epochs,
            max_steps=t.max_steps or -1,
            per_device_train_batch_size=t.batch,
            per_device_eval_batch_size=max(t.batch, 32),
            gradient_accumulation_steps=t.accumulate,
            warmup_steps=t.warmup,
            lr_scheduler_type=t.schedule,
            weight_decay=t.weight_decay,
            adam_epsilon=t.adam_epsilon,
            bf16=t.bf16,
            seed=self.seed,
            data_seed=self.seed,
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

    def _metrics(self, prediction: Any) -> dict[str, float]:
        logits, labels = prediction.predictions, prediction.label_ids
        guesses = logits[..., 0] if self.task.regression else logits.argmax(axis=-1)
        if np.isnan(logits).any():
            return {"score": math.nan}  # the most likely class of a NaN is no answer
        return {"score": metrics.score(self.task.metric, labels, guesses)}

    def _save(self, tuned: Model, trained: Any, folder: Path, logits: np.ndarray) -> None:
        """Write the result, open it again, and compare its answers with those of the trained module."""
        for name in (CHECKPOINT, ADAPTER):
            shutil.rmtree(folder / name, ignore_errors=True)
        method = self.method
        if method.name == "adapter":
            (folder / ADAPTER).mkdir()
            assert method.size is not None
            save_adapters(tuned, folder / ADAPTER, self.strategy.blocks, method.size, {"strategy": str(self.strategy)})
        elif method.name in ("lora", "prefix"):
            trained.save_pretrained(folder / ADAPTER)
        if method.name == "lora":
            network = trained.merge_and_unload()
            network.requires_grad_(True)
            save(load(network, tokenizer=tuned.tokenizer), folder / CHECKPOINT)
        elif method.name == "finetune":
            tuned.network.requires_grad_(True)
            save(tuned, folder / CHECKPOINT)
        again = self.reopened(folder)
        part = self.validation.take(slice(_COMPARED))
        exam = Exam(again, self.task, part, self.training.max_length)
        if method.name == "prefix":
            return  # peft's own format; its forward is not a plain network's
        got, expected = exam.logits(), logits[: len(part)]
        finite = np.isfinite(expected) & np.isfinite(got[..., : expected.shape[-1]])
        same = close(torch.from_numpy(got[..., : expected.shape[-1]][finite]), torch.from_numpy(expected[finite]))
        if not same and not self.training.bf16 and self.training.cache_dtype == "float32":
            raise ModelError(
                f"What was saved of {self.model.name} answers unlike what was trained, so the run does not count."
            )

    def reopened(self, folder: Path) -> Model:
        """The saved result as a model: a standard checkpoint, or the base model with its adapters."""
        device = str(self.model.device)
        if self.method.standard:
            found = load(str(folder / CHECKPOINT), device=device)
        else:
            found = self.prepared()
            if self.method.name == "adapter":
                found = load_adapters(found, folder / ADAPTER)
            else:
                from peft import PeftModel

                found.network = PeftModel.from_pretrained(found.network, folder / ADAPTER).eval()
        found.name = f"{self.model.name}, tuned"
        return found


def _wide(training: Training) -> bool:
    return training.cache_dtype == "float32"


def read_result(folder: Path) -> dict[str, Any]:
    return json.loads((folder / RESULT).read_text(encoding="utf-8"))


def _order(score: float) -> float:
    return -math.inf if math.isnan(score) else score


def _last(folder: Path) -> str | None:
    """The newest whole checkpoint; its state is written last."""
    found = [p for p in folder.glob("checkpoint-*") if (p / "trainer_state.json").is_file()]
    return str(max(found, key=lambda p: int(p.name.split("-")[1]))) if found else None


class _Bar:
    """A progress bar over the steps of a Trainer."""

    def __init__(self, trainer: Any, title: str) -> None:
        self._trainer, self._title = trainer, title
        self.epochs: list[float] = []  # seconds of training of every epoch, evaluation not counted
        self._started = 0.0

    def __enter__(self) -> None:
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

    def __exit__(self, *error: Any) -> None:
        if self._context is not None:
            self._context.__exit__(*error)
