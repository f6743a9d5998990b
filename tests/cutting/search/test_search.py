"""What rules may know: sizes, and scores and distances of the rows that choose alone."""

import numpy as np
import pytest

import layerscope as ls
from layerscope.cutting.search import Search, checked_sizes, usual_sizes
from layerscope.errors import InputError
from layerscope.evaluation.evaluate import make_evaluator
from tests.helpers.data import labelled_frame
from tests.helpers.models import random_classifier


def test_sizes_fit_the_depth():
    assert usual_sizes(1) == ()
    assert usual_sizes(12) == tuple(range(1, 12))
    assert usual_sizes(30) == (1, 2, 3, 5, 7, 10, 15)
    assert max(usual_sizes(80)) == 40
    assert len(usual_sizes(80)) <= 8


def test_sizes_that_are_asked_for_are_checked():
    assert checked_sizes(2, 4) == (2,)
    assert checked_sizes([3, 1, 3], 4) == (1, 3)
    with pytest.raises(InputError, match=r"4 blocks were to go; this model has 4, so 1..3 of them can"):
        checked_sizes([1, 4], 4)
    with pytest.raises(InputError, match="remove is"):
        checked_sizes([], 4)
    with pytest.raises(InputError, match="remove is"):
        checked_sizes(1.5, 4)


def test_scores_are_of_the_rows_that_choose():
    opened, plans = random_classifier("bert"), [ls.LayerPlan([1, 3]), ls.LayerPlan([2])]
    evaluator, rows = make_evaluator(opened, labelled_frame()), np.asarray([1, 5, 6, 20, 31])
    found = Search(evaluator, rows, (1,)).worths(plans, "here")
    for plan, worth in zip(plans, found, strict=True):
        own = make_evaluator(ls.load(ls.cut(opened, plan)), labelled_frame())
        assert worth == pytest.approx(own.value(own.logits(), rows))


def test_other_rows_are_never_looked_at():
    """The same rows among others give the same: greedy scores and distances."""
    opened, data, rows = random_classifier("bert"), labelled_frame(), np.arange(0, 40, 3)
    other = data.copy()
    rest = ~np.isin(np.arange(40), rows)
    other.loc[rest, "text"] = "not this"
    searches = [Search(make_evaluator(opened, each), rows, (1,)) for each in (data, other)]
    first, second = (search.distances for search in searches)
    np.testing.assert_allclose(first.angular, second.angular, atol=1e-6)
    assert first.tokens == second.tokens
    plans = [ls.LayerPlan([1, 2])]
    assert searches[0].worths(plans, "") == searches[1].worths(plans, "")


def test_lengths_of_spans_are_bounded_and_sizes_are_not():
    search = Search(make_evaluator(random_classifier("bert"), labelled_frame()), np.arange(5), (1, 2, 3), 2)
    assert (search.lengths, search.sizes) == ((1, 2), (1, 2, 3))
    assert search.without([1, 4]) == ls.LayerPlan([b for b in range(1, search.depth + 1) if b not in (1, 4)])
