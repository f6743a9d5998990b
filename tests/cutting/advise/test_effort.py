"""What a search takes, told before it is done."""

import re

import numpy as np
import pytest

from layerscope.cutting.advise import _duration, effort
from layerscope.cutting.costs import Costs
from layerscope.cutting.search import Search, chosen_rules
from layerscope.cutting.sweep import Trial
from layerscope.evaluation.evaluate import make_evaluator
from tests.helpers.data import labelled_frame
from tests.helpers.models import random_classifier


@pytest.fixture(scope="module")
def search():
    return Search(make_evaluator(random_classifier("bert"), labelled_frame()), np.arange(10), (1, 2))


def test_plans_and_block_runs_are_counted(search):
    costs = Costs(search.evaluator.model)
    rules = chosen_rules("last,spans", search.depth)
    told = effort(search, rules, costs, timed=False)
    plans = list(dict.fromkeys(plan for rule in rules for plan in rule.plans(search)))
    assert told.plans == len(plans) + 1  # the whole model
    assert told.block_runs == Trial(search.evaluator.model, plans).block_runs
    assert told.searched == 0
    assert told.seconds > 0
    assert re.match(
        rf"The rules last, spans propose about {told.plans} plans\. .* {told.block_runs:.0f} runs of a block", str(told)
    )


def test_a_search_on_the_texts_that_choose_counts_by_their_share(search):
    costs, rules = Costs(search.evaluator.model), chosen_rules("greedy", search.depth)
    told = effort(search, rules, costs, timed=True)
    depth = search.depth
    assert told.searched == depth + depth - 1
    plain = Trial(search.evaluator.model, rules[0].stand_ins(search)).block_runs
    assert told.block_runs == plain + rules[0].block_runs(search) * 10 / 40
    assert f"up to {told.searched} more while searching" in str(told)
    assert told.seconds > effort(search, rules, costs, timed=False).seconds


def test_durations_are_rounded():
    assert [_duration(s) for s in (0.2, 61, 600, 7200)] == ["1 s", "61 s", "10 minutes", "2.0 hours"]
