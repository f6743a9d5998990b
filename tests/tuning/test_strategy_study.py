"""Studies: checked before the work, kept training by training, a table and a figure."""

import math
from types import SimpleNamespace

import numpy as np
import pytest
from scipy.stats import ttest_rel

import layerscope as ls
from layerscope.errors import InputError
from layerscope.results import Result
from layerscope.store import Store, keys_of
from layerscope.tuning.strategy import Strategy
from layerscope.tuning.strategy_study import StrategyStudy, plan_study
from layerscope.tuning.training import Trainings
from tests.helpers.models import QUICK, random_model

STRATEGIES = ["full", "(l*+1, L, L)", "(l*, l*, l*)"]


def test_a_study_is_checked_before_anything_is_trained(task):
    with pytest.raises(InputError, match=r"l\* is 9"):
        ls.strategy_study(random_model(), task, specialty_layer=9, **QUICK)
    for options, message in (
        ({"methods": ["magic"]}, "no method 'magic'"),
        ({"methods": []}, "methods is empty"),
        ({"strategies": []}, "strategies is empty"),
        ({"strategies": ["(l*+1, L, L)"]}, "No strategy is left"),
        ({"seeds": []}, "seeds is empty"),
        ({"train_limit": 0}, "train_limit is 0"),
        ({"report_to": "nobody"}, "There is no tracker 'nobody'"),
        ({"report_to": "wandb"}, "The tracker wandb is not installed"),
    ):
        with pytest.raises(InputError, match=message):
            ls.strategy_study(random_model(), task, specialty_layer=4, **{**QUICK, **options})
    assert not list(Store().entries())


def test_a_study_is_a_table_and_a_figure(task, tmp_path, caplog):
    study = ls.strategy_study(random_model(), task, STRATEGIES, seeds=(0, 1), specialty_layer=4, **QUICK)
    frame = study.frame
    assert isinstance(study, Result)
    assert list(frame["strategy"]) == ["full", "(l*, l*, l*)"]  # l* is the top layer: nothing is above it
    assert "(l*+1, L, L) with finetune is left out: " in caplog.text
    assert list(frame["tuned_layers"]) == [4, 1]
    assert (frame["seeds"] == 2).all()
    assert (frame["inference_seconds"] > 0).all()
    assert list(frame) == [
        *("strategy", "resolved", "method", "tuned_layers", "score", "error", "low", "high", "seeds"),
        *(
            "learning_rate",
            "tried",
            "parameters",
            "trainable",
            "seconds",
            "seconds_per_epoch",
            "metric",
            "inference_seconds",
        ),
    ]
    study.plot(tmp_path / "s.png")
    assert (tmp_path / "s.png").stat().st_size > 1000
    scatter, table = study.figures()
    assert [point.label for point in scatter.points] == ["full", "(l*, l*, l*)"]
    assert table.table["trainable"] == frame["trainable"].tolist()
    assert [(point.low, point.high) for point in scatter.points] == list(zip(frame["low"], frame["high"], strict=True))
    width = frame["high"] - frame["score"]
    assert width.tolist() == pytest.approx((12.7062 * frame["error"]).tolist(), rel=1e-4)  # two seeds
    best, other = (study.trainings[k].scores for k in frame["score"].sort_values(ascending=False).index)
    tied = np.ptp(best - other) == 0 or ttest_rel(best, other).pvalue >= 0.05
    assert ("so tied with it" in " ".join(map(str, study.findings()))) == tied
    assert str(round(frame["score"].max(), 4)) in str(study.findings()[0])
    settings = study.provenance["settings"]
    assert (settings["seeds"], settings["methods"], settings["epochs"]) == ([0, 1], ["finetune"], 2.0)
    assert study.save(tmp_path / "study.parquet").is_file()


def test_all_keys_of_a_study_are_known_at_once(task):
    options = {
        "seeds": (0, 1),
        "methods": ["finetune", "lora"],
        "specialty_layer": 4,
        "learning_rate": [1e-3, 1e-2],
        "epochs": 1,
    }
    keys = keys_of(lambda: ls.strategy_study(random_model(), task, STRATEGIES, **options))
    assert len(set(keys)) == 2 * 2 * 2 * 2
    assert not list(Store().entries())


@pytest.mark.parametrize(
    ("best", "strategies", "numbers"),
    [
        (11, ["(L, L, L)", "(l*+1, L, L)", "top-1"], (12, 12, 12)),
        (6, ["(7, 12, 12)", "freeze-bottom-6", "(l*+1, L, L)"], (7, 12, 12)),
    ],
)
def test_what_is_the_same_in_numbers_is_trained_alike(best, strategies, numbers):
    few = {"train_limit": 64, "validation_limit": 32}
    plans = plan_study("garden:bert-s0", "pydocs", strategies, ["finetune"], best=best, preset="xie2022", **few)
    assert [plan.asked for plan in plans] == strategies
    assert {(plan.strategy.bottom, plan.strategy.top, plan.strategy.head) for plan in plans} == {numbers}
    assert len({plan.hyperparameters for plan in plans}) == 1


