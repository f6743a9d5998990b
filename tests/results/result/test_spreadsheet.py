"""Tables as CSV: what a spreadsheet would compute is text, and numbers are numbers."""

import io

import pandas

from layerscope.results import csv_text


def test_texts_that_begin_like_a_formula_are_texts():
    texts = ["=HYPERLINK(1)", "+1", "-cmd|' /C calc'!A0", "@SUM(A1)", "\tx", "\rx", "plain", "a=b", None]
    frame = pandas.DataFrame({"=name": texts, "score": [-1.5] * 9, "n": range(-4, 5), "ok": [True] * 9})
    again = pandas.read_csv(io.StringIO(csv_text(frame), newline=""))
    assert list(again.columns) == ["'=name", "score", "n", "ok"]
    expected = [f"'{text}" for text in texts[:5]] + ["'\nx", *texts[6:8]]
    assert again["'=name"].tolist()[:-1] == expected
    assert again["score"].tolist() == [-1.5] * 9
    assert again["n"].tolist() == list(range(-4, 5))


def test_a_plain_table_is_written_as_pandas_writes_it():
    frame = pandas.DataFrame({"a": ["x", "y, z"], "b": [1, None], "c": pandas.Categorical(["u", "v"])})
    assert csv_text(frame) == frame.to_csv(index=False)
    mixed = pandas.DataFrame({"a": [1, "=x", -2.5]})
    assert csv_text(mixed) == "a\n1\n'=x\n-2.5\n"
    empty = pandas.DataFrame()
    assert csv_text(empty) == empty.to_csv(index=False)
