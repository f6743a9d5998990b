"""Trainings as results: their table, their figures, their copies."""

import json
import math
from types import SimpleNamespace

import numpy as np
import pytest
from scipy.stats import t

import layerscope as ls
from layerscope.errors import InputError
from layerscope.registry import METHODS
from layerscope.results import Record, Result, read_record, write_record
from layerscope.results.finding import interval
from layerscope.tuning.training import Training, Trainings
from tests.helpers.checkpoints import numbers_in
from tests.helpers.models import QUICK, random_model, save_random


def test_a_training_is_a_result(task, tmp_path):
    training = ls.tune(random_model(), task, strategy="(3, 4, 4)", **QUICK)
    assert isinstance(training, Result)
    assert training.name == "training"
    (row,) = training.frame.to_dict("records")
    assert (row["strategy"], row["method"], row["score"]) == ("(3, 4, 4)", "finetune", training.score)
    assert (row["trainable"], row["majority"], row["metric"]) == (training.trainable, training.majority, "accuracy")
    curve, table = training.figures()
    assert curve.series[0].y == tuple(entry["score"] for entry in training.epochs)
    assert dict(curve.references)["most frequent class"] == training.majority
    assert table.table["best_epoch"] == [training.best_epoch]
    assert f"{training.score:.4f}" in str(training.findings()[0])
    settings = training.provenance["settings"]
    assert (settings["learning_rate"], settings["seed"], settings["strategy"]) == (1e-2, 0, "(3, 4, 4)")
    assert training.provenance["data"]["n"] == 48
    assert "(3, 4, 4)" in repr(training)
    training.plot(tmp_path / "epochs.png")
    assert (tmp_path / "epochs.png").stat().st_size > 1000
    assert training.seconds_per_epoch > 0


def test_several_seeds_have_a_mean_and_a_box(task, tmp_path):
    trainings = ls.tune(random_model(), task, strategy="head-only", seeds=[0, 1, 2], **QUICK)
    assert trainings.name == "trainings"
    assert trainings.frame["seed"].tolist() == [0, 1, 2]
    box, curve, _ = trainings.figures()
    assert box.boxes == {"head-only at 4": tuple(trainings.scores)}
    assert [series.name for series in curve.series] == ["seed 0", "seed 1", "seed 2"]
    said, beside = trainings.findings()
    assert str(said) == f"Mean {trainings.mean:.4f}, standard error {trainings.error:.4f} over 3 seeds."
    low, high = trainings.interval
    assert f"{interval(low, high)} over 3 seeds" in beside.evidence
    assert high - trainings.mean == pytest.approx(trainings.mean - low)
    assert high - trainings.mean == pytest.approx(4.3027 * trainings.error, rel=1e-4)  # Student's t with 2 degrees
    assert trainings.provenance["settings"]["seeds"] == [0, 1, 2]
    folder = write_record(tmp_path / "record", Record.of("tune", "Tuned", {"trainings": trainings}))
    assert read_record(folder).tables["trainings"]["score"].tolist() == trainings.scores.tolist()


@pytest.mark.parametrize("method", METHODS)
def test_the_parameters_are_those_of_the_saved_model(method, task, tmp_path):
    save_random(tmp_path / "base", "bert", "encoder")
    training = ls.tune(str(tmp_path / "base"), task, method=method, max_steps=1, out=tmp_path / "tuned")
    assert training.parameters == ls.describe(str(tmp_path / "tuned")).facts["parameters"]
    if METHODS[method].standard:  # the others save what they add alone
        assert training.parameters == numbers_in(tmp_path / "tuned" / "checkpoint")


def test_a_count_that_held_loras_updates_beside_the_merged_weights_is_not_repeated(task, tmp_path):
    training = ls.tune(random_model(), task, method="lora", max_steps=1, out=tmp_path / "tuned")
    before = training.outcome | {"parameters": training.parameters + training.trainable}
    (tmp_path / "tuned" / "training.json").write_text(json.dumps(before))
    assert Training(training.job, tmp_path / "tuned").parameters == training.parameters


def test_one_seed_has_no_error(task):
    trainings = ls.tune(random_model(), task, strategy="head-only", seeds=[0], **QUICK)
    assert math.isnan(trainings.error)
    assert all(math.isnan(bound) for bound in trainings.interval)
    assert trainings.findings() == trainings.trainings[0].findings()


def test_a_copy_is_whole_and_overwrites_nothing_else(task, tmp_path):
    training = ls.tune(random_model(), task, strategy="head-only", **QUICK)
    folder = training.copy_to(tmp_path / "copy")
    assert sorted(path.name for path in folder.iterdir()) == ["checkpoint", "training.json"]
    assert json.loads((folder / "training.json").read_text())["score"] == training.score
    assert ls.evaluate(str(folder / "checkpoint"), task, max_length=128) == pytest.approx(training.score)
    assert training.copy_to(folder) == folder  # an earlier training is replaced
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / "letter.txt").write_text("x")
    with pytest.raises(InputError, match=r"does not hold a training\.json"):
        training.copy_to(tmp_path / "mine")


def over_seeds(values, majority=0.4):
    about = {"metric": "accuracy", "majority": majority, "trainable": 50, "parameters": 100}
    trainings = Trainings.__new__(Trainings)
    trainings.trainings = [SimpleNamespace(score=v, job=SimpleNamespace(seed=k), **about) for k, v in enumerate(values)]
    return trainings


def test_the_mean_over_seeds_is_sure_where_students_interval_is_above_guessing():
    values = np.array([0.7, 0.8, 0.75])
    half = t.ppf(0.975, 2) * values.std(ddof=1) / np.sqrt(3)
    assert over_seeds(values).interval == pytest.approx((0.75 - half, 0.75 + half))
    told = over_seeds(values).findings()[1]
    assert told.text == (
        "Tuned, the model has accuracy 0.750, where always giving the most frequent class has 0.400; it has 100 "
        "parameters, and 50 were trained."
    )
    assert told.sure is True
    assert over_seeds(values, majority=0.74).findings()[1].sure is False


def test_what_was_saved_is_advised_on_next(task):
    assert over_seeds([0.7, 0.8]).next_step().saved == "seed-0"
    training = ls.tune(random_model(), task, strategy="head-only", **QUICK)
    assert (training.next_step().command, training.next_step().saved) == ("advise", "")
    assert training.findings()[0].sure is None  # one seed has no interval
