"""What measures against labels share: classes, halves of texts, the best layer."""

import numpy as np
import torch

import layerscope as ls


def test_the_choices_of_a_text_stay_in_one_half():
    from layerscope.extraction.rows import Rows
    from layerscope.probing.labelled import halves

    rows = Rows("t", "train", "", np.repeat(np.arange(10), 3), np.tile(np.arange(3), 10))
    reps = ls.Representations({0: torch.zeros(30, 2)}, rows, np.repeat(np.arange(10) % 2, 3))
    one, two = halves(reps)
    assert (len(one), len(two)) == (15, 15)
    assert not set(one.rows.row) & set(two.rows.row)
