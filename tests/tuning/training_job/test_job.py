"""One training: what it learns, what it leaves, what interrupts it, and the check of what was saved."""

import json
import os
import signal
import subprocess
import sys
import time
from dataclasses import replace

import numpy as np
import pytest
import torch

import layerscope as ls
from layerscope.errors import ModelError, StoreError
from layerscope.evaluation.classification import ClassificationEvaluator
from layerscope.evaluation.evaluate import make_evaluator
from layerscope.store import Store
from layerscope.tuning.method import method_of
from layerscope.tuning.methods import finetune
from layerscope.tuning.methods.adapter import Adapter
from layerscope.tuning.methods.finetune import Finetune
from layerscope.tuning.methods.lora import Lora
from layerscope.tuning.training_job import same_answers
from layerscope.tuning.tune import plan_tuning
from tests.helpers.data import WORDS, three_class_frame
from tests.helpers.models import QUICK, random_model, save_random


def test_it_learns(task):
    training = ls.tune(random_model(), task, epochs=12, batch=8, learning_rate=3e-3)
    assert training.score > training.majority + 0.2
    evaluator = make_evaluator(ls.load(training.model), task, max_length=128)
    assert evaluator.score(evaluator.logits()) == training.score
    assert training.best_epoch in [e["epoch"] for e in training.epochs]
    assert (training.path / "checkpoint" / "model.safetensors").is_file()
    record = json.loads((training.path / "training.json").read_text())
    assert (record["strategy"], record["seed"], record["method"]["name"]) == ("(1, 4, 4)", 0, "finetune")
    assert record["hyperparameters"]["learning_rate"] == 3e-3


def both(frame, **columns):
    return ls.task({"train": frame, "validation": frame}, **columns)


def test_regression():
    frame = three_class_frame(40, 0)
    numbers = both(frame.assign(label=frame["label"] + 0.5))
    training = ls.tune(random_model(), numbers, strategy="(3, 4, 4)", epochs=4, batch=8, learning_rate=3e-3)
    assert training.metric == "pearson_spearman"
    assert training.model.config.num_labels == 1


@pytest.mark.parametrize("cache", [True, False])
def test_choices_of_varying_number(cache):
    frame = three_class_frame(40, 0)
    options = [[WORDS[(k + c) % 3] for c in range(2 + i % 2)] for i, k in enumerate(frame["label"])]
    task = both(frame.assign(options=options, label=0), choices="options", text="text", label="label")
    training = ls.tune(random_model(), task, strategy="(4, 4, 4)", epochs=2, batch=8, cache=cache)
    assert type(training.model).__name__ == "BertForMultipleChoice"
    assert ls.evaluate(training.model, task) == pytest.approx(training.score)


KILLED = """
import sys
import layerscope as ls
task = {"train": sys.argv[2], "validation": sys.argv[3]}
training = ls.tune(sys.argv[1], task, epochs=4, batch=4, learning_rate=3e-3, strategy="(2, 4, 4)")
print(training.epochs)
"""


@pytest.mark.slow
def test_killed_in_the_middle_it_ends_with_the_same_metrics(tmp_path):
    folder = save_random(tmp_path / "model", "bert", "encoder")
    for name, seed in (("train", 0), ("validation", 1)):
        three_class_frame(120 if name == "train" else 40, seed).to_csv(tmp_path / f"{name}.csv", index=False)
    command = [sys.executable, "-c", KILLED, folder, str(tmp_path / "train.csv"), str(tmp_path / "validation.csv")]

    def start(home):
        environment = {**os.environ, "LAYERSCOPE_HOME": str(tmp_path / home)}
        return subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True, env=environment)

    whole, _ = start("whole").communicate(timeout=120)
    victim = start("killed")
    deadline = time.monotonic() + 60
    while not list((tmp_path / "killed").glob("unfinished/training/*/checkpoints/checkpoint-60/trainer_state.json")):
        assert time.monotonic() < deadline
        assert victim.poll() is None, "the run ended before it could be killed"
        time.sleep(0.01)
    victim.send_signal(signal.SIGKILL)
    victim.wait(30)
    assert [e.state for e in Store(tmp_path / "killed").entries() if e.kind == "training"] == ["unfinished"]
    again, _ = start("killed").communicate(timeout=120)
    assert again == whole


