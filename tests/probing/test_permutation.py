"""Permuted labels: texts exchange theirs, p-values have the size they say, after the choice among layers too."""

import math

import numpy as np
import pytest

import layerscope as ls
from layerscope.errors import InputError
from layerscope.probing.permutation import add_null, check_null, p_after_choice, permuted_labels
from layerscope.results import Curve


def test_the_rows_of_a_text_keep_one_label():
    texts = np.repeat([5, 2, 9, 7], [3, 1, 2, 4])
    labels = np.repeat([0, 1, 1, 0], [3, 1, 2, 4])
    exchanged = permuted_labels(labels, texts, 50, seed=0)
    for each in exchanged:
        of_text = [np.unique(each[texts == text]) for text in np.unique(texts)]
        assert all(len(label) == 1 for label in of_text)
        assert sorted(int(label[0]) for label in of_text) == [0, 0, 1, 1]
    assert len(np.unique(exchanged, axis=0)) == 6  # every way to give two of four texts a label
    assert np.array_equal(exchanged, permuted_labels(labels, texts, 50, seed=0))
    assert not np.array_equal(exchanged, permuted_labels(labels, texts, 50, seed=1))


def test_tags_move_with_their_text():
    texts, tags = np.repeat(np.arange(5), 4), np.tile([0, 1, 2, 3], 5)
    tags[:4] = [3, 3, 3, 0]
    for each in permuted_labels(tags, texts, 10, seed=0):
        runs = sorted(each.reshape(5, 4).tolist())
        assert runs == [[0, 1, 2, 3]] * 4 + [[3, 3, 3, 0]]


def test_a_null_is_a_median_a_ratio_and_a_share():
    curve = Curve("nu", ["m"] * 3, [0, 1, 2], np.asarray([math.nan, 1.0, 4.0]), best=1)
    draws = np.asarray([[math.nan, 2.0, 3.0], [math.nan, 4.0, 4.0], [math.nan, 0.5, 8.0]])
    add_null(curve, draws)
    np.testing.assert_array_equal(curve.null, [math.nan, 2.0, 4.0])
    np.testing.assert_array_equal(curve.ratio, [math.nan, 0.5, 1.0])
    np.testing.assert_array_equal(curve.p, [math.nan, 0.5, 0.75])
    assert curve.p_best >= curve.p[1]
    assert list(curve.frame)[2:] == ["nu", "null", "ratio", "p"]
    assert [series.name for series in curve.figures()[0].series][1].startswith("permuted labels")


def test_a_choice_among_layers_costs_what_it_should():
    """Values that are nothing but noise: the least of twelve is below .05 far too often by itself, and not after."""
    generator, layers = np.random.default_rng(0), list(range(13))
    plain, allowed = [], []
    for _ in range(200):
        draws = np.exp(generator.normal(size=(101, 13)))
        best = layers[1 + int(np.argmin(draws[0, 1:]))]
        plain.append((1 + (draws[1:, best] <= draws[0, best]).sum()) / 101)
        allowed.append(p_after_choice(layers, draws[0], draws[1:])[best])
    assert np.mean(np.asarray(plain) < 0.05) > 0.3
    assert np.mean(np.asarray(allowed) < 0.05) < 0.09
    draws[0, 4] = draws[1:, 4].min() / 1000
    p = p_after_choice(layers, draws[0], draws[1:])
    assert p[4] == pytest.approx(1 / 101)
    assert p[5] > 0.05
    assert math.isnan(p[0])


def test_how_many_permutations():
    assert check_null(0) == 0
    for wrong in (-1, 2.5, True):
        with pytest.raises(InputError, match="how many permutations"):
            check_null(wrong)
    with pytest.raises(InputError, match=r"null is 10; at least 20 permutations are needed for p-values below 0\.05"):
        ls.recommend("garden:bert-s0", "pydocs", null=10)
