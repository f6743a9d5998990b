"""Statistics of scores: points, text for text."""

from types import SimpleNamespace

import numpy as np
import pandas
import pytest

import layerscope as ls
from layerscope.evaluation.classification import ClassificationEvaluator
from layerscope.evaluation.evaluator import groups_of
from layerscope.registry import STATISTICS
from layerscope.resampling import jackknifed
from tests.helpers.data import three_class_frame
from tests.helpers.models import random_model


def scored(frame, seed=0, metric="accuracy", n=1000):
    """A table of scores, with what they are without each group."""
    generator = np.random.default_rng(seed)
    scores = generator.uniform(size=len(frame))
    left_out = scores + 0.01 * generator.normal(size=(20, len(frame)))
    return SimpleNamespace(frame=frame.assign(score=scores, metric=metric, n=n), left_out=left_out)


def curve(depth=12, **options):
    return scored(pandas.DataFrame({"layer": range(depth + 1)}), **options)


def check(said, value, *parts):
    np.testing.assert_allclose(said.value, 100 * value(*(p.frame["score"].to_numpy() for p in parts)))
    groups = np.asarray([100 * value(*each) for each in zip(*(p.left_out for p in parts), strict=True)])
    np.testing.assert_allclose(said.high - said.value, max(jackknifed(groups), 100 * 3 / 1000))


def test_a_cut_is_compared_with_the_whole_on_the_same_texts():
    untuned = curve()
    said = STATISTICS["blocks_lost"]({"c": untuned}, "c", share=0.1667)
    check(said, lambda s: s[12] - s[10], untuned)
    assert said.note == "layer 10 of 12"
    few = curve(depth=2)
    check(STATISTICS["blocks_lost"]({"c": few}, "c", share=0.1667), lambda s: s[2] - s[1], few)


def test_no_interval_is_narrower_than_three_texts():
    same = curve(n=48)
    same.left_out[:] = same.frame["score"].to_numpy()
    said = STATISTICS["blocks_lost"]({"c": same}, "c", share=0.5)
    np.testing.assert_allclose(said.high - said.low, 2 * 100 * 3 / 48)


def test_one_curve_over_another():
    tuned, untuned = curve(4), curve(4, seed=1)
    said = STATISTICS["recovered"]({"t": tuned, "u": untuned}, "t", "u", layers=[0.25, 0.75])
    check(said, lambda t, u: np.mean(t[1:4] - u[1:4]), tuned, untuned)
    assert "same layers" in STATISTICS["recovered"]({"t": tuned, "u": curve(5)}, "t", "u", layers=[0, 1]).reason
    other = curve(4, n=7)
    assert "same texts" in STATISTICS["recovered"]({"t": tuned, "u": other}, "t", "u", layers=[0, 1]).reason


def test_single_blocks_early_and_late():
    spans = [(i, j) for i in range(1, 7) for j in range(i, 7)]
    skips = scored(pandas.DataFrame(spans, columns=["first", "last"]))
    single = [spans.index((k, k)) for k in range(1, 7)]
    said = STATISTICS["skipping"]({"s": skips}, "s", first=[0, 0.34], second=[0.67, 1])
    check(said, lambda s: np.mean([s[single[4]], s[single[5]]]) - np.mean([s[single[0]], s[single[1]]]), skips)
    said = STATISTICS["skipping"]({"s": skips}, "s", first=1, second=[0, 1])
    check(said, lambda s: np.mean([s[k] for k in single[1:]]) - s[single[0]], skips)


def test_perplexity_has_no_points():
    said = STATISTICS["blocks_lost"]({"c": curve(metric="perplexity")}, "c", share=0.5)
    assert "perplexity is none" in said.reason


@pytest.fixture(scope="module")
def study():
    task = ls.task({"train": three_class_frame(40, 0), "validation": three_class_frame(60, 1)})
    few = {"epochs": 6, "batch": 8, "learning_rate": 3e-3}  # enough to learn it
    return ls.strategy_study(random_model(), task, ["full", "head-only", "(1, 4, 4)"], seeds=[0, 1], **few)


def test_strategies_are_compared_text_for_text_and_seed_by_seed(study):
    said = STATISTICS["strategy_gap"]({"s": study}, "s", better="full", worse="head-only")
    right = []
    for trainings in study.trainings[:2]:
        for training in trainings.trainings:
            training_data = training.job.training_data
            evaluator = ClassificationEvaluator(
                training.job.reopened(training.path), training_data.task, training_data.validation
            )
            right.append(evaluator.predictions(evaluator.logits(note=False)) == evaluator.labels)
    gap = (right[0] * 1.0 + right[1] - right[2] - right[3]) / 2
    np.testing.assert_allclose(said.value, 100 * gap.mean(), atol=1e-6)
    group = groups_of(np.arange(60))
    groups = np.asarray([100 * gap[group != g].mean() for g in range(20)])
    np.testing.assert_allclose(said.high - said.value, max(jackknifed(groups), 5.0), rtol=1e-6)
    assert "seed by seed" in said.note
    assert said.n == 60