def test_a_full_disk_is_a_sentence_and_leaves_nothing_that_loads(task, monkeypatch, home):
    def full(*_):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(finetune, "save", full)
    with pytest.raises(StoreError, match="the disk is full"):
        ls.tune(random_model(), task, **QUICK)
    assert [e.state for e in Store().entries() if e.kind == "training"] == ["unfinished"]
    assert not list(home.rglob("checkpoint/config.json"))


def wrong(method):
    """The method, saving a head that is not quite what was trained."""

    class Wrong(method):
        def save(self, tuned, trained, folder, strategy):
            with torch.no_grad():
                tuned.network.classifier.weight.mul_(1.05)
            super().save(tuned, trained, folder, strategy)

    return Wrong()


@pytest.mark.parametrize("method", [Finetune, Adapter])
@pytest.mark.parametrize("options", [{}, {"bf16": True}, {"cache_dtype": "bfloat16"}])
def test_a_wrong_save_is_caught_in_every_precision(options, method, task):
    options = {"strategy": "(3, 4, 4)", **options, **QUICK}
    with pytest.raises(ModelError, match="answers unlike what was trained, so the training does not count"):
        ls.tune(random_model(), task, method=wrong(method), **options)
    assert [e.state for e in Store().entries() if e.kind == "training"] == ["unfinished"]
    training = ls.tune(random_model(), task, method=method(), **options)
    got = ClassificationEvaluator(ls.load(training.model), task, task.split("validation"), 128)
    assert training.job.hyperparameters.bf16 or got.value(got.logits()) == training.score


def test_a_wrong_merge_is_caught_under_bf16(task, monkeypatch):
    from peft.tuners.lora import Linear

    merge = Linear.merge

    def doubled(self, *args, **kwargs):
        merge(self, *args, **kwargs)
        with torch.no_grad():
            self.base_layer.weight.mul_(1.05)

    monkeypatch.setattr(Linear, "merge", doubled)
    with pytest.raises(ModelError, match="answers unlike what was trained"):
        ls.tune(random_model(), task, method=Lora(2), bf16=True, **QUICK)


def test_answers_are_compared_where_a_text_has_choices():
    expected = np.asarray([[1.0, 2.0, -np.inf], [3.0, 4.0, 5.0]], np.float32)
    assert same_answers(expected[:, :3].copy(), expected, torch.float32)
    assert same_answers(expected[:1, :2], expected[:1], torch.float32)
    assert not same_answers(expected + np.float32(0.01), expected, torch.float32)
    assert same_answers(expected + np.float32(0.01), expected, torch.bfloat16)


def test_everything_that_decides_a_training_is_in_its_key(task):
    def key(base=None, data=task, seed=0, **options):
        return plan_tuning(base or random_model(), data, **options).jobs([seed])[0].key

    frames = {"train": three_class_frame(48, 0), "validation": three_class_frame(24, 1)}
    changes = [
        {},
        {"base": random_model("roberta")},
        {"data": ls.task({**frames, "train": three_class_frame(48, 5)})},
        {"data": ls.task({**frames, "validation": three_class_frame(24, 5)})},
        {"metric": "f1"},
        {"seed": 1},
        {"strategy": "(2, 4, 4)"},
        {"strategy": replace(ls.Strategy(1, 4, 4), embeddings=False)},
        {"method": "lora"},
        {"method": "lora", "size": 3},
        {"train_limit": 9},
        {"validation_limit": 9},
        {"learning_rate": 1e-3},
        {"epochs": 7},
        {"max_steps": 7},
        {"batch": 7},
        {"accumulate": 7},
        {"warmup": 7},
        {"schedule": "constant"},
        {"weight_decay": 0.1},
        {"adam_epsilon": 1e-6},
        {"max_length": 7},
        {"bf16": True},
        {"patience": 7},
        {"cache": False},
        {"cache_dtype": "bfloat16"},
    ]
    assert len({key(**change) for change in changes}) == len(changes)
    assert key(cache_limit=7) == key(data=ls.task(frames)) == key()
    assert key(strategy="(1, 4, 4)", method=method_of("finetune")) == key()
