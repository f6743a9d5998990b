"""How much comes out of a Parquet file is known before it does."""

import numpy as np
import pandas
import pyarrow
import pyarrow.parquet
import pytest

from layerscope.errors import DataError
from layerscope.store.validated import read_parquet


def written(path, columns, **options):
    pyarrow.parquet.write_table(pyarrow.table(columns), path, **options)
    return path


def test_what_is_read_is_what_was_written(tmp_path):
    frame = pandas.DataFrame({"a": ["x", None, "x"], "b": [1, 2, 3], "c": pandas.Categorical(["u", "v", "u"])})
    frame["d"] = [["p"], [], ["q", "r"]]
    frame.to_parquet(tmp_path / "a.parquet")
    again = read_parquet(tmp_path / "a.parquet", most_values=12, most_field=1)
    assert again.equals(pyarrow.parquet.read_table(tmp_path / "a.parquet"))
    assert again.schema.equals(pyarrow.parquet.read_table(tmp_path / "a.parquet").schema, check_metadata=True)


def test_large_texts_are_told_apart_by_their_bound(tmp_path):
    texts = pyarrow.array(["é" * 50, "x"], pyarrow.large_string())
    path = written(tmp_path / "a.parquet", {"text": texts})
    assert read_parquet(path, most_field=100).to_pydict() == {"text": ["é" * 50, "x"]}
    with pytest.raises(DataError, match=r"column 'text': a field has 100 bytes; at most 99 are read; raise it\."):
        read_parquet(path, most_field=99, way_out="raise it")


@pytest.mark.parametrize("plain", [True, False])
def test_a_text_that_repeats_is_counted_as_often_as_it_does(plain, tmp_path):
    text, times = "x" * 10_000, 300
    column = [text] * times if plain else pyarrow.DictionaryArray.from_arrays(np.zeros(times, dtype=np.int8), [text])
    path = written(tmp_path / "a.parquet", {"text": column})
    assert path.stat().st_size < 20_000
    read_parquet(path, most_text=3_000_000)
    with pytest.raises(DataError, match=r"0\.0 GB of text; at most 0\.0 are read"):
        read_parquet(path, most_text=2_999_999)


def test_many_values_are_a_sentence(tmp_path):
    path = written(tmp_path / "a.parquet", {"a": np.zeros(1000), "b": np.zeros(1000)})
    with pytest.raises(DataError, match="holds 2,000 values; at most 1,999 are read"):
        read_parquet(path, most_values=1999)


def test_what_cannot_be_read_is_a_sentence(tmp_path):
    good = written(tmp_path / "a.parquet", {"a": ["x"] * 50}).read_bytes()
    for content in (b"", b"PAR1", good[:-4], good[:30] + b"\xff" * 30 + good[60:], good[:-20] + b"\xff" * 20):
        (tmp_path / "bad.parquet").write_bytes(content)
        with pytest.raises(DataError, match="is missing or damaged, or not a Parquet file"):
            read_parquet(tmp_path / "bad.parquet")
    for name in (".", "missing"):
        with pytest.raises(DataError, match="is missing or damaged"):
            read_parquet(tmp_path / name)
    twice = pyarrow.Table.from_arrays([pyarrow.array([1]), pyarrow.array([2])], names=["a", "a"])
    pyarrow.parquet.write_table(twice, tmp_path / "twice.parquet")
    with pytest.raises(DataError, match="names a column twice: a, a"):
        read_parquet(tmp_path / "twice.parquet")