def test_methods_without_a_place_in_a_strategy_are_left_out(task):
    study = ls.strategy_study(random_model(), task, ["head-only", "full"], ["finetune", "prefix"], seeds=(0,), **QUICK)
    assert study.frame[["strategy", "method"]].values.tolist() == [
        ["head-only", "finetune"],
        ["full", "finetune"],
        ["full", "prefix"],
    ]
    assert (study.frame["inference_seconds"] > 0).all()
    assert study.frame["error"].isna().all()


@pytest.mark.slow
def test_a_study_on_other_processes_gives_the_same(task):
    given = {"strategies": ["full", "head-only"], "seeds": [0], **QUICK}
    spread = ls.strategy_study(random_model(), task, engine="processes:2", **given)
    kept = {entry.key for entry in Store().entries() if entry.kind == "training"}
    here = ls.strategy_study(random_model(), task, **given)
    assert {entry.key for entry in Store().entries() if entry.kind == "training"} == kept
    assert here.frame["score"].tolist() == spread.frame["score"].tolist()


def test_an_engine_that_does_not_exist_is_refused(task):
    with pytest.raises(ls.LayerscopeError, match="engine 'slurm'"):
        ls.strategy_study(random_model(), task, ["full"], engine="slurm", **QUICK)


def test_trainings_of_a_model_that_has_been_run_can_be_done_elsewhere(task, posted):
    used = random_model()
    given = {"strategies": ["(l*, L, L)", "head-only"], "seeds": [0], **QUICK}
    best = {"specialty_layer": ls.specialty(used, task, null=0).best}  # which runs it
    study = ls.strategy_study(used, task, engine="posted", **best, **given)
    assert len(posted) == 2
    assert ls.strategy_study(used, task, **best, **given).frame["score"].tolist() == study.frame["score"].tolist()


def made_up(**scores):
    """A study of strategies that scored so over three seeds, and train so many of 100 parameters."""
    study = StrategyStudy.__new__(StrategyStudy)
    study._strategies, study.trainings = [], []
    for name, (values, trainable) in scores.items():
        job = SimpleNamespace(
            method=SimpleNamespace(name="finetune"),
            strategy=Strategy.parse("(5, 6, 6)").resolve(6),
            training_data=SimpleNamespace(model=SimpleNamespace(depth=6)),
        )
        trainings = Trainings.__new__(Trainings)
        trainings.trainings = [
            SimpleNamespace(
                **{"score": value, "metric": "accuracy", "trainable": trainable, "parameters": 100},
                job=SimpleNamespace(**vars(job), seed=seed),
            )
            for seed, value in enumerate(values)
        ]
        study._strategies.append(name.replace("_", "-"))
        study.trainings.append(trainings)
    return study


def test_a_study_names_the_best_and_the_cheapest_that_ties():
    scores = {"full": ((0.79, 0.8, 0.81), 100), "top_2": ((0.78, 0.8, 0.79), 40), "head_only": ((0.5, 0.5, 0.5), 1)}
    best, tied, cheapest = made_up(**scores).findings()
    assert best.text.startswith("The best mean accuracy is 0.8000")
    assert "of full with finetune" in best.text
    assert best.sure is False
    assert tied.text == "Not shown to be worse over the same seeds, so tied with it: top-2 with finetune."
    assert "The cheapest of those that tie is top-2 with finetune: accuracy 0.790, 40% of the parameters" in (
        cheapest.text
    )
    assert [f.sure for f in made_up(full=scores["full"], head_only=scores["head_only"]).findings()] == [True]
    assert [f.sure for f in made_up(full=((0.8,), 100), head_only=((0.5,), 1)).findings()] == [None]
    same = {"full": ((0.8, 0.8, 0.8), 100), "top_2": ((0.79, 0.79, 0.79), 40)}  # nothing tells how much a seed makes
    assert made_up(**same).findings()[0].sure is False
    one_loses = {"full": ((0.8, 0.81, 0.82), 100), "top_2": ((0.79, 0.8, 0.75), 40)}  # outside the interval of the best
    assert made_up(**one_loses).findings()[0].sure is False


def test_the_best_is_trained_with_more_seeds_next():
    step = made_up(full=((0.7,), 100), top_2=((0.8,), 40)).next_step()
    assert step.command == "tune"
    assert step.arguments == ("--strategy", "(5, 6, 6)", "--method", "finetune", "--seeds", "5", "-o", "tuned")
    nothing = made_up(full=((math.nan,), 100))
    assert nothing.next_step() is None
    assert nothing.findings() == []
