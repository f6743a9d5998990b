"""Steps out of line with gradual change: residuals against the textbook's, sizes, and what hides what."""

import numpy as np
import pytest

from layerscope.similarity import layer_blocks as module
from layerscope.similarity.layer_blocks import against_gradual_change, log_steps, studentised

ROUNDS = 499


def residual_maker(m, terms):
    trend = np.vander(np.arange(m), terms)
    return np.eye(m) - trend @ np.linalg.pinv(trend)


@pytest.mark.parametrize("terms", [2, 3])
@pytest.mark.parametrize("chosen", [[3], [2, 6], [1, 4, 8]])
def test_residuals_are_those_of_a_fit_without_the_set(terms, chosen):
    """The textbook's prediction error: fit the other steps, predict these, divide by its standard error."""
    m = 12
    y = np.random.default_rng(0).normal(size=m)
    rest = [i for i in range(m) if i not in chosen]
    trend = np.vander(np.arange(m, dtype=float), terms)
    coefficients = np.linalg.lstsq(trend[rest], y[rest], rcond=None)[0]
    spread = np.sqrt(((y[rest] - trend[rest] @ coefficients) ** 2).sum() / (len(rest) - terms))
    inverse = np.linalg.inv(trend[rest].T @ trend[rest])
    expected = [
        (y[i] - trend[i] @ coefficients) / (spread * np.sqrt(1 + trend[i] @ inverse @ trend[i])) for i in chosen
    ]
    found = studentised(y[None], np.array([chosen]), residual_maker(m, terms))
    np.testing.assert_allclose(found[0, 0], expected, rtol=1e-6)


def test_trend_and_spread_do_not_matter():
    generator = np.random.default_rng(1)
    y, splits = generator.normal(size=12), {2: [5], 3: [4, 9]}
    plain = against_gradual_change(y, splits, ROUNDS)
    moved = against_gradual_change(3 * y + 2 + 0.5 * np.arange(12) - 0.1 * np.arange(12) ** 2, splits, ROUNDS)
    assert moved == plain


@pytest.mark.parametrize("m", [5, 8, 12])
def test_the_best_of_all_splits_is_rejected_as_often_as_it_says(m):
    """With the split that stands out most, which the test allows for, p is uniform."""
    generator, p_values = np.random.default_rng(2), []
    for _ in range(300):
        y = generator.normal(size=m)
        p_values.append(min(against_gradual_change(y, {2: [c]}, ROUNDS).p_value for c in range(2, m)))
    assert np.mean(np.array(p_values) < 0.05) == pytest.approx(0.05, abs=0.035)
    assert np.mean(np.array(p_values) < 0.5) == pytest.approx(0.5, abs=0.09)


def test_boundaries_do_not_hide_one_another():
    y = np.random.default_rng(3).normal(size=12) * 0.2
    y[[3, 8]] += 2
    assert against_gradual_change(y, {2: [4]}, ROUNDS).p_value > 0.05  # the other one makes the spread large
    both = against_gradual_change(y, {2: [4], 3: [4, 9], 4: [2, 4, 9]}, ROUNDS)
    assert (both.blocks, both.p_value < 0.01) == (3, True)


def test_every_cut_has_to_stand_out():
    y = np.random.default_rng(3).normal(size=12) * 0.2
    y[3] += 2
    assert against_gradual_change(y, {3: [4, 9]}, ROUNDS).p_value > 0.3
    assert against_gradual_change(y, {2: [4], 3: [4, 9]}, ROUNDS).blocks == 2


def test_the_smaller_step_is_no_boundary():
    y = np.random.default_rng(3).normal(size=12) * 0.2
    y[5] -= 3
    assert against_gradual_change(y, {2: [6]}, ROUNDS).p_value > 0.9


def test_equal_steps_are_gradual_and_one_larger_one_is_not():
    assert against_gradual_change(np.full(12, -2.0), {2: [6]}, ROUNDS).p_value > 0.5
    one = np.full(12, -2.0)
    one[5] = -0.5
    assert against_gradual_change(one, {2: [6]}, ROUNDS).p_value == 1 / (ROUNDS + 1)


def test_where_nothing_stands_out_there_are_as_few_blocks_as_can_be():
    y = np.sin(np.arange(12))
    assert against_gradual_change(y, {2: [6], 3: [4, 8], 4: [3, 6, 9]}, ROUNDS).blocks == 2


def test_unknown_steps_are_left_out():
    y = np.random.default_rng(4).normal(size=12) * 0.2
    y[5] += 3
    y[[0, 8]] = np.nan
    assert against_gradual_change(y, {2: [6]}, ROUNDS).p_value < 0.01
    unknown = against_gradual_change(y, {2: [9]}, ROUNDS)
    assert np.isnan(unknown.p_value)
    assert "a step at a boundary is unknown" in unknown.reason
    assert against_gradual_change(y, {2: [6], 3: [6, 9]}, ROUNDS).blocks == 2  # what can be judged is


def test_too_few_steps_and_too_many_splits_are_said(monkeypatch):
    few = against_gradual_change(np.zeros(4), {2: [2]}, ROUNDS)
    assert np.isnan(few.p_value)
    assert few.reason == "2 blocks need 5 known steps between neighbouring layers, and there are 4"
    monkeypatch.setattr(module, "_MOST_SPLITS", 5)
    assert "too many splits of 13 layers into 2 blocks" in against_gradual_change(np.zeros(12), {2: [6]}).reason


def test_steps_are_logs_of_distances():
    values = 1 - np.array([[0.0, 0.1, 0.5], [0.1, 0.0, 0.2], [0.5, 0.2, 0.0]])
    np.testing.assert_allclose(log_steps(values, [0, 1, 2]), np.log([0.1, 0.2]))
    ones = np.ones((3, 3))
    assert np.isfinite(log_steps(ones, [0, 1, 2])).all()  # the same layer twice
    assert log_steps(ones + 1e-12, [0, 1, 2]).tolist() == log_steps(ones, [0, 1, 2]).tolist()
    gap = log_steps(np.full((5, 5), 0.5), [0, 1, 2, 4, 5])
    assert np.isnan(gap).tolist() == [False, False, True, False]
    assert np.isfinite(log_steps(np.full((4, 4), 0.5), [0, 3, 6, 9])).all()
