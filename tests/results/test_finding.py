"""Numbers as sentences say them, and intervals for the best of several."""

import math

import numpy as np
import pytest
from scipy.stats import norm

from layerscope.results.finding import (
    Finding,
    better_end,
    interval,
    label,
    number,
    rows,
    task_name,
    widened,
    with_head,
    worse,
    worse_end,
)

NAN = math.nan


def test_how_sure_it_is_is_said_plainly():
    said = [Finding("text", "evidence", sure).certainty for sure in (True, False, None)]
    assert said == ["sure", "not sure", "not tested"]


def test_a_finding_is_its_sentence_with_the_evidence_in_parentheses():
    assert str(Finding("It is 3.")) == "It is 3."
    assert str(Finding("It is 3.", "n = 5", True)) == "It is 3 (n = 5)."


def test_a_model_with_a_head_is_known_by_its_class():
    classes = ("BertModel", "BertForSequenceClassification", "GPT2LMHeadModel")
    assert with_head([{"name": name, "class": name} for name in classes]) == list(classes[1:])
    assert with_head([{"name": "arrays"}]) == []


@pytest.mark.parametrize(
    ("value", "text"),
    [(0.12345, "0.123"), (12.345, "12.3"), (1234.5, "1,234"), (0.00012, "1.2e-04"), (0.0, "0.000"), (NAN, "undefined")],
)
def test_numbers_have_as_many_digits_as_they_need(value, text):
    assert number(value) == text


def test_an_interval_that_is_not_there_is_said():
    assert interval(0.1, 0.2) == "95% interval 0.100 to 0.200"
    assert interval(NAN, NAN) == "no interval was measured"


def test_rows_are_counted_whatever_their_type():
    assert rows(np.int64(1200)) == ", n = 1,200"
    assert rows(None) == rows(NAN) == ""


def test_an_interval_for_the_best_of_several_is_bonferronis():
    value, error = 0.5, 0.1
    low, high = value - norm.ppf(0.975) * error, value + norm.ppf(0.975) * error
    assert widened(value, low, high, 1) == pytest.approx((low, high))
    wide = widened(value, low, high, 7)
    half = norm.ppf(1 - 0.025 / 7) * error
    assert wide == pytest.approx((value - half, value + half))
    assert all(math.isnan(end) for end in widened(value, NAN, NAN, 3))


def test_worse_depends_on_which_way_is_up_and_never_holds_for_nan():
    assert worse(0.1, 0.2, up=True)
    assert worse(30.0, 20.0, up=False)
    assert not worse(NAN, 0.2, up=True)
    assert (worse_end(1, 2, True), better_end(1, 2, True)) == (1, 2)
    assert (worse_end(1, 2, False), better_end(1, 2, False)) == (2, 1)


def test_models_have_labels():
    assert label({"name": "/a/b/tune/seed-0"}) == "seed-0"  # in records that have no labels
    assert label({"name": "/a/b/tune/seed-0", "label": "first"}) == "first"
    assert task_name("pydocs@CPython-3.11") == "pydocs"
