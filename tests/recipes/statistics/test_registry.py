"""What all statistics share: parts of a depth, intervals by the jackknife, means of intervals."""

import math

import numpy as np
import pytest

from layerscope.errors import LayerscopeError
from layerscope.recipes.claims import Statistic
from layerscope.recipes.statistics import similarities
from layerscope.recipes.statistics.registry import estimated, mean, result, within
from layerscope.registry import STATISTICS, UNITS


def test_statistics_are_found_by_name():
    assert STATISTICS["diagonal"] is similarities.diagonal
    with pytest.raises(LayerscopeError, match=r"statistic 'diagonals'.*diagonal"):
        STATISTICS["diagonals"]
    assert UNITS.keys() == STATISTICS.keys()
    assert UNITS["blocks_lost"] == "points"


def test_results_are_found_by_name_and_part():
    assert result({"states": {"cka": 3}}, "states.cka") == 3
    with pytest.raises(LayerscopeError, match="has no svcca"):
        result({"states": {"cka": 3}}, "states.svcca")


def test_both_ends_belong_to_a_range():
    assert within([0, 3, 6, 9, 12], (0.25, 0.75), 12).tolist() == [False, True, True, True, False]
    assert within([1, 2, 3], (1, 1), 3).tolist() == [False, False, True]


def test_the_interval_is_that_of_the_groups():
    left_out = np.random.default_rng(0).normal(size=20)
    said = estimated(0.5, left_out, n=100)
    from scipy.stats import t

    half = t.ppf(0.975, 19) * math.sqrt(19 / 20 * np.square(left_out - left_out.mean()).sum())
    np.testing.assert_allclose([said.low, said.high], [0.5 - half, 0.5 + half])
    both = estimated(0.5, left_out, left_out, n=100)  # two sets of texts: variances add up
    np.testing.assert_allclose(both.high - 0.5, math.sqrt(2) * half)
    assert estimated(0.5, np.zeros(20), n=100, least=3).low == -2.5
    assert math.isnan(estimated(0.5, None, n=100).low)
    assert math.isnan(estimated(0.5, left_out, None, n=100).low)
    assert math.isnan(estimated(0.5, np.append(left_out, math.nan), n=100).high)
    assert estimated(math.nan, left_out, n=100, undefined="no score").reason == "no score"


def test_the_mean_of_intervals_is_as_wide_as_they_are():
    said = mean([Statistic(1.0, 0.0, 3.0, n=5), Statistic(3.0, 2.0, 4.0, n=4)])
    assert (said.value, said.low, said.high, said.n) == (2.0, 1.0, 3.5, 4)
    assert mean([]).reason
