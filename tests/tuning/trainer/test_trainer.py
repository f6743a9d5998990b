"""The Trainer around a network: which epoch is best, which checkpoint is whole, what a NaN scores."""

import json
import math
import sys
import time
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pandas
import pytest
from transformers import Trainer
from transformers.integrations import integration_utils

import layerscope as ls
from layerscope.evaluation.classification import ClassificationEvaluator
from layerscope.tuning.checkpoint_writer import PARTS
from layerscope.tuning.hyperparameters import Hyperparameters
from layerscope.tuning.trainer import (
    EvalSpec,
    Outcome,
    _arguments,
    _BestAnswers,
    _is_finished,
    _last_checkpoint,
    _Metrics,
    evaluations,
)
from tests.helpers.data import running_task, three_class_frame
from tests.helpers.models import FEW_STEPS, QUICK, WITHOUT_BLOCK_2, random_model, small_decoder


def outcome(*scores):
    epochs = [{"epoch": k + 1.0, "score": score, "loss": 1.0} for k, score in enumerate(scores)]
    return Outcome(np.zeros((1, 2)), epochs, [1.0] * len(scores), 1.0, 10)


def test_the_best_epoch_is_the_first_of_the_highest_score():
    assert outcome(0.5, 0.7, 0.7).best["epoch"] == 2
    assert outcome(math.nan, 0.1).best["epoch"] == 2
    assert outcome(math.nan, math.nan).best["epoch"] == 2


def test_without_any_score_the_last_epoch_is_kept_and_said_to_be():
    texts, held = three_class_frame(24, 0)["text"], three_class_frame(12, 1)["text"]
    numbers = {"train": (texts, np.linspace(0, 1, 24)), "validation": (held, 0.5)}  # no correlation with a constant
    task = ls.task({name: pandas.DataFrame({"text": t, "label": y}) for name, (t, y) in numbers.items()})
    training = ls.tune(random_model(), task, epochs=3, batch=8, learning_rate=1e-2)
    assert math.isnan(training.score)
    assert training.outcome["best_epoch"] == 3
    evaluator = ClassificationEvaluator(ls.load(training.model), task, task.split())
    loss = float(((evaluator.logits()[:, 0] - 0.5) ** 2).mean())
    assert loss == pytest.approx(training.epochs[-1]["loss"], rel=1e-3)
    assert loss != pytest.approx(training.epochs[0]["loss"], rel=1e-3)


def test_an_epoch_that_is_evaluated_again_after_a_kill_counts_once():
    first, second = ({"step": k, "epoch": k / 2, "eval_score": 0.5, "eval_loss": 1.0 / k} for k in (1, 2))
    seen = evaluations([first, {"step": 1, "train_loss": 3.0}, second, dict(second)])
    assert seen == [{"epoch": 0.5, "score": 0.5, "loss": 1.0}, {"epoch": 1.0, "score": 0.5, "loss": 0.5}]


def test_only_a_whole_checkpoint_is_gone_on_from(tmp_path):
    assert _last_checkpoint(tmp_path) is None
    for step in (5, 20, 100):
        (tmp_path / f"checkpoint-{step}").mkdir()
    assert _last_checkpoint(tmp_path) is None
    for step in (5, 20, 30):
        (tmp_path / f"checkpoint-{step}").mkdir(exist_ok=True)
        (tmp_path / f"checkpoint-{step}" / "trainer_state.json").write_text(f'{{"global_step": {step}}}')
        for part in PARTS[: 2 if step == 30 else 3]:  # they are written while the training goes on
            (tmp_path / f"checkpoint-{step}" / part).touch()
    for part in PARTS:
        (tmp_path / "checkpoint-100" / part).touch()
    for content in ("", "{}", "[]", '{"global_step": "x"}'):  # the state is perhaps not written to its end
        (tmp_path / "checkpoint-100" / "trainer_state.json").write_text(content)
    assert _last_checkpoint(tmp_path) == str(tmp_path / "checkpoint-20")


@pytest.mark.parametrize(
    ("state", "finished"),
    [
        ({"global_step": 2, "max_steps": 4}, False),
        ({"global_step": 4, "max_steps": 4}, True),
        ({"global_step": 2, "max_steps": 4, "stop": True}, True),
        ({"global_step": 2, "max_steps": 4, "stop": False}, False),
    ],
)
def test_a_training_that_had_ended_takes_no_further_step(tmp_path, state, finished):
    control = {"TrainerControl": {"args": {"should_training_stop": state.pop("stop", False)}}}
    (tmp_path / "trainer_state.json").write_text(json.dumps({**state, "stateful_callbacks": control}))
    assert _is_finished(str(tmp_path)) == finished


