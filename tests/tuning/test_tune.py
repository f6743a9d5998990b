"""`ls.tune`: what is refused before anything is trained, what is found in the store, what is copied out."""

import os
import subprocess
import sys
import time
from types import SimpleNamespace

import numpy as np
import pandas
import pytest
import torch

import layerscope as ls
from layerscope.errors import InputError, ModelError
from layerscope.store import Store, keys_of
from layerscope.tuning.training import Trainings
from layerscope.tuning.tune import _best, folders_for, plan_tuning
from tests.helpers.data import three_class_frame
from tests.helpers.models import QUICK, random_model, random_network, save_random, word_tokenizer


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_weights_of_16_bits_are_not_trained(dtype):
    half = ls.load(random_network("bert", "encoder").to(dtype), tokenizer=word_tokenizer(), dtype=dtype)
    for method in ("finetune", "lora"):  # with LoRA the head is trained as it is
        with pytest.raises(ModelError, match=f"are open in {str(dtype)[6:]}, where tuning goes wrong"):
            ls.tune(half, three_class_frame(60, 0), method=method, **QUICK)
    with pytest.raises(ModelError, match="where tuning goes wrong"):
        ls.strategy_study(half, three_class_frame(60, 0), ["full"], seeds=[0], **QUICK)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"method": "magic"}, "no method 'magic'"),
        ({"preset": "xie2023"}, "Did you mean 'xie2022'"),
        ({"batch": 0}, "training option batch is 0"),
        ({"metric": "accurracy"}, "Did you mean 'accuracy'"),
        ({"method": "adapter", "strategy": "head-only"}, "nothing for adapter to sit in"),
        ({"method": "prefix", "strategy": "(2, 4, 4)"}, "cannot choose blocks"),
        ({"seeds": []}, "seeds is empty"),
        ({"seeds": np.zeros(2, int)}, r"seeds is \[0, 0\]"),
        ({"seeds": [0, 1, 0]}, r"seeds is \[0, 1, 0\]; each may be named once"),
        ({"seed": -1}, "seed is -1; it must be a whole number from 0"),
        ({"learning_rate": 0}, "A learning rate is 0; it must be above 0"),
        ({"learning_rate": [1e-3, float("nan")]}, "A learning rate is nan"),
        ({"epochs": 1, "max_steps": 2}, "Both epochs and max_steps"),
        ({"size": 8}, "size is 8, and finetune has none"),
        ({"report_to": "nobody"}, "There is no tracker 'nobody'"),
        ({"report_to": ["wandb"]}, "The tracker wandb is not installed; install it with: pip install wandb"),
        ({"method": "lora", "size": 0}, "size is 0; the rank of LoRA must be at least 1"),
        ({"learning_rate": 1e9, "max_steps": 3}, r"diverged.* a learning rate below 1e\+09"),
        ({"learning_rate": 1e9, "max_steps": 3, "method": "adapter"}, "diverged"),
    ],
)
def test_mistakes_are_sentences(options, message, task):
    with pytest.raises(ls.LayerscopeError, match=message):
        ls.tune(random_model(), task, **options)


def test_one_seed_in_a_list_has_a_folder_of_its_own(task, tmp_path):
    few = {"strategy": "head-only", "max_steps": 1, "batch": 4}
    ls.tune(random_model(), task, seeds=[3], out=tmp_path / "listed", **few)
    ls.tune(random_model(), task, seed=3, out=tmp_path / "alone", **few)
    assert [path.name for path in (tmp_path / "listed").iterdir()] == ["seed-3"]
    assert (tmp_path / "alone" / "training.json").is_file()


def test_an_option_that_training_does_not_have_is_named(task):
    with pytest.raises(ls.LayerscopeError, match="no training option 'epoch'"):
        plan_tuning(random_model(), task, epoch=2)
    with pytest.raises(TypeError, match="epoch"):
        ls.tune(random_model(), task, epoch=2)


