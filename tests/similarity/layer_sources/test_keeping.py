"""Rows kept in memory: exact copies, in the data's order, in 16 bits only where that loses nothing."""

import numpy as np
import pytest
import torch

from layerscope.extraction.pooling import Reading
from layerscope.extraction.row_store import Rows
from layerscope.extraction.stream import Batch
from layerscope.similarity import layer_sources
from layerscope.similarity.layer_sources import RowKeeper, row_dtype
from tests.helpers.models import NoWaiting, random_model

CPU = torch.device("cpu")
NONE = Rows("t", "all", "f", np.arange(0))


def batch(texts, *states):
    return Batch(list(states), Rows("t", "all", "f", np.asarray(texts)), None)


@pytest.mark.parametrize(
    ("pool", "subword", "dtype"),
    [
        ("cls", "last", torch.bfloat16),
        ("last", "last", torch.bfloat16),
        ("tokens", "last", torch.bfloat16),
        ("words", "last", torch.bfloat16),
        ("words", "mean", torch.float32),  # means are computed in float32
        ("mean", "last", torch.float32),
    ],
)
def test_the_float_type_that_loses_nothing(pool, subword, dtype):
    one = random_model("bert")
    assert row_dtype(one, Reading(pool, subword)) == torch.float32
    one.network.bfloat16()
    assert row_dtype(one, Reading(pool, subword)) == dtype


@pytest.mark.parametrize("staged", [1, 1 << 28])
def test_rows_come_back_in_the_order_of_the_data(staged, monkeypatch):
    monkeypatch.setattr(layer_sources, "_STAGED", staged)
    keeper = RowKeeper([torch.float32, torch.bfloat16], CPU)
    rows = torch.randn(5, 3)
    narrow = torch.randn(5, 2).bfloat16().float()
    for texts in ([4, 0], [2], [1, 3]):
        keeper.update(batch(texts, {0: rows[texts], 1: 2 * rows[texts]}, {0: narrow[texts]}))
    first, second = keeper.finish([0, 1], 3, NONE, 0), keeper.finish([0], 2, NONE, 1)
    assert first.rows.row.tolist() == [0, 1, 2, 3, 4]
    assert torch.equal(first[0], rows)
    assert torch.equal(first[1], 2 * rows)
    assert second[0].dtype == torch.bfloat16
    assert torch.equal(second[0].float(), narrow)


def test_a_layer_that_is_wider_than_its_model_stays_wide():
    keeper = RowKeeper([torch.bfloat16], CPU)
    wide, narrow = torch.randn(4, 3), torch.randn(4, 3).bfloat16().float()
    keeper.update(batch([0, 1, 2, 3], {0: narrow, 1: wide}))
    kept = keeper.finish([0, 1], 3, NONE)
    assert (kept[0].dtype, kept[1].dtype) == (torch.bfloat16, torch.float32)
    assert torch.equal(kept[1], wide)


def test_a_process_may_have_no_rows():
    kept = RowKeeper([torch.float32], CPU).finish([0, 1], 3, NONE)
    assert (len(kept), tuple(kept[1].shape)) == (0, (0, 3))


@pytest.mark.parametrize("staged", [1, 1 << 28])
def test_no_value_is_read_while_batches_come_but_what_was_asked_of_the_first(staged, monkeypatch):
    """And that only when the second is there, so that the device has work meanwhile."""
    monkeypatch.setattr(layer_sources, "_STAGED", staged)
    read = []
    numpy = layer_sources.PendingCopy.numpy
    monkeypatch.setattr(
        layer_sources.PendingCopy, "numpy", lambda self: read.append(len(keeper._batches)) or numpy(self)
    )
    keeper = RowKeeper([torch.bfloat16], CPU)
    rows = torch.randn(6, 3).bfloat16().float()
    with NoWaiting():
        for texts in ([0, 1], [2, 3], [4, 5]):
            keeper.update(batch(texts, {0: rows[texts], 1: rows[texts] / 3}))
    assert read == [1 if staged == 1 else 2]  # a batch that is moved at once has to be known at once
    kept = keeper.finish([0, 1], 3, NONE)
    assert (kept[0].dtype, kept[1].dtype) == (torch.bfloat16, torch.float32)
    assert torch.equal(kept[0].float(), rows)
    assert torch.equal(kept[1], rows / 3)
