"""Claims as data, and the verdict on each: which side of its threshold the whole interval lies on."""

import inspect
import math

import pytest
from pydantic import ValidationError

from layerscope.recipes.claims import Claim, Statistic, claims, claims_of, verdict
from layerscope.recipes.recipe import read_recipe
from layerscope.registry import STATISTICS

CLAIM = {
    "name": "n",
    "paper": "p",
    "experiment": "e",
    "where": "w",
    "says": "It is so.",
    "about": "a",
    "statistic": "diagonal",
    "refuted": "It is not so.",
}
UP, DOWN = Claim(**CLAIM, above=0.5), Claim(**CLAIM, below=0.5)


@pytest.mark.parametrize(
    ("low", "high", "up", "down"),
    [
        (0.6, 0.8, "holds", "does not hold"),
        (0.1, 0.4, "does not hold", "holds"),
        (0.4, 0.6, "undecided", "undecided"),
        (0.5, 0.7, "undecided", "does not hold"),  # at the threshold is not beyond it
        (math.nan, math.nan, "undecided", "undecided"),
    ],
)
def test_the_whole_interval_decides(low, high, up, down):
    value = Statistic(0.55, low, high)
    assert (verdict(UP, value), verdict(DOWN, value)) == (up, down)


def test_without_a_number_nothing_can_be_tested():
    assert verdict(UP, Statistic.missing("no layers")) == "not testable"
    assert verdict(UP, Statistic(math.nan)) == "not testable"


def test_a_claim_has_one_threshold():
    assert (UP.threshold, DOWN.threshold) == ("above 0.5", "below 0.5")
    for wrong in ({}, {"above": 1.0, "below": 1.0}):
        with pytest.raises(ValidationError, match="a claim has a threshold"):
            Claim(**CLAIM, **wrong)


def test_differences_of_independent_statistics():
    gap = Statistic(3.0, 2.0, 5.0, n=9).minus(Statistic(1.0, 0.0, 1.5, n=7))
    assert (gap.value, gap.low, gap.high, gap.n) == (2.0, 2 - math.hypot(1, 0.5), 2 + math.hypot(2, 1), 7)
    assert Statistic.missing("why").minus(gap).reason == gap.minus(Statistic.missing("why")).reason == "why"
    assert Statistic(0.9, 0.5, 1.4).within(-1, 1).high == 1
    assert gap.noted("so").note == "so"


def test_every_claim_can_be_put_to_its_statistic():
    assert len({claim.name for claim in claims()}) == len(claims()) >= 30
    for claim in claims():
        experiment = read_recipe(claim.paper).experiments[claim.experiment]
        calls = {call.name: call for call in experiment.calls}
        assert calls[claim.about].shown, f"{claim.name} is about a figure that is not shown"
        inspect.signature(STATISTICS[claim.statistic]).bind({}, **claim.options)
        for option in ("of", "over", "minus", "less", "neuron", "svcca", "probes", "rows", "than"):
            given = claim.options.get(option)
            name = given.split(".")[0] if isinstance(given, str) else ""
            known = (
                {*calls, "linear", "inn start=plain", "inn start=linear"}
                if claim.statistic in ("injected", "cheaper")
                else set(calls)
            )
            assert not name or name in known, f"{claim.name}: {option} is {name}"


def test_claims_of_some_experiments():
    some = claims_of("phang2021", ["fig4"])
    assert [claim.name for claim in some] == ["the first block is missed most", "late blocks are cheaper to skip"]
