"""What advice says, for every way that a choice can end; the models are made up."""

from types import SimpleNamespace

import numpy as np
import pandas
import pytest

import layerscope as ls
from layerscope.cutting.advice import Advice, all_rows_for
from layerscope.cutting.selection_test import Check, Decision, Parts

PARTS = Parts(np.arange(25), np.arange(25, 100), np.arange(100, 200))


def advice(decision, chosen=0, confidence=0.9, scores=(0.9, 0.9, 0.88), savable=True):
    """Three candidates of a model with 12 blocks: whole, without the last one, without the last two."""
    table = pandas.DataFrame(
        {
            "blocks": ["1-12", "1-11", "1-10"],
            "removed": [0, 1, 2],
            "chosen_on": 0.9,
            "change": [np.nan, -0.002, -0.015],
            "change_low": [np.nan, -0.009, -0.03],
            "score": scores,
            "low": 0.8,
            "high": 0.95,
            "parameters": [100, 95, 90],
            "macs": [120, 110, 100],
            "latency_1_ms": [12.0, 11.0, 10.0],
            "latency_32_ms": [120.0, 110.0, 100.0],
            "savable": savable,
            "metric": "accuracy",
            "front": True,
            "chosen": np.arange(3) == chosen,
        }
    )
    evaluator = SimpleNamespace(
        model=SimpleNamespace(depth=12), examples=range(200), majority=0.5, resampled=lambda rows: ""
    )
    plan = ls.LayerPlan(range(1, 13 - chosen))
    return Advice(table, plan, 0.01, confidence, evaluator, {}, np.zeros((200, 2)), PARTS, decision)


PASSED, FAILED = Check(1, -0.002, -0.009, True), Check(2, -0.015, -0.03, False)


def test_what_was_confirmed_is_kept_and_the_next_is_told():
    said = str(advice(Decision(1, (PASSED, FAILED), None), 1))
    assert said.startswith("Keep blocks 1-11: accuracy 0.9000 (0.8000 to 0.9500)")
    assert "92% of the time at batch 32 (110.0 ms in place of 120.0 ms)." in said
    assert "With 90% confidence it loses at most 0.0090 accuracy." in said
    assert "blocks 1-10, lowers accuracy by 0.0150 on the 75 rows that confirm, and perhaps lowers it by 0.0300" in said
    assert said.endswith("more than the tolerance of 0.01.")


def test_too_few_rows_are_counted():
    given = advice(Decision(None, (Check(1, -0.002, -0.02, False),), 900))
    assert given.rows_needed == 2400  # 75 of 200 confirm
    assert str(given).startswith("No block is shown to be dispensable with 90% confidence.")
    assert "That would take about 2,400 rows, where there are 200; confidence 0 chooses without a bound." in str(given)


def test_all_confirmed_leaves_nothing_to_say():
    given = advice(Decision(2, (PASSED, Check(2, 0.0, -0.005, True)), None), 2, scores=(0.9, 0.9, 0.9))
    assert given.rows_needed is None
    assert "next smaller" not in str(given)
    assert "tolerance" not in str(given)


@pytest.mark.parametrize("decision", [Decision(2, (PASSED, FAILED), None), None])
def test_the_other_half_has_its_say(decision):
    said = str(advice(decision, 2, 0.9 if decision else 0.0))
    assert "On the rows that did not choose it, it loses 0.0200 accuracy, which is more than the tolerance of" in said


def test_without_a_bound_there_is_a_warning():
    said = str(advice(None, 1, 0.0))
    assert "the smallest of 3 candidates that looks to be within the tolerance, chosen without a bound" in said
    assert "confidence it loses" not in said
    assert "every smaller candidate loses more than 0.01 accuracy" in str(advice(None, 0, 0.0))


def test_what_cannot_be_saved_is_no_advice():
    assert str(advice(Decision(None, (), None), savable=False)).startswith(
        "No block can go: no smaller model can be saved as a checkpoint."
    )


def test_rows_altogether():
    assert all_rows_for(75, PARTS, 200) == 200
    assert all_rows_for(76, PARTS, 200) == 203
