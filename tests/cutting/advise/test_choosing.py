"""The choice for a target: the best score among what meets it, and sentences where nothing does."""

import numpy as np
import pandas
import pytest

import layerscope as ls
from layerscope.cutting import advise
from layerscope.cutting.advise import best_for_target
from layerscope.cutting.selection_test import of_losses
from layerscope.cutting.targets import Target, Tolerance
from layerscope.errors import InputError, PlanError

PLANS = [ls.LayerPlan(keep) for keep in ([1, 2, 3, 4], [1, 2, 3], [1, 2, 4], [1, 2], [1])]


def table(scores, savable=True):
    return pandas.DataFrame(
        {
            "removed": [0, 1, 1, 2, 3],
            "chosen_on": scores,
            "score": scores,
            "change": np.nan,
            "change_low": np.nan,
            "parameters": [100, 90, 90, 80, 70],
            "macs": [100, 90, 90, 80, 70],
            "latency_1_ms": [10.0, 9.0, 9.0, 8.0, 7.0],
            "savable": savable,
        }
    )


class Comparison:
    """Says that every plan loses a tenth of a nat, more or less."""

    def __init__(self, metric):
        self.evaluator = type("Sitting", (), {"metric": metric, "model": None})

    limit = 0.2
    tolerance = Tolerance.parse(0.2, "accuracy")

    def changes(self, place):
        whole = np.linspace(2, 3, 50)
        return of_losses(whole, whole + np.linspace(0.05, 0.15, 50))

    def in_metric(self, change):
        return change


@pytest.fixture(autouse=True)
def cut(monkeypatch):
    """Everything can be cut, except for the plan without block 4."""

    def made(model, plan):
        if plan.keep == (1, 2, 3):
            raise PlanError("no")

    monkeypatch.setattr(advise, "check_in_place", made)


def chosen(frame, target, metric="accuracy", confidence=0.9):
    return best_for_target(Comparison(metric), PLANS, frame, confidence, target)[0]


def test_the_best_of_those_that_meet_it_and_can_be_cut():
    frame = table([0.9, 0.8, 0.7, 0.6, 0.5])
    assert chosen(frame, Target(blocks=3)) == 2
    assert frame["savable"].tolist() == [True, False, True, True, True]
    assert chosen(table([0.9, 0.8, 0.7, 0.6, 0.85]), Target.parse(None, "80%", None)) == 4
    assert chosen(table([0.9, 0.8, 0.7, 0.6, 0.6]), Target.parse(None, None, "80%")) == 4  # the cheaper of two
    assert chosen(table([9.0, 11.0, 12.0, 10.0, 30.0]), Target.parse(None, 80, None), "perplexity") == 3


def test_what_the_choice_changes_is_bounded_on_other_rows():
    frame = table([0.9, 0.8, 0.7, 0.6, 0.5])
    place = chosen(frame, Target(blocks=2))
    assert frame.loc[place, "change"] == pytest.approx(-0.1)
    assert -0.15 < frame.loc[place, "change_low"] < -0.1
    assert frame["change"].notna().sum() == 1
    comparison = Comparison("accuracy")
    assert best_for_target(comparison, PLANS, frame, 0.9, Target(blocks=2))[1]  # within 0.2
    comparison.limit = 0.05
    assert not best_for_target(comparison, PLANS, frame, 0.9, Target(blocks=2))[1]
    free = table([0.9, 0.8, 0.7, 0.6, 0.5])
    chosen(free, Target(blocks=2), confidence=0)
    assert free["change"].isna().all()


def test_where_nothing_meets_it_the_least_is_told():
    with pytest.raises(InputError, match=r"No plan of 4 would have at most 60 parameters; the least of them are 70"):
        chosen(table([0.9, 0.8, 0.7, 0.6, 0.5]), Target.parse(None, 60, None))
    with pytest.raises(InputError, match="1 of 4 plans keep 1 block, and none of them can be saved"):
        chosen(table([0.9, 0.8, 0.7, 0.6, 0.5], savable=[True, True, True, True, False]), Target(blocks=1))
    with pytest.raises(InputError, match="with a score"):
        chosen(table([0.9, 0.8, 0.7, 0.6, np.nan]), Target(blocks=1))