def test_the_time_before_an_interruption_counts(monkeypatch):
    plain, steps = Trainer.training_step, iter(range(100))

    def slow(self, *arguments, **options):
        if next(steps) == 5:
            raise KeyboardInterrupt
        time.sleep(0.25)
        return plain(self, *arguments, **options)

    task = ls.task({"train": three_class_frame(24, 0), "validation": three_class_frame(12, 1)})
    monkeypatch.setattr(Trainer, "training_step", slow)
    with pytest.raises(KeyboardInterrupt):
        ls.tune(random_model(), task, epochs=3, batch=8)  # one epoch of three steps is whole, and kept
    monkeypatch.setattr(Trainer, "training_step", plain)
    training = ls.tune(random_model(), task, epochs=3, batch=8)
    assert training.outcome["steps"] == 9
    assert len(training.outcome["epoch_seconds"]) == 2
    assert training.seconds > 0.75


def test_the_tasks_metric_is_asked_for_and_a_nan_has_none():
    metric = _Metrics(ls.task(three_class_frame(6, 0)))
    labels = np.asarray([0, 1, 2])
    assert metric(SimpleNamespace(predictions=np.eye(3), label_ids=labels)) == {"score": 1.0}
    broken = np.eye(3)
    broken[1, 0] = np.nan
    assert math.isnan(metric(SimpleNamespace(predictions=broken, label_ids=labels))["score"])
    frame = three_class_frame(6, 0)
    numbers = _Metrics(ls.task(frame.assign(label=frame["label"] + 0.5)))
    guesses = np.asarray([[0.0], [1.0], [2.0]])
    assert numbers(SimpleNamespace(predictions=guesses, label_ids=labels * 2.0))["score"] == pytest.approx(1.0)


def test_the_hyperparameters_are_the_trainers(tmp_path):
    given = Hyperparameters(batch=7, epochs=2, accumulate=3, weight_decay=0.1, schedule="constant")
    arguments = _arguments(given, random_model(), 5, tmp_path)
    assert (arguments.per_device_train_batch_size, arguments.num_train_epochs) == (7, 2)
    assert (arguments.gradient_accumulation_steps, arguments.weight_decay) == (3, 0.1)
    assert (arguments.seed, arguments.data_seed, arguments.max_steps) == (5, 5, -1)
    assert arguments.per_device_eval_batch_size == 32
    assert arguments.report_to in ([], ["none"])
    assert arguments.use_cpu


@pytest.mark.parametrize(
    ("values", "by", "kept"),
    [
        ([0.5, 0.7, 0.7], "score", 1),
        ([math.nan, 0.1, math.nan], "score", 1),
        ([math.nan, math.nan], "score", 1),
        ([3.0, 1.0, 2.0], "held_out", 1),
    ],
)
def test_the_answers_of_the_best_look_are_kept_as_the_trainer_keeps_its_weights(values, by, kept):
    given = iter(values)
    look = _BestAnswers(EvalSpec(list, lambda _: {by: (value := next(given)), "score": value}, by))
    for number in range(len(values)):
        look(SimpleNamespace(predictions=np.full(2, number)))
    assert look.answers[0] == kept


def test_a_training_makes_no_pass_besides_its_looks(monkeypatch):
    monkeypatch.setattr(Trainer, "predict", None)
    task = ls.task({"train": three_class_frame(24, 0), "validation": three_class_frame(12, 1)})
    training = ls.tune(random_model(), task, epochs=2, batch=8, learning_rate=1e-2)
    assert training.score == max(entry["score"] for entry in training.epochs)
    assert float(ls.evaluate(training.model, task)) == pytest.approx(training.score)


class EventWriter:
    """Writes event files as TensorBoard's SummaryWriter does: into the folder that it is given, from the beginning."""

    def __init__(self, log_dir):
        Path(log_dir).mkdir(parents=True, exist_ok=True)
        self.file = Path(log_dir) / "events.out.tfevents.0"
        self.file.touch()

    def add_scalar(self, name, value, step):
        with self.file.open("a") as file:
            file.write(f"{step} {name} {value}\n")

    def add_text(self, name, text, step=0): ...

    def flush(self): ...

    def close(self): ...


@pytest.mark.parametrize("place", [None, "elsewhere"])
def test_event_files_remain_when_a_training_is_done(place, task, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(integration_utils, "is_tensorboard_available", lambda: True)
    monkeypatch.setitem(sys.modules, "torch.utils.tensorboard", SimpleNamespace(SummaryWriter=EventWriter))
    monkeypatch.delenv("TENSORBOARD_LOGGING_DIR", raising=False)
    if place is not None:
        monkeypatch.setenv("TENSORBOARD_LOGGING_DIR", place)
    ls.tune(random_model(), task, strategy="(3, 4, 4)", seeds=2, report_to="tensorboard", **QUICK)
    ls.strategy_study(random_model(), task, ["head-only"], seeds=1, report_to=["tensorboard"], **QUICK)
    ls.heal(small_decoder(), WITHOUT_BLOCK_2, running_task(), report_to="tensorboard", **FEW_STEPS)
    files = list((tmp_path / (place or "runs")).rglob("events.out.tfevents*"))
    assert len({file.parent for file in files}) == 4  # one folder for each training, told apart by its name
    assert sum("3-4-4" in file.parent.name and "seed-1" in file.parent.name for file in files) == 1
    assert all("eval" in file.read_text() for file in files)
