"""Splits, shuffles and resamples deal out whole texts."""

import numpy as np
import pytest
from scipy import stats

from layerscope.resampling import ending, exchanged, folds, halves, jackknifed, resampled, shuffled

TEXTS = np.repeat([7, 3, 11, 4, 9, 20], [3, 1, 5, 2, 4, 1])


@pytest.mark.parametrize("count", [2, 3, 6])
def test_a_fold_has_whole_texts_and_folds_are_of_like_size(count):
    fold = folds(TEXTS, count, seed=1)
    homes = [np.unique(fold[text == TEXTS]) for text in np.unique(TEXTS)]
    assert [len(home) for home in homes] == [1] * 6
    assert np.bincount(np.concatenate(homes), minlength=count).tolist() == [6 // count] * count


def test_each_half_has_its_share_of_every_label():
    texts = np.arange(400)
    labels = np.repeat([0, 1, 2], [300, 80, 20])
    first = halves(texts, seed=3, labels=labels)
    assert np.bincount(labels[first]).tolist() == [150, 40, 10]
    assert not np.array_equal(first, halves(texts, seed=4, labels=labels))


def test_rows_follow_one_another_when_their_texts_change_places():
    order = shuffled(TEXTS, seed=0)
    assert sorted(order) == list(range(len(TEXTS)))
    starts = np.flatnonzero(np.diff(TEXTS[order], prepend=-1))
    assert len(starts) == 6
    assert all(np.all(np.diff(part) == 1) for part in np.split(order, starts[1:]))
    assert not np.array_equal(TEXTS[order], TEXTS)


def test_a_resample_draws_as_many_whole_texts_as_there_are():
    rows = resampled(TEXTS, seed=5)
    times = {text: np.sum(TEXTS[rows] == text) / np.sum(text == TEXTS) for text in np.unique(TEXTS)}
    assert sum(times.values()) == 6
    assert all(time == int(time) for time in times.values())
    assert max(times.values()) > 1


def test_without_rows_nothing_is_drawn():
    assert shuffled([], seed=0).tolist() == resampled([], seed=0).tolist() == []


def test_a_text_gives_way_to_a_text_row_by_row():
    """Of one length, apart or in any order: every place of a text is taken by one other text."""
    texts = np.random.default_rng(0).permutation(np.repeat(np.arange(100, 130), 4))
    taken = exchanged(texts, seed=1)
    assert sorted(taken) == list(range(120))
    for text in np.unique(texts):
        there = taken[texts == text]
        assert len(set(texts[there])) == 1
        assert np.all(np.diff(there) > 0)  # row k for row k
    assert not np.array_equal(texts[taken], texts)
    assert np.array_equal(taken, exchanged(texts, seed=1))
    assert sorted(exchanged(np.arange(9), seed=0)) == list(range(9))
    assert exchanged([], seed=0).tolist() == []


def test_texts_change_places_among_those_of_like_length():
    sizes = np.random.default_rng(1).integers(3, 40, 90)
    texts = np.repeat(np.arange(90), sizes)
    taken = exchanged(texts, seed=2)
    homes = [np.unique(texts[taken[texts == text]]) for text in range(90)]
    assert [len(home) for home in homes] == [1] * 90
    moved = np.concatenate(homes)
    assert sorted(moved) == list(range(90))
    assert np.mean(moved != np.arange(90)) > 0.8
    assert np.mean(np.abs(sizes[moved] / sizes - 1)) < 0.15
    kept = [np.isin(np.flatnonzero(texts == text), taken).mean() for text in range(90)]
    assert np.mean(kept) > 0.85  # few rows are left out


@pytest.mark.parametrize("share", [0.1, 0.5, 0.9])
def test_an_end_holds_its_share_and_leaves_something_before_it(share):
    sizes = np.random.default_rng(0).integers(1, 50, 40)
    before = ending(sizes, share)
    assert sizes[before:].sum() >= share * sizes.sum()
    assert sizes[before + 1 :].sum() < share * sizes.sum() or before == 1
    assert ending([5, 1], 0.5) == 1
    assert ending([1, 500], 0.01) == 1


def test_the_jackknife_of_a_mean_is_students_interval():
    values = np.random.default_rng(0).normal(size=(12, 3))
    left_out = (values.sum(axis=0) - values) / 11
    expected = stats.t.interval(0.9, 11, values.mean(axis=0), stats.sem(values, axis=0))
    half = jackknifed(left_out, 0.9)
    np.testing.assert_allclose(half, (expected[1] - expected[0]) / 2)
