"""Splits, shuffles and resamples deal out whole texts."""

import numpy as np
import pytest
from scipy import stats

from layerscope.resampling import (
    counterparts,
    ending,
    exchanged,
    folds,
    halves,
    jackknifed,
    resampled,
    shuffled,
    told_apart,
)

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


def test_texts_of_like_length_share_their_first_rows():
    sizes = np.random.default_rng(1).integers(3, 40, 90)
    texts = np.random.default_rng(2).permutation(np.repeat(np.arange(90), sizes))
    kept, classes = counterparts(texts)
    assert np.all(np.diff(kept) > 0)
    assert len(kept) > 0.85 * len(texts)
    left, before = np.bincount(texts[kept], minlength=90), np.bincount(texts)
    for text in range(90):
        assert np.array_equal(np.flatnonzero(texts == text)[: left[text]], kept[texts[kept] == text])  # the first rows
    for each in range(classes.max() + 1):
        alike = np.unique(texts[kept[classes == each]])
        assert len(alike) >= 5
        assert len(set(left[alike])) == 1
        # The last row of a text, which is at a place of its own, is in no class where others have more rows.
        assert left[alike[0]] == before[alike].min() - (np.ptp(before[alike]) > 0)
    assert [part.tolist() for part in counterparts(np.arange(7))] == [list(range(7)), [0] * 7]
    assert [part.tolist() for part in counterparts([])] == [[], []]


def test_texts_change_places_within_their_class():
    texts, classes = np.arange(60), np.repeat([0, 1], 30)
    taken = exchanged(texts, seed=1, classes=classes)
    assert np.array_equal(classes[taken], classes)
    assert not np.array_equal(taken, texts)
    assert not np.array_equal(classes[exchanged(texts, seed=1)], classes)


def test_row_k_meets_row_k_of_texts_with_as_many_rows():
    texts = np.repeat(np.arange(30), np.tile([2, 5, 7], 10))
    place = np.concatenate([np.arange(size) for size in np.tile([2, 5, 7], 10)])
    order = exchanged(texts, seed=2)
    assert sorted(order) == list(range(len(texts)))
    assert np.array_equal(place[order], place)
    homes = [np.unique(texts[order[texts == text]]) for text in range(30)]
    assert [len(home) for home in homes] == [1] * 30
    assert np.array_equal(np.concatenate(homes) % 3, np.arange(30) % 3)


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


def test_values_are_told_apart_at_the_level_that_is_asked_for():
    generator, wrong = np.random.default_rng(0), {"left_out": 0, "draws": 0}
    for _ in range(400):  # three means of the same texts, of which the truth is the same
        rows = generator.normal(size=(100, 1)) + generator.normal(size=(100, 3))
        values, group = rows.mean(axis=0), np.arange(100) % 20
        left_out = np.asarray([rows[group != g].mean(axis=0) for g in range(20)])
        draws = np.asarray([rows[generator.permutation(100)[:50]].mean(axis=0) for _ in range(40)])
        best = int(values.argmax())
        for name, measured in (("left_out", left_out), ("draws", draws)):
            apart = told_apart(values, best, **{name: measured})
            assert not apart[best]
            wrong[name] += int(apart.sum() == 2)
    assert max(wrong.values()) <= 0.05 * 400
    far = np.asarray([0.0, 5.0])
    assert told_apart(far, 0, draws=far + generator.normal(size=(40, 2))).tolist() == [False, True]
