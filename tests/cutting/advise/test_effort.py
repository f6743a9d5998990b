"""What a search takes, told before it is done."""

import re

import numpy as np
import pytest

from layerscope.cutting.advise import _duration, effort
from layerscope.cutting.costs import BatchTimes, Costs
from layerscope.cutting.plan import LayerPlan
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


def test_a_search_that_goes_on_from_another_counts_it_once(search):
    costs = Costs(search.evaluator.model)
    told = {
        names: effort(search, chosen_rules(names, search.depth), costs, timed=False)
        for names in ("greedy", "swap", "greedy,swap", "greedy,swap,beam", "beam")
    }
    assert told["swap"].searched == told["greedy,swap"].searched > told["greedy"].searched
    assert told["swap"].block_runs == told["greedy,swap"].block_runs > told["greedy"].block_runs
    both = told["swap"].searched + told["beam"].searched
    assert told["greedy,swap,beam"].searched == both


def test_the_estimate_is_of_measured_batches(search, monkeypatch):
    """A second per token of a forward, a tenth in a block and a hundredth in an answer make up what is said."""
    monkeypatch.setattr(BatchTimes, "measured", classmethod(lambda cls, evaluator: cls(1.0, 0.1, 0.01)))
    told = effort(search, chosen_rules("last", search.depth), Costs(search.evaluator.model), timed=False)
    tokens, depth = sum(map(len, search.evaluator.encoded())), search.depth
    expected = 1 + 0.1 * (told.block_runs - depth) + 0.01 * told.plans
    assert told.seconds == pytest.approx(tokens * expected)


def test_a_batch_of_the_texts_themselves_is_measured(search, monkeypatch):
    clock = iter(range(10_000))
    monkeypatch.setattr("layerscope.cutting.costs._now", lambda model: next(clock) / 1e4)
    times = BatchTimes.measured(search.evaluator)
    tokens = sum(map(len, search.evaluator.encoded()))  # of one batch, as they are few
    assert (times.forward, times.block, times.answer) == pytest.approx([1e-4 / tokens] * 3)
    assert next(clock) == 2 * 4


def test_measuring_latencies_is_counted_once_for_each_number_of_blocks(search, monkeypatch):
    costs, times = Costs(search.evaluator.model), BatchTimes(0.0, 0.0, 0.0)
    monkeypatch.setattr(costs, "latency", lambda plan, batch: 1.0)
    plans = [LayerPlan([1, 2]), LayerPlan([1, 3]), LayerPlan([1])]
    depth = search.depth
    assert costs.measuring(plans[:1], times) == costs.measuring(plans[:2], times) == pytest.approx(3 * 2 / depth + 0.0)
    assert costs.measuring(plans, times) > costs.measuring(plans[:2], times)


def test_durations_are_rounded():
    assert [_duration(s) for s in (0.2, 61, 600, 7200)] == ["1 s", "61 s", "10 minutes", "2.0 hours"]
