"""A score is a number, and knows where it comes from."""

import copy
import math
import pickle

import pytest

import layerscope as ls
from layerscope.evaluation.score import Number
from layerscope.results import Result, read_table

PROVENANCE = {
    "models": [{"name": "m", "weights": "abc"}],
    "data": {"task": "sst2", "split": "validation"},
    "settings": {},
    "versions": {},
}


def score(value=0.9, **changes):
    given = {"metric": "accuracy", "metrics": {"accuracy": value, "f1": 0.8}, "n": 50, "majority": 0.6}
    return ls.Score(value, **{**given, "provenance": PROVENANCE, **changes})


def test_it_is_a_number():
    assert isinstance(score(), float)
    assert score() == 0.9
    assert score() + 1 == pytest.approx(1.9)
    assert max(score(0.2), score(0.7)) == 0.7
    assert sorted([score(0.7), 0.5, score(0.1)]) == [0.1, 0.5, 0.7]
    assert f"{score():.2f}" == "0.90"
    assert score() > score().majority
    assert math.isnan(score(math.nan))
    assert {score(): 1}[0.9] == 1


def test_it_is_a_result(tmp_path):
    assert isinstance(score(), Result)
    (row,) = score().frame.to_dict("records")
    about = {"model": "m", "task": "sst2", "split": "validation", "n": 50}
    assert row == {**about, "metric": "accuracy", "score": 0.9, "majority": 0.6, "f1": 0.8}
    assert type(row["score"]) is float
    (figure,) = score().figures()
    assert (figure.values, figure.n, dict(figure.references)) == ((0.9,), 50, {"most frequent class": 0.6})
    assert "Only 50 rows" in figure.caveat
    frame, card = read_table(score().save(tmp_path / "score.parquet"), "score")
    assert frame["score"].tolist() == [0.9]
    assert card["provenance"] == PROVENANCE
    assert repr(score(n=5000)) == "Score(accuracy 0.9000, n = 5,000)"


def test_it_knows_whose_weights_were_scored():
    assert score().weights == "abc"
    assert score(provenance={}).weights == ""
    assert score(provenance={}).frame["model"].tolist() == [None]


@pytest.mark.parametrize("again", [copy.copy, copy.deepcopy, lambda s: pickle.loads(pickle.dumps(s))])
def test_a_copy_is_whole(again):
    first = score(note="half of the rows")
    found = again(first)
    assert type(found) is ls.Score
    assert found == first
    for name in ("metric", "metrics", "n", "majority", "provenance", "note", "weights"):
        assert getattr(found, name) == getattr(first, name)


def test_arithmetic_gives_plain_numbers():
    assert type(score() - score(0.5)) is float
    assert type(round(score(0.123456), 2)) is float


def test_every_number_has_its_rows_its_interval_and_its_kind():
    written = Number("sst2", "validation", "repetition", 0.4, 8, "generation", 0.3, 0.5, "prompts")
    whole = score(interval=(0.85, 0.95), kind="classes", more=[written])
    first, other, last = whole.numbers
    assert (first.metric, first.value, first.low, first.high, first.n) == ("accuracy", 0.9, 0.85, 0.95, 50)
    assert (other.metric, other.kind) == ("f1", "classes")
    assert math.isnan(other.low)
    assert last == written
    assert whole.metrics["repetition"] == 0.4
    assert whole.asked_for == [first, written]
    for again in (copy.copy(whole), pickle.loads(pickle.dumps(whole))):
        assert (again.interval, again.kind, again.more) == (whole.interval, "classes", (written,))
    assert math.isnan(score().interval[0])


@pytest.mark.parametrize(("half", "sure"), [(1.0, True), (9.0, False)])
def test_a_perplexity_is_sure_where_its_interval_is_narrow(half, sure):
    bounds = {"interval": (50 - half, 50 + half), "majority": math.nan}
    assert score(50.0, metric="perplexity", metrics={}, **bounds).findings()[0].sure is sure


@pytest.mark.parametrize(("low", "sure"), [(0.6, True), (0.2, False), (math.nan, None)])
def test_a_score_is_sure_where_it_lies_above_guessing(low, sure):
    versioned = {**PROVENANCE, "data": {"task": "t@1"}}
    (told,) = score(0.7, majority=0.3, interval=(low, 0.9), provenance=versioned).findings()
    assert told.text == "m has accuracy 0.700 on t; always giving the most frequent class would have 0.300."
    assert told.sure is sure
    assert score(provenance={}).findings()[0].text.startswith("The model has accuracy 0.900;")


def test_what_may_go_is_tested_next():
    assert score().next_step().command == "advise"
