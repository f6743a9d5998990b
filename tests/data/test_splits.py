"""The rows to learn from and the rows to score."""

import pandas
import pytest

import layerscope as ls
from layerscope.data.splits import train_validation_split
from layerscope.errors import InputError


def test_of_a_single_split_a_fifth_is_scored(caplog):
    frame = pandas.DataFrame({"text": list("abcdefghij"), "label": [0, 1] * 5})
    learned, scored = train_validation_split(ls.task(frame), (4, None))
    assert (len(learned), len(scored)) == (4, 2)
    assert not set(learned.rows) & set(scored.rows)
    with pytest.raises(InputError, match="limit is 0"):
        train_validation_split(ls.task(frame), (0, None))
