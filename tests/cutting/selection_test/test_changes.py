"""Changes by row: their mean is the change of the score, their spread its error, for every metric."""

import numpy as np
import pytest

from layerscope import metrics
from layerscope.cutting.selection_test import jackknifed, of_answers, of_losses


def classes(n=400, seed=0, count=2):
    generator = np.random.default_rng(seed)
    labels = generator.integers(0, count, n)
    whole, smaller = (
        np.where(generator.random(n) < right, labels, generator.integers(0, count, n)) for right in (0.8, 0.7)
    )
    return labels, whole, smaller


def numbers(n=400, seed=0):
    generator = np.random.default_rng(seed)
    labels = generator.normal(size=n)
    return labels, labels + 0.5 * generator.normal(size=n), labels + 0.7 * generator.normal(size=n)


CASES = {
    "accuracy": classes,
    "f1": classes,
    "matthews": classes,
    "f1 of three": lambda *given: classes(*given, count=3),
    "pearson_spearman": numbers,
}


@pytest.mark.parametrize("case", CASES)
def test_the_mean_is_the_change_of_the_score(case):
    metric = case.split()[0]
    labels, whole, smaller = CASES[case]()
    changes = of_answers(metric, labels, whole, smaller)
    change = metrics.score(metric, labels, smaller) - metrics.score(metric, labels, whole)
    assert changes.mean == pytest.approx(change, abs=1e-12 if metric == "accuracy" else 3e-3)
    assert changes.n == 400
    assert changes.worst < 0


@pytest.mark.parametrize("case", CASES)
def test_the_spread_is_that_of_the_score_over_other_rows(case):
    metric = case.split()[0]
    scores, errors = [], []
    for seed in range(15 if metric == "pearson_spearman" else 60):
        labels, whole, smaller = CASES[case](300, seed)
        changes = of_answers(metric, labels, whole, smaller)
        scores.append(changes.mean)
        errors.append(changes.values.std(ddof=1) / np.sqrt(len(changes.values)))
    assert np.mean(errors) == pytest.approx(np.std(scores), rel=0.45 if metric == "pearson_spearman" else 0.25)


def test_a_lost_row_counts_as_much_as_one_does():
    labels = np.repeat([0, 1], [180, 20])
    changes = of_answers("f1", labels, labels, labels)
    more, answers = np.append(labels, 1), np.append(labels, 0)
    after = metrics.score("f1", more, answers) - 1.0
    assert not changes.values.any()
    assert changes.worst == pytest.approx(201 * after)
    assert of_answers("matthews", np.zeros(30, int), np.zeros(30, int), np.zeros(30, int)).worst == -1.0


def test_many_rows_are_left_out_in_groups():
    labels, whole, smaller = numbers(900)
    changes = of_answers("pearson_spearman", labels, whole, smaller)
    assert len(changes.values) == 100 < changes.n
    alone = jackknifed(
        lambda rows: np.corrcoef(labels[rows], smaller[rows])[0, 1] - np.corrcoef(labels[rows], whole[rows])[0, 1],
        np.arange(900)[:, None] // 4,  # equal in fours, so that they are few
    )
    assert len(alone) == 900
    error = changes.values.std(ddof=1) / np.sqrt(100)
    assert error == pytest.approx(alone.std(ddof=1) / np.sqrt(900), rel=0.35)


def test_lower_losses_are_better_and_weights_make_a_ratio():
    generator = np.random.default_rng(0)
    tokens = generator.integers(5, 60, 300)
    whole = generator.gamma(2.0, 1.0, 300)
    smaller = whole + 0.1 + 0.05 * generator.normal(size=300)
    plain = of_losses(whole, smaller)
    assert plain.mean == pytest.approx((whole - smaller).mean())
    assert plain.worst == plain.values.min() < 0
    weighted = of_losses(whole, smaller, weights=tokens)
    assert weighted.mean == pytest.approx(np.average(whole - smaller, weights=tokens))
    resampled = [np.average((whole - smaller)[at], weights=tokens[at]) for at in generator.integers(0, 300, (800, 300))]
    assert weighted.values.std() / np.sqrt(300) == pytest.approx(np.std(resampled), rel=0.1)
