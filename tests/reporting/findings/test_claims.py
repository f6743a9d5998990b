"""Findings of a reproduction."""

import pandas

import layerscope as ls
from layerscope.reporting.findings.claims import claims

RECORD = ls.Record(kind="reproduce", title="x", figures=[])


def test_claims_are_counted_and_undecided_ones_are_not_sure():
    frame = pandas.DataFrame(
        {
            "claim": ["A", "A", "B", "B", "C"],
            "verdict": ["holds", "holds", "holds", "undecided", "not testable"],
        }
    )
    first, a, b = claims(frame, RECORD)
    assert first.text == "1 of 2 claims hold wherever they were tested: A."
    assert first.sure is False
    assert a.text == "A: holds in 2 of 2."
    assert a.sure is True
    assert b.text == "B: holds in 1 and undecided in 1 of 2."
    assert b.sure is False


def test_nothing_tested_is_said():
    frame = pandas.DataFrame({"claim": ["A"], "verdict": ["not testable"]})
    assert claims(frame, RECORD)[0].text == "No claim could be tested."
