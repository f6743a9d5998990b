"""Targets: how they are written, which sizes they need, and what is possible where they cannot be met."""

import numpy as np
import pytest

import layerscope as ls
from layerscope.cutting.costs import Costs
from layerscope.cutting.targets import Target
from layerscope.errors import InputError
from tests.helpers.models import random_network, word_tokenizer


class Measured(Costs):
    """Costs whose latency is known: one millisecond around the blocks and one for each."""

    def latency(self, plan, batch):
        return (1 + len(plan.keep)) / 1000


@pytest.fixture(scope="module")
def costs():
    return Measured(ls.load(random_network("bert"), tokenizer=word_tokenizer()))


@pytest.mark.parametrize(
    ("written", "whole", "most"),
    [
        ("100M", 1, 1e8),
        ("1.5B", 1, 1.5e9),
        ("2,000", 1, 2000),
        (70_000, 1, 7e4),
        (1e8, 1, 1e8),
        ("80%", 200, 160),
        ("12k", 1, 12e3),
    ],
)
def test_parameters_are_written_as_people_do(written, whole, most):
    assert Target.parse(None, written, None).parameters.most(whole) == pytest.approx(most)


@pytest.mark.parametrize(("written", "most"), [("80%", 8), (0.8, 8), ("0.8", 8), ("40ms", 40), ("0.5 s", 500)])
def test_latency_is_a_share_or_a_time(written, most):
    assert Target.parse(None, None, written).latency.most(10) == pytest.approx(most)


@pytest.mark.parametrize("written", ["many", "-3", "0", "120%", "5 apples", "", "nan"])
def test_other_writings_are_sentences(written):
    with pytest.raises(InputError, match=r"parameters is .*; give 100M, say, or 80%"):
        Target.parse(None, written, None)
    with pytest.raises(InputError, match=r"latency is .*; give 80%, say, or 40ms"):
        Target.parse(None, None, written)


def test_sizes_are_the_fewest_blocks_that_have_to_go_and_a_few_more(costs):
    depth = costs.model.depth
    assert depth >= 4
    assert Target(blocks=depth - 1).sizes(costs) == (1,)
    whole = ls.LayerPlan(range(1, depth + 1))
    without = costs.parameters(ls.LayerPlan(range(1, depth)))
    exactly = Target.parse(None, without, None)
    assert exactly.sizes(costs)[0] == 1
    assert Target.parse(None, without - 1, None).sizes(costs)[0] == 2
    assert Target.parse(None, None, f"{depth}ms").sizes(costs)[0] == 1
    assert Target.parse(None, without, f"{depth - 1}ms").sizes(costs)[0] == 2
    assert costs.least_parameters(0) == costs.parameters(whole)
    assert costs.least_parameters(1) == without


def test_what_cannot_be_had_is_a_sentence_with_what_can(costs):
    depth = costs.model.depth
    with pytest.raises(InputError, match=rf"blocks is {depth}; .* has {depth} blocks, .* keeps 1..{depth - 1}"):
        Target(blocks=depth).sizes(costs)
    least = costs.least_parameters(depth - 1)
    with pytest.raises(
        InputError, match=rf"At most 10 parameters were asked for, and .* has {least:,} parameters with"
    ):
        Target.parse(None, 10, None).sizes(costs)
    with pytest.raises(InputError, match=r"The whole of .* nothing has to go"):
        Target.parse(None, "5B", None).sizes(costs)
    with pytest.raises(InputError, match=r"2\.00 ms for a text with one block left"):
        Target.parse(None, None, "1ms").sizes(costs)


def test_blocks_are_a_whole_number_of_any_kind(costs):
    assert str(Target.parse(np.int64(2), None, None)) == "keep 2 blocks"
    assert Target.parse(np.int64(1), None, None).sizes(costs) == (costs.model.depth - 1,)
    for blocks in (2.0, True):
        with pytest.raises(InputError, match=f"blocks is {blocks}; the whole number of blocks that stay is needed"):
            Target.parse(blocks, None, None)


def test_a_candidate_meets_all_that_is_asked():
    whole, row = {"parameters": 100, "latency_1_ms": 10.0}, {"parameters": 80, "latency_1_ms": 8.0}
    assert Target.parse(4, 80, "80%").meets(4, row, whole)
    assert not Target.parse(5, 80, "80%").meets(4, row, whole)
    assert not Target.parse(4, 79, "80%").meets(4, row, whole)
    assert not Target.parse(4, 80, "79%").meets(4, row, whole)
    assert not Target()
    assert str(Target.parse(4, "100M", "80%")) == (
        "keep 4 blocks and have at most 100M parameters and take at most 80 % of the time for one text"
    )
