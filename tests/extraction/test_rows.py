"""Rows know which text, choice and word they are."""

import pytest

from layerscope.errors import InputError


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
