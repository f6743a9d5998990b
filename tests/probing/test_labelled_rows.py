"""What measures against labels share: classes, halves of texts, the best layer."""

import math

import numpy as np
import pandas
import pytest
import torch

import layerscope as ls
from layerscope.errors import InputError
from layerscope.extraction.row_store import Rows
from layerscope.probing.labelled_rows import (
    balanced,
    classes_of,
    curve_of,
    drawn_by_class,
    extreme,
    labelled_rows,
    several_classes,
)
from layerscope.tuning.costs import best_layer
from tests.helpers.models import save_random


def of_texts(texts, labels):
    """Rows whose one number is the text that they are of."""
    texts = np.asarray(texts)
    return ls.Representations(
        {0: torch.from_numpy(texts[:, None].copy()).float()}, Rows("t", "train", "", texts), labels
    )


def test_intervals_are_over_whole_texts():
    def seen(part):
        drawn.append(part)
        return np.zeros(1)

    drawn = []
    texts, labels = np.repeat(np.arange(40), 3), np.repeat(np.arange(40) % 2, 3)
    labels[:9] = 2  # a class with three texts is in every half
    curve_of("seen", seen, of_texts(texts, labels), least=None, ci=0.9, subsamples=4)
    for part in drawn[1:]:
        times = np.bincount(part.rows.row, minlength=40)
        assert set(times) == {0, 3}
        assert 18 <= (times > 0).sum() <= 22
        assert (part.labels == 2).sum() == 9


def test_classes_are_drawn_in_whole_texts():
    texts, labels = np.repeat(np.arange(30), 4), np.repeat(np.arange(30) % 3, 4)
    rows = drawn_by_class(texts, labels, [8, 20, 6], seed=0)
    assert np.bincount(labels[rows]).tolist() == [8, 20, 6]
    times = np.bincount(texts[rows], minlength=30)
    assert sorted(set(times)) == [0, 2, 4]
    assert (times == 2).sum() == 1  # 6 rows are a text and a half
    assert not np.array_equal(rows, drawn_by_class(texts, labels, [8, 20, 6], seed=1))


def test_classes_are_balanced_as_the_smallest():
    reps = of_texts(np.arange(60), np.repeat([5, 0, 3], [40, 8, 12]))
    assert np.bincount(balanced(reps, 0).labels).tolist() == [8, 0, 0, 8, 0, 8]
    even = of_texts(np.arange(6), np.repeat([0, 1], 3))
    assert balanced(even, 0) is even
    numbers = of_texts(np.arange(3), np.asarray([0.5, 1.0, 0.5]))
    assert balanced(numbers, 0) is numbers


def test_labels_that_are_no_classes_are_sentences():
    with pytest.raises(InputError, match=r"nu needs labels, and there are none; .*--label"):
        classes_of(None, "nu")
    with pytest.raises(InputError, match="nu needs labels that start at 0; the least is -1"):
        classes_of([-1, 0], "nu")
    with pytest.raises(InputError, match=r"these labels are numbers; ls\.label_cca"):
        classes_of([0.5, 1.0], "nu")
    with pytest.raises(InputError, match="the rows are of 1 class only"):
        several_classes([3, 3], "nu")
    assert several_classes([7, 3, 7], "nu").tolist() == [1, 0, 1]


def test_choices_need_labels_of_their_own():
    """All choices of a text have the number of the right one, which no choice tells by itself."""
    texts, choices = np.repeat(np.arange(60), 3), np.tile(np.arange(3), 60)
    rows, right = Rows("t", "train", "f", texts, choices), texts % 3
    states = np.random.default_rng(0).normal(size=(180, 4))
    reps = ls.Representations.from_arrays([states, states + 3 * (choices == right)[:, None]], right, rows=rows)
    for measure in (ls.specialty, ls.numerical_rank, ls.mutual_information, ls.label_cca, lambda r: ls.probe(r, r)):
        with pytest.raises(InputError, match=r"these rows are choices, .* Label them as right or wrong"):
            measure(reps)
    labelled = reps.with_labels(reps.rows.choice == reps.labels, ["wrong", "right"])
    assert ls.specialty(labelled).p_best < 0.05
    assert ls.probe(labelled, labelled).best == 1
    each = labelled.select(rows=np.flatnonzero(choices == 0))  # of every text its first choice
    assert ls.specialty(each).best == 1


def test_choices_of_a_task_are_right_or_wrong(tmp_path):
    model = save_random(tmp_path, "bert")
    endings = [["a b", "c", "d e"] if k % 3 else ["f", "g h", "a"] for k in range(30)]
    frame = pandas.DataFrame({"text": ["a", "b"] * 15, "endings": endings, "label": np.arange(30) % 3})
    task = ls.task(frame, text="text", choices="endings")
    reps = labelled_rows(model, task.split(), pool="mean", max_length=16)
    assert reps.label_names == ("wrong", "right")
    assert reps.labels.tolist() == (np.tile(np.arange(3), 30) == np.repeat(np.arange(30) % 3, 3)).astype(int).tolist()
    curve = ls.specialty(model, task, max_length=16)
    np.testing.assert_allclose(curve.values, ls.specialty(reps).values)
    assert best_layer(ls.load(model), task.split(), max_length=16) == curve.best
    assert ls.recommend(model, task, max_length=16).best is not None


def test_the_best_layer_is_above_layer_0_and_the_lowest_of_equals():
    nan = math.nan
    assert extreme([0, 1, 2, 3], np.asarray([0.0, 2.0, 1.0, 1.0]), least=True) == 2
    assert extreme([0, 1, 2, 3], np.asarray([9.0, nan, 1.0, 1.0]), least=False) == 2
    assert extreme([0, 1], np.asarray([1.0, nan]), least=True) is None


def test_intervals_are_over_halves_of_the_rows(planted):
    def first(part):
        sizes.append(len(part))
        return np.asarray([float(part[layer].mean()) for layer in part.layers])

    sizes = []
    curve = curve_of("mean", first, planted, least=True, ci=0.9, subsamples=5)
    assert sizes[0] == 300
    assert len(sizes) == 6
    assert all(abs(size - 150) <= 3 for size in sizes[1:])
    assert (curve.low < curve.values).all()
    assert curve.wins.sum() == pytest.approx(1.0)
    assert curve_of("mean", first, planted, least=None).best is None
    middle = float(curve.values[0])
    clipped = curve_of("mean", first, planted, least=True, ci=0.9, subsamples=5, within=(middle, np.inf))
    assert clipped.low[0] == middle < clipped.high[0] == curve.high[0]
    with pytest.raises(InputError, match="subsamples is 1; an interval needs at least 2"):
        curve_of("mean", first, planted, least=True, ci=0.9, subsamples=1)
