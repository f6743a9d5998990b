"""Findings of cuts: what may go, and what is missed."""

import math

import numpy as np
import pandas

import layerscope as ls
from layerscope.cutting.curves import SkipMap, healing_step


def truncation(*given, **options):
    """Findings of a curve whose differences from the whole model have intervals of half its scores'."""
    return ls.Truncation(with_differences(curve(*given, **options)), {}).findings()


def with_differences(frame, whole=None):
    """A table with differences from the whole model, whose intervals are half as wide as those of the scores."""
    sign = -1.0 if frame["metric"].iloc[0] == "perplexity" else 1.0
    over = sign * (frame["score"] - (frame["score"].iloc[-1] if whole is None else whole))
    half = (frame["high"] - frame["low"]) / 4
    if whole is None:
        half = half.where(frame.index < len(frame) - 1)
    return frame.assign(over_whole=over, over_whole_low=over - half, over_whole_high=over + half)


def without(scores, half):
    """Scores without each of 20 groups of texts, whose differences have intervals of about so much to each side."""
    noise = np.random.default_rng(0).normal(size=(20, len(scores)))
    return np.asarray(scores) + half / 10 * noise


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
            "task": "t",
            "n": 300,
        }
    )


def test_a_flat_top_may_go_and_is_never_sure():
    told = truncation([0.3, 0.5, 0.8, 0.805, 0.81])
    assert told[0].text.startswith("2 blocks of 4 at the top may be dispensable: with the head on layer 2")
    assert told[0].sure is False
    assert told[0].evidence == (
        "95% interval 0.770 to 0.830; row by row the difference from the whole model is -0.025 to 0.005 (below 0 is "
        "worse), which holds 0, n = 300"
    )
    assert "From layer 1 on" in told[1].text


def test_a_steep_top_is_sure():
    told = truncation([0.3, 0.3, 0.31, 0.8])
    assert told[0].text.startswith("No block at the top is dispensable")
    assert told[0].sure is True
    paired = truncation([0.3, 0.3, 0.78, 0.8])
    assert paired[0].text.startswith("No block at the top is dispensable")
    assert paired[0].sure is True  # its interval holds the whole model's score, but that of the difference is below 0
    assert "row by row the difference from the whole model is -0.035 to -0.005 (below 0 is worse)" in paired[0].evidence
    untested = ls.Truncation(curve([0.3, 0.3, 0.31, 0.8]), {}).findings()[0]
    assert untested.sure is None
    assert "the difference from the whole model was not tested" in untested.evidence


def test_perplexity_is_read_downwards():
    told = truncation([900.0, 300.0, 20.5, 20.0], 2.0, "perplexity", math.nan)
    assert told[0].text.startswith("One block of 3 at the top may be dispensable")
    assert len(told) == 1


def test_a_model_that_guesses_is_said_to_guess():
    told = truncation([0.3, 0.3, 0.31])
    assert any("not shown to do better than always giving" in finding.text for finding in told)


def measured(frame):
    """A skip map with its differences from the whole model, and its scores without each group of texts."""
    return SkipMap(with_differences(frame, 0.8), {}, without(frame["score"], 0.04))


def test_skips_name_the_blocks_missed_most_and_least():
    spans = {(1, 1): 0.78, (2, 2): 0.81, (3, 3): 0.4, (1, 2): 0.785, (2, 3): 0.4, (1, 3): 0.3}
    rows = [{"first": a, "last": b, "score": s, "low": s - 0.04, "high": s + 0.04} for (a, b), s in spans.items()]
    frame = pandas.DataFrame(rows).assign(whole=0.8, metric="accuracy", n=300)
    first, most, least = measured(frame).findings()
    assert "blocks 1 to 2" in first.text
    assert first.sure is False
    assert "misses block 3 most" in most.text
    assert most.sure is True
    assert SkipMap(frame, {}).findings()[1].sure is None
    alike = frame.assign(score=[0.41, 0.81, 0.4, 0.785, 0.4, 0.3])
    assert "misses block 3 most" in measured(alike).findings()[1].text
    assert measured(alike).findings()[1].sure is False  # block 1 may be missed as much
    assert "misses block 2 least" in least.text
    assert "which holds 0; picked among 6 spans" in first.evidence


def test_several_curves_are_told_apart():
    both = ls.Truncation.together(
        {"one": ls.Truncation(curve([0.3, 0.3, 0.8]), {}), "two": ls.Truncation(curve([0.8] * 3), {})}
    )
    told = [finding.text for finding in both.findings()]
    assert told[0].startswith("one: No block at the top is dispensable")
    assert any(text.startswith("two: 2 blocks of 2 at the top may be dispensable") for text in told)


def test_every_span_that_is_missed_is_said():
    spans = {(1, 1): 0.4, (2, 2): 0.5, (1, 2): 0.3}
    rows = [{"first": a, "last": b, "score": s, "low": s - 0.04, "high": s + 0.04} for (a, b), s in spans.items()]
    first = measured(pandas.DataFrame(rows).assign(whole=0.8, metric="accuracy", n=300)).findings()[0]
    assert first.text.startswith("No span of blocks can go without a loss of accuracy: every one lies clearly below")
    assert first.sure is True
    assert first.evidence == "95% intervals of the differences of 3 spans, n = 300"


def test_marks_are_of_what_cannot_be_told_from_the_whole_model():
    figure = ls.Truncation(with_differences(curve([0.3, 0.5, 0.79, 0.8])), {}).figures()[0]
    assert figure.series[0].hollow == (False, False, True, False)
    assert figure.hollow == "cannot be told from the whole model"
    assert "An empty point cannot be told from the whole model: the 95% interval" in figure.reading
    plain = ls.Truncation(curve([0.3, 0.5, 0.79, 0.8]), {}).figures()[0]  # a table of no differences
    assert plain.series[0].hollow is None
    assert "empty point" not in plain.reading
    spans = {(1, 1): 0.79, (2, 2): 0.5, (1, 2): 0.3}
    rows = [{"first": a, "last": b, "score": s, "low": s - 0.04, "high": s + 0.04} for (a, b), s in spans.items()]
    frame = pandas.DataFrame(rows).assign(whole=0.8, metric="accuracy", n=300, task="t")
    drawn = measured(frame).figures()[0]
    assert drawn.marked == ((0, 0),)
    assert "A ring marks a span without which the model cannot be told from the whole model" in drawn.reading
    assert SkipMap(frame, {}).figures()[0].marked == ()


def test_what_goes_on_from_a_cut():
    assert ls.Truncation(curve([0.3, 0.8]), {}).next_step().command == "advise"
    assert SkipMap(pandas.DataFrame(), {}).next_step().command == "advise"
    assert healing_step(ls.LayerPlan([1, 2, 5, 6]), 6).arguments == ("--without", "3-4", "-o", "healed")
    assert healing_step(ls.LayerPlan([1, 2]), 2) is None
