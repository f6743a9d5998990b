"""Findings of cuts: what may go, what is missed, and which rule is best."""

import math

import pandas
import pytest

import layerscope as ls
from layerscope.drawing.figures.bars import BarsFigure
from layerscope.reporting.findings.cuts import advice, cut, score, skips, truncation


def record(**about):
    return ls.Record(**{"kind": "truncate", "title": "x", "figures": [], "data": {"n": 300}, **about})


def curve(scores, half=0.03, metric="accuracy", majority=0.3):
    return pandas.DataFrame(
        {
            "layer": range(len(scores)),
            "score": scores,
            "majority": majority,
            "low": [s - half for s in scores],
            "high": [s + half for s in scores],
            "macs": 1,
            "metric": metric,
            "n": 300,
        }
    )


def test_a_flat_top_may_go_and_is_never_sure():
    told = truncation(curve([0.3, 0.5, 0.79, 0.8, 0.81]), record())
    assert told[0].text.startswith("2 blocks of 4 at the top may be dispensable: with the head on layer 2")
    assert told[0].sure is False
    assert "not tested" in told[0].evidence
    assert "From layer 1 on" in told[1].text


def test_a_steep_top_is_sure():
    told = truncation(curve([0.3, 0.3, 0.31, 0.8]), record())
    assert told[0].text.startswith("No block at the top is dispensable")
    assert told[0].sure is True
    noisy = truncation(curve([0.3, 0.3, 0.765, 0.8]), record())
    assert noisy[0].sure is False  # its interval is below, but not after allowing for the choice


def test_perplexity_is_read_downwards():
    told = truncation(curve([900.0, 300.0, 21.0, 20.0], 2.0, "perplexity", math.nan), record())
    assert told[0].text.startswith("One block of 3 at the top may be dispensable")
    assert len(told) == 1


def test_a_model_that_guesses_is_said_to_guess():
    told = truncation(curve([0.3, 0.3, 0.31]), record())
    assert any("not shown to do better than always giving" in finding.text for finding in told)


def test_skips_name_the_blocks_missed_most_and_least():
    spans = {(1, 1): 0.78, (2, 2): 0.81, (3, 3): 0.4, (1, 2): 0.77, (2, 3): 0.4, (1, 3): 0.3}
    rows = [{"first": a, "last": b, "score": s, "low": s - 0.04, "high": s + 0.04} for (a, b), s in spans.items()]
    frame = pandas.DataFrame(rows).assign(whole=0.8, metric="accuracy", n=300)
    first, most, least = skips(frame, record(kind="skip"))
    assert "blocks 1 to 2" in first.text
    assert first.sure is False
    assert "misses block 3 most" in most.text
    assert most.sure is True
    assert "misses block 2 least" in least.text


def candidates():
    rows = [
        ("1-4", 0, "", 0.80, math.nan, math.nan, 100),
        ("1-3", 1, "last", 0.60, math.nan, math.nan, 80),
        ("1, 3-4", 1, "angular, random", 0.79, -0.01, -0.02, 80),
        ("2-4", 1, "random", 0.55, math.nan, math.nan, 80),
    ]
    names = ["blocks", "removed", "rule", "score", "change", "change_low", "parameters"]
    frame = pandas.DataFrame(rows, columns=names)
    return frame.assign(
        low=frame["score"] - 0.03, high=frame["score"] + 0.03, chosen_on=frame["score"], metric="accuracy"
    )


def test_advice_with_a_bound_is_sure_and_tells_it():
    frame = candidates().assign(chosen=[False, False, True, False])
    asked = {"confidence": 0.9, "tolerance": 0.03, "rules": ["last", "angular", "random"]}
    kept, best, lost = advice(frame, record(kind="advise", settings=asked))
    assert kept.text.startswith("Blocks 1, 3-4 of 4 are enough within a tolerance of 0.03: accuracy is 0.790")
    assert "with 80% of the parameters" in kept.text
    assert "with 90% confidence it loses at most 0.020" in kept.evidence
    assert kept.sure is True
    assert "the rule angular does best" in best.text
    assert best.sure is True  # random plans have 0.67 in the middle
    assert lost.text == "At some size, random blocks do better than last."
    free = advice(frame, record(kind="advise", settings={**asked, "confidence": 0}))[0]
    assert free.sure is False
    assert "without a bound" in free.evidence


def test_advice_of_a_size_is_not_called_enough():
    frame = candidates().assign(chosen=[False, False, True, False])
    told = advice(frame, record(kind="advise", settings={"target": "keep 3 blocks"}))[0]
    assert told.text.startswith("Blocks 1, 3-4 of 4 are the best of those that keep 3 blocks: accuracy")


@pytest.mark.parametrize(("half", "sure"), [(1.0, True), (9.0, False)])
def test_a_perplexity_is_sure_where_its_interval_is_narrow(half, sure):
    bounds = {"low": (50 - half,), "high": (50 + half,)}
    drawn = BarsFigure(title="Score", shows="", reading="", names=("m",), values=(50.0,), y_name="p", **bounds)
    row = {"model": "m", "task": "t", "n": 5, "metric": "perplexity", "score": 50.0, "majority": math.nan}
    told = score(pandas.DataFrame([row]), record(kind="evaluate", figures=[drawn]))[0]
    assert told.sure is sure


def test_advice_that_keeps_all_says_what_stood_in_the_way():
    frame = candidates().assign(chosen=[True, False, False, False])
    told = advice(frame, record(kind="advise", settings={"confidence": 0.9, "tolerance": 0.01}))
    assert told[0].text == "No block is shown to be dispensable within a tolerance of 0.01 accuracy."
    assert "blocks 1, 3-4, changes accuracy by -0.010, and perhaps by -0.020" in told[0].evidence
    assert told[0].sure is False


def test_a_cut_is_sure_to_lose_where_its_interval_says_so():
    frame = pandas.DataFrame({"blocks": ["1-6", "keep 1-4"], "metric": "accuracy", "score": [0.8, 0.5]})
    frame = frame.assign(parameters=[100, 70])
    assert cut(frame, record())[0].sure is None
    assert cut(frame.assign(low=[0.75, 0.45], high=[0.85, 0.55]), record())[0].sure is True
    assert cut(frame.assign(low=[0.75, 0.2], high=[0.85, 0.9]), record())[0].sure is False


@pytest.mark.parametrize(("low", "sure"), [(0.6, True), (0.2, False), (math.nan, None)])
def test_a_score_is_sure_where_it_lies_above_guessing(low, sure):
    bounds = {} if math.isnan(low) else {"low": (low,), "high": (0.9,)}
    drawn = BarsFigure(title="Score", shows="", reading="", names=("m",), values=(0.7,), y_name="accuracy", **bounds)
    frame = pandas.DataFrame(
        [{"model": "m", "task": "t@1", "n": 5, "metric": "accuracy", "score": 0.7, "majority": 0.3}]
    )
    told = score(frame, record(kind="evaluate", figures=[drawn]))[0]
    assert told.text == "m has accuracy 0.700 on t; always giving the most frequent class would have 0.300."
    assert told.sure is sure
