"""How two curves over layers agree, and intervals that allow for neighbouring layers being alike."""

import math

import numpy as np
import pytest
from scipy.stats import linregress, pearsonr, spearmanr

import layerscope as ls
from layerscope.errors import InputError
from layerscope.probing.agreement import correlation
from layerscope.results import Curve


def curves(pairs):
    layers = list(range(1, len(pairs) + 1))
    return [Curve(name, ["m"] * len(pairs), layers, pairs[:, k]) for k, name in enumerate(("nu", "score"))]


def alike(layers, generator, correlated=0.0, share=0.9):
    """Two curves of a first-order autoregression whose innovations have a correlation, as the curves then have."""
    both = [[1.0, correlated], [correlated, 1.0]]
    noise = generator.multivariate_normal([0, 0], both, size=layers)
    values = [noise[0] / math.sqrt(1 - share**2)]
    for each in noise[1:]:
        values.append(share * values[-1] + each)
    return np.asarray(values)


def test_agreement_is_that_of_scipy():
    generator = np.random.default_rng(0)
    x = generator.normal(size=13)
    y = -2 * x + generator.normal(size=13)
    one, two = (Curve(name, ["m"] * 13, list(range(13)), values) for name, values in (("nu", x), ("score", y)))
    agreed = ls.agreement(one, two)
    assert agreed["n"] == 12  # layer 0 is left out
    assert agreed["pearson"] == pytest.approx(pearsonr(x[1:], y[1:])[0])
    assert agreed["spearman"] == pytest.approx(spearmanr(x[1:], y[1:])[0])
    assert agreed["slope"] == pytest.approx(linregress(x[1:], y[1:]).slope)
    assert agreed["r2"] == pytest.approx(agreed["pearson"] ** 2)
    assert agreed["note"] == ""
    for name, (low, high) in agreed["intervals"].items():
        assert low <= agreed[name] <= high
    assert agreed["intervals"]["pearson"][1] < -0.3
    assert correlation(one, two) == agreed["pearson"]
    with pytest.raises(InputError, match="at least 3 common layers"):
        ls.agreement(one, Curve("s", ["m"], [5], np.ones(1)))
    assert math.isnan(correlation(one, Curve("s", ["m"], [5], np.ones(1))))


@pytest.mark.parametrize("layers", [6, 12, 24])
def test_intervals_cover_where_neighbours_are_alike(layers):
    """Layers drawn with replacement cover .82, .67 and .59 here."""
    generator = np.random.default_rng(0)
    for truth in (0.0, 0.8):
        intervals = [ls.agreement(*curves(alike(layers, generator, truth)))["intervals"]["pearson"] for _ in range(150)]
        assert np.mean([low <= truth <= high for low, high in intervals]) > 0.9
    width = np.mean([high - low for low, high in intervals])
    assert width < (2.1 if layers == 6 else 1.0)  # and with layers enough they still say something


def test_too_few_layers_are_said_to_be():
    generator = np.random.default_rng(1)
    few = ls.agreement(*curves(alike(6, generator)))
    assert few["note"] == "6 layers are too few to tell how two curves agree: neighbouring layers are alike."
    assert few["intervals"]["pearson"] == (-1.0, 1.0)
    assert few["intervals"]["r2"] == (0.0, 1.0)
    at = np.arange(12)
    bows = np.column_stack([np.sin(at / 4), np.cos(at / 5)])  # their steps are alike too
    assert ls.agreement(*curves(bows))["note"].startswith("12 layers are too few")


def test_a_constant_curve_has_no_correlation():
    flat = ls.agreement(*curves(np.column_stack([np.arange(12.0), np.ones(12)])))
    assert math.isnan(flat["pearson"])
    assert all(math.isnan(bound) for bound in flat["intervals"]["pearson"])
    assert flat["note"] == "One of the curves is flat, so that there is nothing to agree with."


def test_layers_without_bound_are_left_out():
    """A perplexity may be beyond any number, which no correlation can take."""
    values = np.random.default_rng(0).normal(size=(12, 2))
    wild = values.copy()
    wild[3, 1] = np.inf
    found = ls.agreement(*curves(wild))
    assert found["n"] == 11
    assert found["pearson"] == pytest.approx(np.corrcoef(np.delete(values, 3, axis=0).T)[0, 1])


def test_a_curve_of_several_models_is_refused():
    """Its layers come twice, and would be counted twice."""
    draw = np.random.default_rng(0).normal
    single = Curve("x", ["a"] * 9, list(range(9)), draw(size=9))
    both = Curve("localization", ["a"] * 9 + ["b"] * 9, [*range(9)] * 2, draw(size=18))
    for pair in ((single, both), (both, single)):
        with pytest.raises(InputError, match="this one of localization has those of 2: a, b"):
            ls.agreement(*pair)
