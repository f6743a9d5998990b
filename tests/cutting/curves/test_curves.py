"""The truncation curve and the skip map against really cutting the model and evaluating each."""

import numpy as np
import pandas
import pytest

import layerscope as ls
from layerscope.cutting.plan import LayerPlan
from layerscope.cutting.sweep import sweep
from layerscope.errors import InputError
from layerscope.evaluation.evaluate import make_evaluator
from layerscope.tuning.objectives.base import gain_between
from tests.helpers.data import labelled_frame, text_frame
from tests.helpers.models import random_classifier, random_network, small_decoder, word_tokenizer


def test_the_curve_has_what_it_says():
    opened = random_classifier("bert")
    frame = ls.truncation_curve(opened, labelled_frame()).frame
    assert list(frame["layer"]) == [0, 1, 2, 3, 4]
    assert frame["score"][4] == ls.evaluate(opened, labelled_frame())
    assert frame["majority"].unique() == pytest.approx(14 / 40)
    for layer in range(5):
        assert frame["parameters"][layer] == sum(p.numel() for p in ls.truncate(opened, layer).parameters())
    steps = np.diff(frame["macs"])
    assert (steps == steps[0]).all()
    d, inner, t = 32, 48, 80  # attention projections, scores and values, feed-forward
    assert steps[0] == t * (4 * d * d + 2 * d * inner) + 2 * t * t * d
    with pytest.raises(InputError, match="There is no mode 'other'"):
        ls.truncation_curve(opened, labelled_frame(), mode="other")


def test_spans_are_limited():
    frame = ls.skip_map(random_classifier("bert"), labelled_frame(), max_span=2).frame
    assert list(zip(frame["first"], frame["last"], strict=True)) == [
        (1, 1),
        (1, 2),
        (2, 2),
        (2, 3),
        (3, 3),
        (3, 4),
        (4, 4),
    ]
    with pytest.raises(InputError, match="max_span is 9"):
        ls.skip_map(random_classifier("bert"), labelled_frame(), max_span=9)
    with pytest.raises(InputError, match=r"max_span is 1\.5"):
        ls.skip_map(random_classifier("bert"), labelled_frame(), max_span=1.5)


def test_a_number_read_from_summary_tokens_at_layer_0_has_no_correlation():
    opened = ls.load(random_network("bert", labels=1), tokenizer=word_tokenizer())
    texts = ["the list of this file " * (i % 7 + 1) for i in range(60)]
    frame = ls.truncation_curve(opened, pandas.DataFrame({"text": texts, "label": [i / 9 for i in range(60)]})).frame
    assert frame["score"].isna().tolist() == [True, False, False, False, False]
    assert np.isnan(frame["low"][0])


@pytest.mark.slow
def test_a_real_tuned_model(tuned_minilm):
    """MiniLM tuned on pydocs: the curve and the map agree with brute force, and the top block can go."""
    opened = ls.load(tuned_minilm)
    curve = ls.truncation_curve(opened, "pydocs", limit=200).frame
    assert curve["score"][6] > curve["majority"][6] + 0.15
    for layer in (0, 2, 5):
        assert ls.evaluate(ls.truncate(opened, layer), "pydocs", limit=200) == curve["score"][layer]
    spans = ls.skip_map(opened, "pydocs", limit=200, max_span=2).frame
    for row in spans.iloc[[0, 4, 9]].itertuples():
        assert ls.evaluate(ls.skip(opened, row.first, row.last), "pydocs", limit=200) == row.score


def test_texts_that_are_cut_off_are_counted_once_and_from_the_store_too(caplog):
    model = ls.load(random_network("bert"), tokenizer=word_tokenizer())
    texts = ["the list of this file " * 8 if i < 7 else "the file" for i in range(30)]
    data = pandas.DataFrame({"text": texts, "label": [i % 3 for i in range(30)]})
    for _ in range(2):
        caplog.clear()
        ls.truncation_curve(model, data, max_length=16)
        said = [r.getMessage() for r in caplog.records if "cut off" in r.getMessage()]
        assert said == ["7 of 30 texts of table are cut off at 16 tokens."]


def test_a_damaged_window_of_an_earlier_try_is_made_again(tmp_path):
    from layerscope.cutting.sweep import Sweep

    evaluator = make_evaluator(random_classifier("bert"), ls.task(labelled_frame()))
    sweep = Sweep(evaluator, [ls.LayerPlan([1, 2])], "cuts")
    sweep.build(tmp_path)
    (shard,) = tmp_path.glob("shard-*")
    whole = shard.read_bytes()
    shard.write_bytes(whole[:-4] + b"1234")
    sweep.build(tmp_path)
    assert shard.read_bytes() == whole


def test_scores_have_intervals_and_what_they_are_without_groups_of_texts():
    opened = random_classifier("bert")
    for result in (ls.truncation_curve(opened, labelled_frame()), ls.skip_map(opened, labelled_frame(), max_span=2)):
        frame = result.frame
        assert (frame["low"] <= frame["score"]).all()
        assert (frame["score"] <= frame["high"]).all()
        assert (frame["high"] > frame["low"]).any()
        assert result.left_out.shape == (20, len(frame))
        np.testing.assert_allclose(result.left_out.mean(axis=0), frame["score"])  # accuracy: groups are of one size
    drawn = ls.truncation_curve(opened, labelled_frame()).figures()[0].series[0]
    assert drawn.low is not None


def checked_differences(result, evaluator, answers, whole):
    """Every row's difference from the whole model, against what each pair of models answers to each row."""
    frame, sign = result.frame, -1 if evaluator.metric == "perplexity" else 1
    best = evaluator.value(whole)
    for row, part in zip(frame.to_dict("records"), answers, strict=True):
        assert row["over_whole"] == pytest.approx(sign * (evaluator.value(part) - best))
        expected = gain_between(evaluator, whole, part)
        assert (row["over_whole_low"], row["over_whole_high"]) == pytest.approx((expected.low, expected.high))
        assert row["over_whole_low"] <= row["over_whole"] <= row["over_whole_high"]


@pytest.mark.parametrize("language", [False, True])
def test_every_cut_is_compared_with_the_whole_model_row_by_row(language):
    data = ls.task(text_frame(40, least=10), kind="text") if language else ls.task(labelled_frame())
    model = small_decoder() if language else random_classifier("bert")
    options = {"max_length": 16}
    curve, skips = ls.truncation_curve(model, data, **options), ls.skip_map(model, data, max_span=1, **options)
    evaluator = make_evaluator(model, data, **options)
    depth = model.depth
    cuts = [LayerPlan.truncated(depth, layer) for layer in range(depth + 1)]
    *answers, whole = sweep(evaluator, cuts, "cuts")
    top = curve.frame.iloc[-1]
    assert top["over_whole"] == 0
    assert np.isnan([top["over_whole_low"], top["over_whole_high"]]).all()
    checked_differences(ls.Truncation(curve.frame.iloc[:-1], {}), evaluator, answers, whole)
    spans = [LayerPlan.skipped(depth, block, block) for block in range(1, depth + 1)]
    checked_differences(skips, evaluator, sweep(evaluator, spans, "skips"), whole)
    assert not np.isnan(skips.frame["over_whole_low"]).any()