@pytest.mark.parametrize(
    ("columns", "message"),
    [
        ({"text": ["a b", "c d"]}, "no labels, so there is nothing to learn; name the column"),
        ({"text": ["a b", "c d"], "label": ["x", "x"]}, "of one class, 'x'"),
        ({"text": ["a b"], "label": [0.5]}, "has one row"),
    ],
)
def test_data_with_nothing_to_learn_is_refused_before_the_work(columns, message):
    with pytest.raises(InputError, match=message):
        ls.tune(random_model(), pandas.DataFrame(columns), **QUICK)
    assert not list(Store().entries())


def test_what_a_family_cannot_do_is_refused(task):
    with pytest.raises(ModelError, match="runs one block 4 times"):
        ls.tune(random_model("albert"), task, strategy="(2, 4, 4)")
    with pytest.raises(ModelError, match="no prefix tuning for xlnet"):
        ls.tune(random_model("xlnet"), task, method="prefix")


def test_a_plan_costs_nothing_and_says_what_is_trained(task):
    plan = plan_tuning(random_model(), task, strategy="(l*, l*, l*)", specialty_layer=3, **QUICK)
    assert (plan.asked, str(plan.strategy)) == ("(l*, l*, l*)", "(3, 3, 3)")
    assert plan.cost.row["resolved"] == "(3, 3, 3)"
    assert not list(Store().entries())
    training = ls.tune(random_model(), task, strategy="(l*, l*, l*)", specialty_layer=3, **QUICK)
    assert plan.produce([0]).trainings[0].path == training.path
    assert plan.cost.row["trainable"] == training.trainable


def test_a_second_call_reads_the_store_and_seeds_differ(task, tmp_path):
    base = random_model()
    first = ls.tune(base, task, **QUICK)
    start = time.perf_counter()
    assert ls.tune(base, task, **QUICK).path == first.path
    assert time.perf_counter() - start < first.seconds + 5
    many = ls.tune(base, task, seeds=[0, 1], out=tmp_path / "out", **QUICK)
    assert many.trainings[0].path == first.path
    assert many.mean == pytest.approx(many.scores.mean())
    assert many.error == pytest.approx(many.scores.std(ddof=1) / 2**0.5)
    assert ls.load(str(tmp_path / "out" / "seed-1" / "checkpoint")).depth == 4
    weights = [training.model.classifier.weight for training in many.trainings]
    assert not torch.equal(*weights)


def test_another_metric_is_another_training():
    splits = {"train": three_class_frame(48, 0), "validation": three_class_frame(24, 1)}
    accuracy, f1 = (ls.tune(random_model(), ls.task(splits, metric=metric), **QUICK) for metric in ("accuracy", "f1"))
    assert (accuracy.metric, f1.metric) == ("accuracy", "f1")
    assert f1.path != accuracy.path
    assert ls.tune(random_model(), ls.task(splits), metric="f1", **QUICK).path == f1.path
    assert ls.evaluate(f1.model, ls.task(splits), metric="f1", max_length=128) == pytest.approx(f1.score)


def test_the_keys_are_known_before_anything_is_computed(task):
    options = {"strategy": "(l*, L, L)", "specialty_layer": 3, "learning_rate": [1e-3, 1e-2], "epochs": 1, "batch": 8}
    keys = keys_of(lambda: ls.tune(random_model(), task, seeds=[0, 1], **options))
    assert len(set(keys)) == 4
    assert not list(Store().entries())
    ls.tune(random_model(), task, seeds=[0, 1], **options)
    assert {entry.key for entry in Store().entries() if entry.kind == "training"} == set(keys)


def test_learning_rates_are_swept(task):
    training = ls.tune(random_model(), task, learning_rate=[1e-7, 1e-2], epochs=2, batch=8)
    assert training.tried == 2
    others = [ls.tune(random_model(), task, learning_rate=rate, epochs=2, batch=8).score for rate in (1e-7, 1e-2)]
    assert training.score == max(others)


