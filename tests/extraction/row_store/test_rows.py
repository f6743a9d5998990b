"""Rows know which text, choice and word they are."""

import numpy as np
import pytest

from layerscope.errors import InputError
from layerscope.extraction.row_store import Rows


def test_rows_that_differ_are_told_apart(reps):
    rows = reps.rows
    rows.require_same(rows)
    cases = {
        "different tasks": rows.__class__("other", *list(vars(rows).values())[1:]),
        "rows, the other": rows.take(slice(3)),
        "row 1 is row 1 in one and row 2": rows.take([0, 2, 1, 3, 4, 5, 6]),
        "have changed": rows.__class__(rows.task, rows.split, "changed", rows.row),
        "only one of them has a unit": rows.__class__(rows.task, rows.split, rows.fingerprint, rows.row, unit=rows.row),
    }
    for sentence, other in cases.items():
        with pytest.raises(InputError, match=sentence):
            rows.require_same(other)


def made(row, unit=None, units=None, choice=None):
    parts = {"choice": choice, "unit": unit}
    arrays = {name: None if part is None else np.asarray(part) for name, part in parts.items()}
    return Rows("t", "train", "abc", np.asarray(row), **arrays, units=units)


def test_rows_are_joined_and_brought_into_the_datas_order():
    parts = [made([3, 3], [1, 0], "word"), made([1], [5], "word")]
    rows = Rows.join(parts)
    assert len(rows) == 3
    assert rows.take(rows.order()).keys() == [(1, 5), (3, 0), (3, 1)]
    assert rows.take([2]).keys() == [(1, 5)]


def test_a_table_names_its_units():
    assert list(made([0, 1]).frame()) == ["task", "split", "row"]
    frame = made([0, 1], [2, 3], "token of abc").frame()
    assert list(frame) == ["task", "split", "row", "token"]
    assert frame["token"].tolist() == [2, 3]


def test_the_difference_is_said_in_a_few_words():
    one = made([0, 1], [2, 3], "word")
    assert one.difference(made([0, 1], [2, 3], "word")) is None
    assert one.difference(made([0, 1], [2, 4], "word")) == "row 1 is unit 3 in one and unit 4 in the other"
    assert one.difference(made([0, 1], [2, 3], "token of x")) == "they are of different units: word and token of x"
    assert made([0, 1]).difference(made([0, 1], choice=[0, 1])) == "only one of them has a choice for each row"
    with pytest.raises(InputError, match=r"row by row: one has 2 rows, the other 1.* Representations\.common"):
        one.require_same(one.take([0]))
