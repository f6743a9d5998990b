"""Findings of a cut: what it costs as it is."""

import math

import pandas

import layerscope as ls
from layerscope.cutting.cut_study import CutStudy

PLAN = {"plan": ls.LayerPlan([1, 2, 3, 4]), "depth": 6}


def told(low, high):
    frame = pandas.DataFrame({"blocks": ["1-6", "keep 1-4"], "metric": "accuracy", "score": [0.8, 0.5]})
    frame = frame.assign(parameters=[100, 70], low=low, high=high)
    return CutStudy(frame, {"data": {"n": 300}}, **PLAN).findings()[0]


def test_a_cut_is_sure_to_lose_where_its_interval_says_so():
    assert told(math.nan, math.nan).sure is None
    assert told([0.75, 0.45], [0.85, 0.55]).sure is True
    assert told([0.75, 0.2], [0.85, 0.9]).sure is False
    assert "meets that of the uncut model, n = 300" in told([0.75, 0.2], [0.85, 0.9]).evidence
    assert told([0.5, 0.3], [0.9, 0.7]).sure is False  # above it is the uncut model's score alone


def test_a_cut_model_is_healed_next():
    study = CutStudy(pandas.DataFrame({"blocks": ["1-6", "keep 1-4"]}), {}, **PLAN)
    assert study.findings() == []  # nothing was scored
    assert (study.next_step().command, study.next_step().arguments[:2]) == ("heal", ("--without", "5-6"))
