"""How sure it is that one model is better than another on the same rows."""

import math

import numpy as np
import pytest
from scipy import stats

import layerscope as ls
from layerscope.cutting.selection_test import of_answers, of_losses
from layerscope.evaluation.perplexity import PerplexityEvaluator
from layerscope.tuning.objectives.base import Gain, gain_between, gain_of
from tests.helpers.data import text_frame
from tests.helpers.models import small_decoder


def test_losses_of_rows_give_the_interval_of_a_paired_t_test():
    before, after = np.random.default_rng(0).normal([[2.0], [1.8]], 0.3, size=(2, 12))
    gain = gain_of(of_losses(before, after), of_losses(after, before))
    low, high = stats.ttest_rel(before, after).confidence_interval(0.95)
    assert gain.value == pytest.approx(float(np.mean(before - after)))
    assert gain.low <= low <= gain.value <= high <= gain.high  # the added rows make it a little wider
    assert gain.high - gain.low < 2 * (high - low)


def test_intervals_hold_what_is_true_as_often_as_they_say():
    draw, held, sure = np.random.default_rng(1), 0, 0
    for _ in range(400):
        shared = draw.normal(3.0, 1.0, 6)  # texts differ far more than the models do
        before, after = shared + draw.normal(0, 0.1, 6), shared + draw.normal(0, 0.1, 6)
        gain = gain_of(of_losses(before, after), of_losses(after, before))
        held += gain.low <= 0 <= gain.high
        sure += gain.sure
    assert held + sure == 400
    assert held >= 0.94 * 400


def test_one_row_tells_nothing_and_few_right_answers_little():
    gain = gain_of(of_losses(np.ones(1), np.zeros(1)), of_losses(np.zeros(1), np.ones(1)))
    assert (gain.low, gain.high, gain.sure) == (-math.inf, math.inf, False)
    assert Gain.from_spec(gain.spec()) == gain
    labels = np.zeros(3, int)
    right, wrong = labels, labels + 1
    few = gain_of(of_answers("accuracy", labels, wrong, right), of_answers("accuracy", labels, right, wrong))
    assert few.value == 1.0
    assert not few.sure
    labels = np.zeros(40, int)
    wrong = labels + 1
    many = gain_of(of_answers("accuracy", labels, wrong, labels), of_answers("accuracy", labels, labels, wrong))
    assert many.sure


def test_a_perplexity_gains_in_its_own_units():
    model = small_decoder()
    task = ls.task(text_frame(12), kind="text")
    evaluator = PerplexityEvaluator(model, task, task.split(), 16)
    before = evaluator.logits(note=False)
    after = before.copy()
    after[:, 0] *= 0.9  # every loss is a tenth less
    gain = gain_between(evaluator, before, after)
    assert gain.value == pytest.approx(evaluator.value(before) - evaluator.value(after), rel=1e-3)
    assert 0 < gain.low < gain.value < gain.high
    back = gain_between(evaluator, after, before)
    assert back.high < 0
    one = gain_between(evaluator, before, after, np.arange(1))
    assert not one.sure
