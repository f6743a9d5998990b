"""Findings of healing."""

import math

import pandas
import pytest

import layerscope as ls
from layerscope.reporting.findings.healing import healed_advice, healing, in_nats, recovered

RECORD = ls.Record(kind="heal", title="x", figures=[])


def test_the_share_that_is_brought_back():
    assert recovered(0.8, 0.4, 0.6) == pytest.approx(0.5)
    assert math.isnan(recovered(0.8, 0.8, 0.9))
    nats = [in_nats("perplexity", value) for value in (math.e, math.e**3, math.e**2)]
    assert recovered(*nats) == pytest.approx(0.5)
    assert in_nats("accuracy", 0.5) == 0.5


def row(**scores):
    return pandas.DataFrame([{"metric": "perplexity", "tokens": 1000, **scores}])


def test_before_and_after_are_never_sure_without_an_interval():
    told = healing(row(uncut=math.e, cut=math.e**3, healed=math.e**2), RECORD)[0]
    assert told.text.startswith("Healing takes perplexity from 20.1 to 7.389")
    assert "brings back 50%" in told.text
    assert told.sure is None


def test_what_the_rows_do_not_tell_is_said():
    known = {"over_cut_low": 2.0, "over_cut_high": 9.0, "over_uncut_low": -1.0, "over_uncut_high": 2.0}
    told = healing(row(uncut=10.0, cut=20.0, healed=9.0, **known), RECORD)[0]
    assert told.sure is True
    assert "95% interval 2.000 to 9.000 of what it gains over the cut model" in told.evidence
    assert "The healed and the uncut model are not told apart" in told.text
    few = {**known, "over_cut_low": -math.inf, "over_cut_high": math.inf}
    assert healing(row(uncut=10.0, cut=20.0, healed=9.0, **few), RECORD)[0].sure is False


def test_a_healing_that_did_not_help_says_so():
    assert "did not get better" in healing(row(uncut=10.0, cut=20.0, healed=25.0), RECORD)[0].text


def test_healed_advice_is_told_without_a_bound():
    frame = pandas.DataFrame(
        {
            "blocks": ["1-4", "1-3", "1-2"],
            "removed": [0, 1, 2],
            "before": [0.8, 0.6, 0.4],
            "after": [0.8, 0.79, 0.5],
            "low": [0.7, 0.7, 0.4],
            "high": [0.9, 0.85, 0.6],
            "metric": "accuracy",
            "chosen": [False, True, False],
        }
    )
    told = healed_advice(frame, RECORD)
    assert told[0].text.startswith("Healed, blocks 1-3 are enough")
    assert told[0].sure is False
    assert told[1].text == "Healing improves 2 of 2 plans of the front."
    none = healed_advice(frame.assign(chosen=False), RECORD)[0]
    assert "still loses more accuracy than the tolerance allows" in none.text
