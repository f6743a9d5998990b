"""Tables in memory."""

import pandas
import pytest

import layerscope as ls
from layerscope.errors import DataError, InputError


def test_tables_that_cannot_be_read():
    twice = pandas.DataFrame([["a b", "c d"]], columns=["text", "text"])
    with pytest.raises(DataError, match="names a column twice"):
        ls.task(twice).split()
    with pytest.raises(InputError, match="The table of split 'train' is a list"):
        ls.task({"train": ["a b"]}).split()
    with pytest.raises(DataError, match="holds the label is not clear: 'labels', 'target'"):
        ls.task(pandas.DataFrame({"text": ["a b"], "labels": [1], "target": [2]})).split()
    with pytest.raises(DataError, match=r"row 1, column 'text': 5 is not a text"):
        ls.task(pandas.DataFrame({"text": [5], "label": [1]})).split()


def test_half_a_character_in_memory_is_a_bad_row():
    frame = pandas.DataFrame({"text": ["fine", "broken \ud800"], "label": [0, 1]}, dtype=object)
    with pytest.raises(DataError, match=r"row 2, column 'text': it holds half a character"):
        ls.task(frame).split()


def test_a_column_that_is_named_twice_in_memory_is_a_sentence():
    import pyarrow

    table = pyarrow.Table.from_arrays([pyarrow.array(["a"]), pyarrow.array(["b"])], names=["text", "text"])
    with pytest.raises(DataError, match="names a column twice"):
        ls.task(table).split()
