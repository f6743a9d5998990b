"""Which text a row is of, and folds of whole texts."""

import numpy as np
import pytest
import torch

import layerscope as ls
from layerscope.alignment.aligner import folds, texts_of
from layerscope.alignment.linear_maps import strength_of
from layerscope.alignment.neural_maps import held_out
from layerscope.errors import InputError
from layerscope.extraction.row_store import Rows

TEXTS = np.repeat([7, 3, 9, 4, 5, 1, 8, 2, 6, 0], 12)


def representations():
    rows = Rows("sst2", "train", "", TEXTS, unit=np.arange(120) % 12, units="word")
    return ls.Representations.from_arrays([np.random.default_rng(0).normal(size=(120, 3))], rows=rows)


def test_texts_are_told_by_whatever_knows_them():
    codes = np.unique(TEXTS, return_inverse=True)[1]
    reps = representations()
    for given in (TEXTS, TEXTS.tolist(), torch.from_numpy(TEXTS), reps.rows, reps, [f"text {k}" for k in TEXTS]):
        assert texts_of(given, 120).tolist() == codes.tolist()
    assert texts_of(None, 120, reps[0], reps).tolist() == codes.tolist()
    assert texts_of(None, 4).tolist() == [0, 1, 2, 3]
    with pytest.raises(InputError, match=r"texts has shape \(119,\); it must name the text of each of the 120 rows"):
        texts_of(TEXTS[1:], 120)


def test_folds_are_of_whole_texts_and_each_row_is_held_out_once():
    parts = folds(TEXTS, 5, 0)
    assert sorted(np.concatenate([held for held, _ in parts])) == list(range(120))
    for held, rest in parts:
        assert not set(TEXTS[held]) & set(TEXTS[rest])
    assert len(folds(np.zeros(30, int), 5, 0)) == 5  # one text: its rows
    assert len(folds(np.repeat([0, 1], 8), 5, 0)) == 2


def test_what_stops_a_network_are_whole_texts():
    held, rest = held_out(TEXTS, 0)
    assert len(held) == 24
    assert not set(TEXTS[held]) & set(TEXTS[rest])
    assert [len(part) for part in held_out(np.arange(9), 0)] == [0, 9]


def test_a_ridge_is_not_chosen_on_rows_of_the_texts_that_it_learned_from():
    """Rows of a text are copies of it: by rows nothing needs to be shrunk, by texts all that was learned is noise."""
    generator = np.random.default_rng(0)
    texts = np.repeat(np.arange(30), 10)
    x, y = (torch.from_numpy(generator.normal(size=(30, 25))[texts]) for _ in range(2))
    assert strength_of(x, y, 0, np.arange(300)) < 1e-3
    assert strength_of(x, y, 0, texts) >= 1
    assert ls.align(x, y, texts=texts).report_["strength"] == strength_of(x, y, 0, texts)


def test_the_ridge_of_cca_is_chosen_by_texts():
    generator = np.random.default_rng(0)
    texts = np.repeat(np.arange(20), 4)
    x, y = (generator.normal(size=(20, 60))[texts] + 0.1 * generator.normal(size=(80, 60)) for _ in range(2))
    chosen = [ls.align(x, y, method="cca", texts=given).report_["ridge"] for given in (None, texts)]
    assert chosen[0] < chosen[1]
