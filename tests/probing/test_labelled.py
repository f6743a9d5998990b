"""What measures against labels share: classes, halves of texts, the best layer."""

import math

import numpy as np
import pytest
import torch

import layerscope as ls
from layerscope.errors import InputError
from layerscope.probing.labelled import classes_of, curve_of, extreme, several_classes


def test_the_choices_of_a_text_stay_in_one_half():
    from layerscope.extraction.rows import Rows
    from layerscope.probing.labelled import halves

    rows = Rows("t", "train", "", np.repeat(np.arange(10), 3), np.tile(np.arange(3), 10))
    reps = ls.Representations({0: torch.zeros(30, 2)}, rows, np.repeat(np.arange(10) % 2, 3))
    one, two = halves(reps)
    assert (len(one), len(two)) == (15, 15)
    assert not set(one.rows.row) & set(two.rows.row)


def test_labels_that_are_no_classes_are_sentences():
    with pytest.raises(InputError, match=r"nu needs labels, and there are none; .*--label"):
        classes_of(None, "nu")
    with pytest.raises(InputError, match="nu needs labels from 0 on; the least is -1"):
        classes_of([-1, 0], "nu")
    with pytest.raises(InputError, match=r"these labels are numbers; ls\.label_cca"):
        classes_of([0.5, 1.0], "nu")
    with pytest.raises(InputError, match="the rows are of 1 class only"):
        several_classes([3, 3], "nu")
    assert several_classes([7, 3, 7], "nu").tolist() == [1, 0, 1]


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
    with pytest.raises(InputError, match="subsamples is 1; an interval needs at least 2"):
        curve_of("mean", first, planted, least=True, ci=0.9, subsamples=1)
