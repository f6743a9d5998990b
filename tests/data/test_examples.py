"""Examples know what they are, whole or in part."""

import numpy as np
import pandas
import pytest

import layerscope as ls
from layerscope.errors import DataError
from tests.helpers.data import write_table


def test_the_fingerprint_changes_with_any_text_or_label(tmp_path):
    def of(**columns):
        return ls.task(pandas.DataFrame({"text": ["a b", "c d"], "label": [0, 1], **columns})).split().fingerprint

    assert of() == of()
    assert len({of(), of(text=["a b", "c e"]), of(text=["ab", " c d"]), of(label=[1, 0])}) == 4


def test_taking_some_keeps_identity(tmp_path):
    examples = ls.task(write_table(tmp_path / "a.csv")).split()
    part = examples.take(np.array([1, 3]))
    assert part.rows.tolist() == [1, 3]
    assert part.labels.tolist() == [0, 1]
    assert part.fingerprint == examples.fingerprint


def test_a_part_of_a_part_is_of_the_whole():
    examples = ls.task(pandas.DataFrame({"text": list("abcd"), "label": [0, 1, 0, 1]})).split()
    part = examples.take(slice(1, None)).take([2, 0])
    assert list(part.texts) == ["d", "b"]
    assert part.rows.tolist() == [3, 1]
    assert part.fingerprint == examples.fingerprint
    assert part.spec() != examples.spec()  # which rows of it
    assert part.described() == {**examples.described(), "n": 2}


def test_bad_rows_are_counted_in_what_is_said_of_them():
    frame = pandas.DataFrame({"text": ["a", None, "c"], "label": [0, 1, 0]})
    examples = ls.task(frame, skip_bad=True).split()
    assert (examples.described()["n"], examples.described()["skipped"]) == (2, 1)


@pytest.mark.parametrize(
    ("name", "place"),
    [("a.csv", "line 6"), ("a.jsonl", "line 4"), ("a.parquet", "row 4"), (None, "row 4")],
)
def test_every_message_says_where_a_row_stands_in_the_same_way(name, place, tmp_path):
    """A text breaks over two lines of a CSV file, whose first line is a header; Parquet and pandas have rows."""
    rows = [("good film", "pos"), ("fine\nbut long", "pos"), ("bad film", "neg"), ("\u200b", "neg")]
    path = tmp_path / "frame" if name is None else write_table(tmp_path / name, rows)
    source = pandas.DataFrame(rows, columns=["text", "label"]) if name is None else path
    task = ls.task(source)
    assert task.split().take(slice(2, None)).place(1) == f"{place} of {task.name} (all)"
    with pytest.raises(DataError, match=rf"only special tokens .* in {place} of {task.name} \(all\)"):
        ls.extract("garden:bert-s0", task, pool="mean", store=False)
    with pytest.raises(DataError, match=rf"have no word by .*, such as {place} of {task.name} \(all\)"):
        ls.task(source, words_by=r"[a-z]+").split().in_words()
    bad = [*rows[:3], (None, "neg")]
    source = pandas.DataFrame(bad, columns=["text", "label"]) if name is None else write_table(path, bad)
    with pytest.raises(DataError, match=rf"{place}, column 'text'"):
        ls.task(source).split()
