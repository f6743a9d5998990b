"""An epoch sees every window once; a step needs its number only."""

from itertools import pairwise

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from nursery.batches import epoch_starts, held_out_starts, mixed, sequences, step_starts, stream_on
from nursery.vocabulary import CLS_ID, SEP_ID


@given(st.integers(0, 5), st.integers(0, 3), st.integers(40, 400), st.integers(3, 20))
def test_an_epoch_covers_the_stream_once_and_never_leaves_it(seed, epoch, size, width):
    starts = epoch_starts(seed, epoch, size, width).tolist()
    seen = [start + k for start in starts for k in range(width)]
    assert len(seen) == len(set(seen))
    assert min(seen) >= 0
    assert max(seen) < size
    assert len(seen) > size - 2 * width


def test_seeds_and_epochs_differ_in_order_and_repeat_exactly():
    first, again, other, later = (epoch_starts(s, e, 5000, 10).tolist() for s, e in ((1, 0), (1, 0), (2, 0), (1, 1)))
    assert first == again
    assert first != other
    assert first != later


def test_steps_of_an_epoch_do_not_overlap():
    size, width, batch = 1000, 10, 8
    steps = (size - width) // width // batch
    seen = [start for step in range(steps) for start in step_starts(0, step, batch, size, width).tolist()]
    assert len(seen) == len(set(seen)) == steps * batch


def test_sequences_are_windows_between_their_special_tokens():
    stream = stream_on(torch.device("cpu"), np.arange(100, 200, dtype=np.uint16))
    first = sequences(stream, torch.tensor([0, 50]), 6, summary_last=False)
    last = sequences(stream, torch.tensor([0, 50]), 6, summary_last=True)
    assert first.tolist()[1] == [CLS_ID, 150, 151, 152, 153, SEP_ID]
    assert last.tolist()[1] == [150, 151, 152, 153, SEP_ID, CLS_ID]


def test_held_out_windows_do_not_overlap_and_too_little_text_is_said():
    starts = held_out_starts(1000, 10, 20).tolist()
    assert len(starts) == 20
    assert min(b - a for a, b in pairwise(starts)) >= 10
    with pytest.raises(SystemExit, match="less than one sequence of 10"):
        held_out_starts(9, 10, 20)


def test_mixed_seeds_are_all_different():
    assert len({mixed(seed, step, use) for seed in range(5) for step in range(50) for use in (1, 2)}) == 500
