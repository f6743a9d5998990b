"""Rows that are kept come back in the data's order, with their labels."""

import numpy as np
import torch

from layerscope.extraction.extract import RowCollector
from layerscope.extraction.row_store import Rows
from layerscope.extraction.stream import Batch


def batch(rows, labels=True):
    states = {0: torch.tensor([[float(r), 0.0] for r in rows]), 3: torch.tensor([[10.0 * r] for r in rows])}
    return Batch([states], Rows("t", "s", "f", np.asarray(rows)), np.asarray(rows) % 3 if labels else None)


def test_rows_and_labels_in_the_datas_order():
    keeper = RowCollector()
    given = [batch([4, 1]), batch([0]), batch([3, 2])]
    for part in given:
        keeper.update(part)
    assert len(keeper) == 5
    states, rows, labels = keeper.finish()
    assert rows.row.tolist() == states[0][:, 0].tolist() == [0, 1, 2, 3, 4]
    assert states[3][:, 0].tolist() == [0, 10, 20, 30, 40]
    assert labels.tolist() == [0, 1, 2, 0, 1]
    assert set(given[0].states[0]) == {0, 3}  # another consumer of the same batch loses nothing


def test_without_labels():
    keeper = RowCollector()
    keeper.update(batch([1, 0], labels=False))
    assert keeper.finish()[2] is None