def test_one_learning_rate_is_taken_for_all_seeds():
    """The rate with the best mean, though another has the best score of one seed."""
    scores = {1e-3: [0.9, 0.1], 1e-2: [0.6, 0.7]}

    def trained(rate, score):
        return SimpleNamespace(score=score, job=SimpleNamespace(hyperparameters=SimpleNamespace(rates=(rate,))))

    sweep = []
    for rate, own in scores.items():
        trainings = Trainings.__new__(Trainings)
        trainings.trainings = [trained(rate, score) for score in own]
        sweep.append(trainings)
    best = _best(sweep)
    assert best.scores.tolist() == [0.6, 0.7]
    assert best.mean == pytest.approx(0.65)
    assert best.error == pytest.approx(0.05)


def test_seeds_share_their_learning_rate(task):
    options = {"epochs": 1, "batch": 8, "strategy": "head-only"}
    swept = ls.tune(random_model(), task, learning_rate=[1e-7, 1e-2], seeds=[0, 1], **options)
    alone = [ls.tune(random_model(), task, learning_rate=rate, seeds=[0, 1], **options) for rate in (1e-7, 1e-2)]
    assert len(set(swept.frame["learning_rate"])) == 1
    assert swept.mean == max(each.mean for each in alone)


def test_an_unwritable_folder_is_a_sentence_before_the_work(task, tmp_path):
    (tmp_path / "file").write_text("x")
    with pytest.raises(InputError, match="file"):
        ls.tune(random_model(), task, out=tmp_path / "file", **QUICK)
    with pytest.raises(InputError, match="file"):
        ls.tune(random_model(), task, out=tmp_path / "file", seeds=[0, 1], **QUICK)
    assert not list(Store().entries())
    assert folders_for("garden:bert-s0", tmp_path / "new") == [tmp_path / "new"]
    assert folders_for("garden:bert-s0", tmp_path / "new", [3]) == [tmp_path / "new" / "seed-3"]


TOGETHER = """
import os, sys
import layerscope as ls
from layerscope.distributed import Team
training = ls.tune(sys.argv[1], sys.argv[2], strategy="(3, 4, 4)", epochs=2, batch=4, out=sys.argv[3])
open(f"{sys.argv[3]}-{Team.current().rank}", "w").write(f"{Team.current().size} {training.score}")
"""


@pytest.mark.slow
def test_two_processes_tune_together(tmp_path):
    folder = save_random(tmp_path / "model", "bert", "encoder")
    (tmp_path / "data").mkdir()
    (tmp_path / "together.py").write_text(TOGETHER)
    for name, seed in (("train", 0), ("validation", 1)):
        three_class_frame(48, seed).to_csv(tmp_path / "data" / f"{name}.csv", index=False)
    command = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc_per_node", "2"]
    command += [str(tmp_path / "together.py"), folder, str(tmp_path / "data"), str(tmp_path / "out")]
    environment = {**os.environ, "OMP_NUM_THREADS": "1", "ACCELERATE_USE_CPU": "true"}
    done = subprocess.run(command, capture_output=True, text=True, env=environment, timeout=300, check=False)
    assert done.returncode == 0, done.stderr[-3000:]
    said = {(tmp_path / f"out-{rank}").read_text() for rank in (0, 1)}
    assert len(said) == 1
    size, score = said.pop().split()
    assert size == "2"
    task = ls.task(tmp_path / "data")
    assert ls.evaluate(str(tmp_path / "out" / "checkpoint"), task, max_length=128) == pytest.approx(float(score))


def test_texts_that_are_cut_off_are_those_that_are_used(caplog):
    table = three_class_frame(60, 3)
    long = [i % 4 == 0 for i in range(60)]
    table["text"] = ["the list of this file " * 8 if cut else "the file" for cut in long]
    for _ in range(2):  # trained, and from the store
        caplog.clear()
        training = ls.tune(random_model(), table, max_steps=1, max_length=16)
        training_data = training.job.training_data
        learned, scored = (
            sum(long[row] for row in part.rows) for part in (training_data.train, training_data.validation)
        )
        assert learned + scored == 15
        said = (
            f"{learned} of the 48 texts of table that were learned from, and {scored} of the 12 that were scored, are "
        )
        assert [r.getMessage() for r in caplog.records if "cut off" in r.getMessage()] == [
            f"{said}cut off at 16 tokens."
        ]