def test_strategies_that_are_not_there_or_are_the_same(study):
    gap = STATISTICS["strategy_gap"]
    reason = gap({"s": study}, "s", better="full", worse="(l*+1, L, L)").reason
    assert reason.startswith("the strategy (l*+1, L, L) was not trained; with finetune there were: full")
    assert "; nothing was tuned with adapter" in gap({"s": study}, "s", "full", "head-only", "adapter").reason
    assert "same strategy" in gap({"s": study}, "s", better="full", worse="(1, 4, 4)").reason
    unequal = gap({"s": study}, "s", better="full", worse="head-only", as_many=True).reason
    assert unequal == "full is (1, 4, 4) here and head-only head-only at 4: they do not tune as many blocks"
    assert "(m-2, m, L) was not trained" in gap({"s": study}, "s", better="full", worse="(m-2, m, L)").reason


def test_injection_loses_points():
    row = {
        "layer": 4,
        "method": "linear",
        "metric": "accuracy",
        "n": 100,
        "lost": 0.1,
        "lost_low": 0.06,
        "lost_high": 0.14,
    }
    frame = pandas.DataFrame([row, {**row, "method": "inn", "lost": 0.02, "lost_low": 0.02, "lost_high": 0.02}])
    left_out = np.random.default_rng(0).normal([[0.1], [0.02]], 0.02, (2, 20))
    values = {"i": SimpleNamespace(frame=frame, left_out=left_out)}
    said = STATISTICS["injected"](values, "i", "linear")
    np.testing.assert_allclose([said.value, said.high - said.value], [10, 100 * jackknifed(left_out[0])])
    less = STATISTICS["injected"](values, "i", "linear", less="inn")
    np.testing.assert_allclose([less.value, less.high - less.value], [8, 100 * jackknifed(left_out[0] - left_out[1])])
    values["i"].left_out = np.full((2, 20), 0.1)
    least = STATISTICS["injected"](values, "i", "linear", less="inn")
    assert least.high - least.value == pytest.approx(3)  # texts of 100, at least
    assert "was not among" in STATISTICS["injected"](values, "i", "mlp").reason
    assert "inn was not" not in STATISTICS["injected"](values, "i", "inn").reason


def test_counted_costs_have_no_doubt():
    costs = ls.strategies(random_model(), ls.task(three_class_frame(40, 0)), specialty_layer=2)
    said = STATISTICS["cheaper"]({"c": costs}, "c", strategy="(L, L, L)")
    frame = costs.frame.set_index("strategy")
    assert said.low == said.high == frame.loc["(L, L, L)", "backward"] / frame.loc["full", "backward"]
    assert STATISTICS["cheaper"]({"c": costs}, "c", strategy="freeze-bottom-9").reason
    depth = int(frame.loc["full", "head"])
    share = (depth - 1) / depth
    assert STATISTICS["cheaper"]({"c": costs}, "c", strategy="(L, L, L)", frozen=share) == said
    other = STATISTICS["cheaper"]({"c": costs}, "c", strategy="(L, L, L)", frozen=0.1)
    assert other.reason == f"(L, L, L) leaves {depth - 1} of {depth} blocks as they are, not 0.1 of them"


def test_a_strategy_is_known_by_its_name_or_by_its_blocks(study):
    gap = STATISTICS["strategy_gap"]
    by_name, by_blocks = (gap({"s": study}, "s", better=name, worse="head-only") for name in ("full", "(1, L, L)"))
    assert by_name == by_blocks


def test_strategies_that_learned_nothing_are_not_compared():
    task = ls.task({"train": three_class_frame(40, 0), "validation": three_class_frame(60, 1)})
    idle = ls.strategy_study(random_model(), task, ["full", "head-only"], seeds=[0], max_steps=1, learning_rate=1e-9)
    said = STATISTICS["strategy_gap"]({"s": idle}, "s", better="full", worse="head-only")
    assert said.reason.startswith("the tuned model has not learned the task (accuracy 0.")


def test_blocks_that_are_all_the_same_are_not_told_apart():
    spans = [(i, j) for i in range(1, 4) for j in range(i, 4)]
    skips = scored(pandas.DataFrame(spans, columns=["first", "last"]))
    skips.frame["score"] = 0.8
    assert "the same without any one" in STATISTICS["skipping"]({"s": skips}, "s", first=1, second=[0, 1]).reason
