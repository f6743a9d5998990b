"""The choice among many smaller models: its order, its bound, and how often it is wrong where the truth is known."""

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats

from layerscope.cutting.selection_test import (
    Changes,
    Parts,
    added_rows,
    check_confidence,
    decide,
    least_rows,
    lower_bound,
    order,
    rows_needed,
    smallest_within,
)
from layerscope.errors import InputError
from tests.helpers.cli import script


def rows(lost=0, gained=0, n=1000):
    """Changes of answers to n rows."""
    return Changes(np.repeat([-1.0, 1.0, 0.0], [lost, gained, n - lost - gained]), n, -1.0)


def test_parts_share_no_row_and_every_class_is_in_each():
    labels = np.arange(400) % 2
    parts = Parts.dealt(np.arange(400), 0.9, seed=3, labels=labels)
    assert [len(part) for part in (parts.picking, parts.confirming, parts.scoring)] == [50, 150, 200]
    assert sorted(np.concatenate([parts.picking, parts.confirming, parts.scoring])) == list(range(400))
    for part in (parts.picking, parts.confirming, parts.scoring):
        assert labels[part].mean() == pytest.approx(0.5, abs=0.02)
    plain = Parts.dealt(np.arange(400), 0, seed=3, labels=labels)
    assert list(plain.scoring) == list(parts.scoring)
    assert len(plain.picking) == 200
    assert not len(plain.confirming)


def test_texts_are_dealt_out_whole():
    texts = np.repeat(np.arange(40), 7)
    parts = Parts.dealt(texts, 0.9, seed=0)
    named = [set(texts[part]) for part in (parts.picking, parts.confirming, parts.scoring)]
    assert not named[0] & named[1]
    assert not (named[0] | named[1]) & named[2]


def test_the_best_of_each_size_is_tested_from_the_largest_down():
    scores = [0.5, 0.9, 0.8, math.nan, 0.7, math.nan]
    assert order(scores, [9, 9, 8, 8, 3, 2]) == [1, 2, 4]


def test_the_smallest_that_is_confirmed_is_taken_and_the_first_failure_ends_it():
    tested = []

    def changes(candidate):
        tested.append(candidate)
        return {0: rows(), 1: rows(lost=2), 2: rows(lost=40), 3: rows()}[candidate]

    decision = decide([1, 1, 1, 1], [4, 3, 2, 1], changes, tolerance=0.01, confidence=0.9)
    assert tested == [0, 1, 2]  # the last is never looked at, good as it is
    assert decision.choice == 1
    assert [check.passed for check in decision.checks] == [True, True, False]
    assert decision.checks[2].change == pytest.approx(-0.04)
    assert decision.needed is None  # it looks to lose too much on any number of rows


def test_where_nothing_passes_nothing_is_taken():
    decision = decide([0.9], [3], lambda _: rows(lost=3, n=200), tolerance=0.02, confidence=0.9)
    assert decision.choice is None
    needed = decision.needed
    share = Changes(np.tile(rows(lost=3, n=200).values, 50), 10000, -1.0)
    assert lower_bound(Changes(share.values[:needed], needed, -1.0), 0.9) == pytest.approx(-0.02, abs=2e-3)
    assert decide([], [], rows, tolerance=0.1, confidence=0.9).checks == ()


@pytest.mark.parametrize("confidence", [0.5, 0.8, 0.9, 0.95, 0.99])
@pytest.mark.parametrize("lost", [0, 1, 5, 40])
def test_the_bound_of_a_rate_is_the_exact_one(lost, confidence):
    """Only losses, so the exact bound is known (Clopper & Pearson 1934)."""
    exact = stats.beta.ppf(confidence, lost + 1, 2000 - lost)
    assert -lower_bound(rows(lost, n=2000), confidence) == pytest.approx(exact, rel=0.05)


def test_the_bound_of_many_values_is_students():
    values = np.random.default_rng(0).normal(0.1, 1, 500)
    student = values.mean() - stats.t.ppf(0.9, 499) * values.std(ddof=1) / math.sqrt(500)
    assert lower_bound(Changes(values, 500, 0.0), 0.9) == pytest.approx(student)
    assert lower_bound(Changes(values[:1], 1, 0.0), 0.9) == -math.inf


@pytest.mark.parametrize(("lost", "gained"), [(0.01, 0.0), (0.012, 0.002), (0.05, 0.04), (0.21, 0.2)])
def test_the_bound_holds_as_often_as_it_says(lost, gained):
    """The true change is -.01, right at a tolerance; few differences and many."""
    generator = np.random.default_rng(1)
    draws = generator.multinomial(600, [lost, gained, 1 - lost - gained], 2000)
    lows = [lower_bound(rows(down, up, 600), 0.9) for down, up, _ in draws]
    assert np.mean(np.asarray(lows) > -0.01) < 0.12


def test_without_added_rows_the_bound_would_be_far_too_good():
    """No difference in 100 rows says that at most 2.3 % differ, not that none does."""
    assert lower_bound(rows(n=100), 0.9) == pytest.approx(math.log(0.1) / 100, rel=0.02)
    assert added_rows(0.9) == pytest.approx(1.013, abs=1e-3)


@settings(max_examples=40, deadline=None)
@given(st.integers(0, 30), st.integers(0, 30), st.floats(0.002, 0.2), st.floats(0.5, 0.99))
def test_rows_needed_are_enough_and_no_fewer(lost, gained, tolerance, confidence):
    changes = rows(lost, gained, 300)
    needed = rows_needed(changes, tolerance, confidence)
    if needed is None:
        assert changes.mean <= -tolerance
        return
    assert needed >= least_rows(tolerance, confidence) * 0.97
    again = rows_needed(changes, tolerance * 1.5, confidence)
    assert again <= needed


def test_no_rows_are_enough_for_no_tolerance():
    assert least_rows(0.0, 0.9) is None
    assert least_rows(0.01, 0.9) == 231
    assert rows_needed(rows(), 0.0, 0.9) is None


def test_without_a_bound_the_smallest_that_looks_well_is_taken():
    assert smallest_within([0.9, 0.85, 0.89, 0.2, math.nan], [5, 3, 3, 1, 0], 0.9, 0.06) == 2
    assert smallest_within([0.1], [1], 0.9, 0.06) is None


@pytest.mark.parametrize("confidence", [-1, 0, 0.3, 1, 1.5, math.nan])
def test_a_confidence_is_checked(confidence):
    with pytest.raises(InputError, match=r"it must be at least 0\.5 and below 1"):
        check_confidence(confidence)


def test_after_the_choice_the_tolerance_holds():
    """The rule without a bound is wrong most of the time, a bound for each too often; this one is not."""
    advice = script("benchmarks/calibrations/advice.py")
    outside = {rule: [] for rule in advice.RULES}
    for shape in ("slope", "just outside"):
        for result in advice.simulated(shape, 1600, 40, 0):
            outside[result["rule"]].append(result["outside"])
    assert min(outside["no bound"]) > 0.7
    assert max(outside["a bound for each"]) > 0.25
    assert max(outside["confidence 0.9"]) <= 0.15


def test_with_enough_rows_what_can_go_is_found():
    advice = script("benchmarks/calibrations/advice.py")
    results = {result["rule"]: result for result in advice.simulated("harmless", 12000, 10, 0)}
    assert results["confidence 0.9"]["removed"] >= 5.0
    assert results["confidence 0.9"]["could be removed"] == 6.0
