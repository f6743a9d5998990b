import json

import pytest

import layerscope as ls
from layerscope.cutting.plan import spans
from layerscope.errors import InputError


def test_a_plan_is_a_value():
    plan = ls.LayerPlan(keep=[1, 2, 5], head=5)
    assert plan == ls.LayerPlan((1, 2, 5))
    assert len({plan, ls.LayerPlan(range(1, 3)), ls.LayerPlan([1, 2, 5])}) == 2
    assert ls.LayerPlan.from_spec(json.loads(json.dumps(plan.spec()))) == plan
    assert str(plan) == "keep 1-2, 5, head on layer 5"
    assert str(ls.LayerPlan([])) == "keep no block, head on layer 0"
    assert plan.removed(6) == (3, 4, 6)
    with pytest.raises(AttributeError):
        plan.keep = (1,)


def test_blocks_above_the_head_do_not_stay():
    assert ls.LayerPlan([1, 2, 3, 4], head=2) == ls.LayerPlan([1, 2])
    assert ls.LayerPlan([1, 2], head=0).keep == ()


def test_truncated_and_skipped():
    assert ls.LayerPlan.truncated(4, 2).keep == (1, 2)
    assert ls.LayerPlan.truncated(4, 0).head == 0
    assert ls.LayerPlan.skipped(4, 2, 3) == ls.LayerPlan([1, 4])
    assert ls.LayerPlan.skipped(4, 4, 4).head == 3


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: ls.LayerPlan([0, 1]), "numbered from 1"),
        (lambda: ls.LayerPlan([2, 1]), "in order"),
        (lambda: ls.LayerPlan([1, 1]), "each once"),
        (lambda: ls.LayerPlan([1.5]), "whole numbers"),
        (lambda: ls.LayerPlan([1, 2, 5], head=4), "cannot read layer 4"),
        (lambda: ls.LayerPlan.truncated(4, 5), "blocks 1..4"),
        (lambda: ls.LayerPlan.truncated(4, -1), "0..4 of them"),
        (lambda: ls.LayerPlan.skipped(4, 0, 2), "blocks 1..4"),
        (lambda: ls.LayerPlan.skipped(4, 3, 2), "3..2"),
        (lambda: ls.LayerPlan([7]).check(4), "Block 7 was to be kept; this model has blocks 1..4"),
    ],
)
def test_mistakes_are_sentences(make, message):
    with pytest.raises(InputError, match=message):
        make()


def test_spans():
    assert spans([1, 2, 3, 7, 9, 10]) == "1-3, 7, 9-10"
    assert spans([]) == "none"


@pytest.mark.parametrize("ends", [(1.5, 2), ("1", "2"), (1, True), (None, 2)])
def test_what_is_skipped_are_whole_numbers(ends):
    with pytest.raises(InputError, match=r"whole numbers are needed, of blocks 1\.\.4"):
        ls.LayerPlan.skipped(4, *ends)


@pytest.mark.parametrize("keep", [3, "1-3", None])
def test_what_is_kept_is_a_list(keep):
    with pytest.raises(InputError, match="a list of the blocks that stay is needed"):
        ls.LayerPlan(keep)


@pytest.mark.parametrize("head", ["2", 2.0, True])
def test_the_heads_layer_is_a_whole_number(head):
    with pytest.raises(InputError, match="the whole number of a layer is needed"):
        ls.LayerPlan([1, 2], head=head)
