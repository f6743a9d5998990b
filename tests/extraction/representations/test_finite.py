"""A NaN or an infinity is found, and the sentence says where."""

import numpy as np
import pytest
import torch

import layerscope as ls
from layerscope.errors import InputError
from layerscope.extraction.representations import check_finite, first_not_finite
from layerscope.extraction.row_store import Rows


def layers(bad=None):
    """Three layers of 9,000 rows; `bad` is (layer, row, value)."""
    states = [np.random.default_rng(k).normal(size=(9000, 2)) for k in range(3)]
    if bad is not None:
        layer, row, value = bad
        states[layer][row, 1] = value
    return states


@pytest.mark.parametrize(("value", "word"), [(np.nan, "a NaN"), (np.inf, "an infinity"), (-np.inf, "an infinity")])
def test_layer_and_row_are_named(value, word):
    check_finite(ls.Representations.from_arrays(layers()))
    with pytest.raises(InputError, match=f"Layer 1 has {word} in row 8500; every"):
        check_finite(ls.Representations.from_arrays(layers((1, 8500, value))))


def test_names_and_texts_are_told_where_there_are_any(tmp_path):
    rows = Rows("sst2", "train", "", np.arange(9000) // 10 + 5, unit=np.arange(9000) % 10, units="word")
    reps = ls.Representations.from_arrays(layers((2, 12, np.nan)), names=["a", "b", "c"], rows=rows)
    sentence = r"Layer 2 \(c\) has a NaN in row 12 \(text 7, word 2 of sst2 \(train\)\);"
    with pytest.raises(InputError, match=sentence):
        check_finite(reps)
    with pytest.raises(InputError, match=sentence):
        check_finite(ls.Representations.load(reps.save(tmp_path / "reps")))


def test_arrays_are_called_as_the_caller_calls_them():
    rows = layers((0, 7, np.inf))[0]
    for array in (rows, torch.from_numpy(rows)):
        with pytest.raises(InputError, match="X has an infinity in row 7;"):
            check_finite(array, "X")
    check_finite(np.arange(6).reshape(3, 2))


def test_a_sum_that_overflows_is_no_infinity():
    assert first_not_finite(torch.full((50, 2), 3e38)) is None
    assert first_not_finite(torch.tensor([[3e38, 3e38], [1.0, torch.inf], [torch.nan, 0.0]])) == 1
