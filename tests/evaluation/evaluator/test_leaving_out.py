"""Scores without groups of texts: whole texts, the same in every exam, and the jackknife's interval of a mean."""

import numpy as np

import layerscope as ls
from layerscope.evaluation.evaluate import make_evaluator
from layerscope.evaluation.evaluator import groups_of, without_groups
from layerscope.resampling import jackknifed
from tests.helpers.data import three_class_frame
from tests.helpers.models import random_model


def test_texts_stay_together_and_groups_are_of_one_size():
    texts = np.repeat(np.arange(60), 3)
    group = groups_of(texts)
    assert sorted(np.bincount(group)) == [9] * 20
    assert all(len(set(group[texts == text])) == 1 for text in range(60))
    assert set(groups_of(np.arange(7))) == set(range(7))


def test_scores_without_each_group_are_those_of_the_other_rows():
    evaluator = make_evaluator(
        random_model(kind="classifier"),
        ls.task({"train": three_class_frame(30, 0), "validation": three_class_frame(45, 1)}),
    )
    answers = evaluator.logits()
    left_out, group = without_groups(evaluator, [answers, -answers]), groups_of(evaluator.texts)
    assert left_out.shape == (20, 2)
    right = evaluator.predictions(answers) == evaluator.labels
    np.testing.assert_allclose(left_out[:, 0], [right[group != g].mean() for g in range(20)])
    other = evaluator.predictions(-answers) == evaluator.labels
    np.testing.assert_allclose(left_out[:, 1], [other[group != g].mean() for g in range(20)])


def test_the_jackknife_of_a_mean_is_its_standard_error():
    values = np.random.default_rng(0).normal(size=20)
    left_out = np.asarray([np.delete(values, k).mean() for k in range(20)])
    from scipy.stats import t

    expected = t.ppf(0.975, 19) * values.std(ddof=1) / np.sqrt(20)
    np.testing.assert_allclose(jackknifed(left_out), expected)
