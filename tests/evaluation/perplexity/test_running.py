"""Running text against plain loops: windows, strides, the first token, bytes."""

import math

import numpy as np
import pandas
import pytest

import layerscope as ls
from layerscope.errors import InputError
from layerscope.evaluation.evaluate import make_evaluator
from layerscope.evaluation.perplexity import PerplexityEvaluator, first_token
from layerscope.evaluation.token_evaluator import bootstrap_of_sums
from tests.helpers.data import WORDS, random_texts, text_frame
from tests.helpers.models import LANGUAGE_CONFIGS, language_model, token_losses

FAMILIES = ("gpt2", "llama", "qwen3", *LANGUAGE_CONFIGS)


def plain(opened, texts, length, stride=None, bos=None):
    """The loop of transformers' own guide to perplexity, with a token in front of each window where `bos` is one."""
    ids = opened.tokenizer("\n\n".join(texts), add_special_tokens=False)["input_ids"]
    room = length - (bos is not None)
    losses, before = [], 0
    for begin in range(0, len(ids), stride or room):
        end = min(begin + room, len(ids))
        front = [] if bos is None else [bos]
        own = token_losses(opened, [*front, *ids[begin:end]])
        fresh = end - before
        losses += own[-fresh:].tolist() if fresh <= len(own) else own.tolist()
        before = end
        if end == len(ids):
            break
    return np.asarray(losses)


@pytest.mark.parametrize("family", FAMILIES)
def test_perplexity_is_that_of_a_plain_loop(family):
    opened, data = language_model(family), text_frame()
    score = ls.evaluate(opened, ls.task(data, kind="text"), max_length=16)
    losses = plain(opened, data["text"], 16)
    assert float(score) == pytest.approx(math.exp(losses.mean()), rel=1e-4)
    assert score.metrics["nll"] == pytest.approx(losses.mean(), abs=1e-4)
    assert score.metrics["tokens"] == len(losses)
    assert (score.metric, score.higher_is_better, score.rows_are) == ("perplexity", False, "windows")


@pytest.mark.parametrize("tokens", [16, 10**6])
@pytest.mark.parametrize(("stride", "bos"), [(4, None), (15, None), (None, "adds"), (5, "adds"), (None, "has")])
def test_strides_and_first_tokens(stride, bos, tokens):
    opened, data = language_model(bos=bos), text_frame()
    asked = {"bos": True} if bos == "has" else {}
    score = ls.evaluate(opened, ls.task(data, kind="text", stride=stride, **asked), max_length=16, batch_tokens=tokens)
    token = None if bos is None else opened.tokenizer.bos_token_id
    assert score.metrics["nll"] == pytest.approx(plain(opened, data["text"], 16, stride, token).mean(), abs=1e-4)


def test_a_metric_that_the_task_asks_for_is_taken_or_refused():
    opened, data = language_model(), text_frame()
    assert ls.evaluate(opened, ls.task(data[["text"]], metric="nll")).metric == "nll"
    for task in (ls.task(data[["text"]], metric="f1"), ls.task(data, kind="text", metric="f1")):
        with pytest.raises(InputError, match="whose answers are scored by perplexity, nll, bits_per_byte"):
            ls.evaluate(opened, task)


def test_second_texts_are_not_left_out_in_silence(caplog):
    opened, data = language_model(), text_frame()
    score = ls.evaluate(opened, ls.task(data, kind="text"))
    assert not caplog.text
    pairs = pandas.DataFrame({"sentence1": data["text"], "sentence2": data["text"][::-1]})
    assert ls.evaluate(opened, pairs) == score
    assert "have two texts, and running text has one text per row: only the first ones are read" in caplog.text


def test_a_first_token_is_put_where_the_tokenizer_does_or_where_it_is_asked_for():
    adds, has, lacks = (language_model(bos=bos) for bos in ("adds", "has", None))
    asked, never = (ls.task(text_frame(), kind="text", bos=bos).prompt_options for bos in (True, False))
    usual = ls.task(text_frame(), kind="text").prompt_options
    token = adds.tokenizer.bos_token_id
    assert [first_token(m, usual) for m in (adds, has, lacks)] == [token, None, None]
    assert [first_token(m, asked) for m in (adds, has)] == [token, token]
    assert first_token(adds, never) is None
    with pytest.raises(InputError, match="has no first token"):
        first_token(lacks, asked)


def test_a_model_that_needs_a_first_token_and_gets_none_is_warned_of(caplog):
    usual = ls.task(text_frame(), kind="text").prompt_options
    first_token(language_model("gemma3_text", bos="adds"), usual)
    first_token(language_model("llama", bos="has"), usual)
    assert not caplog.records
    first_token(language_model("gemma3_text", bos="has"), usual)
    assert "trained with a first token (BOS)" in caplog.text
    assert "--bos" in caplog.text


def test_each_text_by_itself():
    opened, data = language_model(), text_frame(least=2)
    evaluator = make_evaluator(opened, ls.task(data, kind="text", by_text=True), max_length=16)
    losses = []
    for text in data["text"]:
        ids = opened.tokenizer(text)["input_ids"]
        for k in range(0, len(ids), 16):
            losses += token_losses(opened, ids[k : k + 16]).tolist()
    assert evaluator.score(evaluator.logits()).metrics["nll"] == pytest.approx(np.mean(losses), abs=1e-4)
    assert len(set(evaluator.texts)) == len(data) < len(evaluator.examples)


def test_bits_per_byte_count_every_byte_once():
    opened = language_model(bos="adds")
    texts = ["the fïle  of thé", "日本 list"]
    whole = "\n\n".join(texts)
    for options in ({}, {"stride": 3}):
        evaluator = make_evaluator(
            opened, ls.task(pandas.DataFrame({"text": texts}), kind="text", **options), max_length=8
        )
        assert sum(piece.size for piece in evaluator._pieces) == len(whole.encode())
    score = evaluator.score(evaluator.logits())
    bits = score.metrics["nll"] * score.metrics["tokens"] / math.log(2)
    assert score.metrics["bits_per_byte"] == pytest.approx(bits / len(whole.encode()))


def test_texts_without_labels_are_running_text_to_a_language_model():
    opened, data = language_model(), text_frame()
    plain_score = ls.evaluate(opened, ls.task(data, kind="text"), max_length=16)
    assert ls.evaluate(opened, data, max_length=16) == plain_score
    with pytest.raises(InputError, match=r"gives the next token of a text\. Such a task goes with a classifier"):
        ls.evaluate(opened, data.assign(label=np.arange(len(data)) % 2))


def test_the_curve_is_the_logit_lens_and_the_map_what_is_left():
    opened, data = language_model(), ls.task(text_frame(), kind="text")
    curve = ls.truncation_curve(opened, data, max_length=16)
    for layer in (0, 2, 4):
        cut = ls.evaluate(ls.truncate(opened, layer), data, max_length=16)
        assert curve.frame["score"][layer] == pytest.approx(float(cut), rel=1e-4)
    assert "flat at the bottom" in curve.figures()[0].reading
    skips = ls.skip_map(opened, data, max_length=16, max_span=2)
    row = skips.frame.set_index(["first", "last"]).loc[(2, 3)]
    assert row["score"] == pytest.approx(float(ls.evaluate(ls.skip(opened, 2, 3), data, max_length=16)), rel=1e-4)
    assert "Dark" in skips.figures()[0].reading


def test_settings_that_leave_text_out_are_refused():
    opened, data = language_model(), text_frame()
    with pytest.raises(InputError, match="stride is 17, and a window has room for 16"):
        ls.evaluate(opened, ls.task(data, kind="text", stride=17), max_length=16)
    with pytest.raises(InputError, match="reads at most 80 tokens"):
        ls.evaluate(opened, ls.task(data, kind="text"), max_length=81)
    with pytest.raises(InputError, match="too few tokens"):
        ls.evaluate(opened, pandas.DataFrame({"text": ["a"]}))
    with pytest.raises(InputError, match="accuracy is not a metric of"):
        ls.evaluate(opened, data, metric="accuracy")


def test_for_states_a_row_is_a_text():
    opened, data = language_model(), ls.task(text_frame(), kind="text")
    assert len(ls.extract(opened, data, pool="last")) == 12


def test_windows_are_kept_by_what_they_are_made_of():
    opened = language_model()
    keys = [
        str(make_evaluator(opened, ls.task(text_frame(), kind="text", **options), max_length=length).spec())
        for options, length in (({}, 16), ({}, 12), ({"stride": 4}, 16), ({"by_text": True}, 16))
    ]
    assert len(set(keys)) == 4
    assert isinstance(make_evaluator(opened, ls.task(text_frame(), kind="text")), PerplexityEvaluator)


def test_some_windows_are_scored_as_they_are_among_all():
    evaluator = make_evaluator(language_model(), ls.task(text_frame(12, least=8), kind="text"), max_length=16)
    answers = evaluator.logits()
    some = evaluator.subset([3, 1, 2])
    np.testing.assert_allclose(some.logits(), answers[[3, 1, 2]], rtol=1e-5)
    assert some.measured(some.logits(), np.arange(3)) == pytest.approx(
        evaluator.measured(answers, np.asarray([3, 1, 2]))
    )
    assert some.texts.tolist() == evaluator.texts[[3, 1, 2]].tolist()


def long_texts(count=12, words=40):
    return pandas.DataFrame({"text": [" ".join([WORDS[k % len(WORDS)]] * words) for k in range(count)]})


@pytest.mark.parametrize(("stride", "bos"), [(None, None), (5, None), (None, "adds"), (7, "adds")])
def test_a_window_knows_the_text_in_which_what_is_new_in_it_begins(stride, bos):
    opened, texts = language_model(bos=bos), random_texts(30)
    task = ls.task(pandas.DataFrame({"text": texts}), kind="text", stride=stride)
    evaluator = make_evaluator(opened, task, max_length=16)
    joined = "\n\n".join(texts)
    spans = opened.tokenizer(joined, add_special_tokens=False, return_offsets_mapping=True)["offset_mapping"]
    room = 16 - (bos is not None)
    begins = [0, *range(room, len(spans), stride or room)]
    wanted = [joined[: spans[begin][0]].count("\n\n") for begin in begins]
    assert evaluator.texts.tolist() == wanted[: len(evaluator.examples)]
    assert len(set(wanted)) > 10


def test_windows_of_one_text_are_resampled_together():
    opened, data = language_model(), long_texts()
    evaluator = make_evaluator(opened, ls.task(data, kind="text"), max_length=10)
    assert len(evaluator.examples) > 3 * len(set(evaluator.texts)) == 36
    answers = np.zeros((len(evaluator.examples), 3))
    answers[:, 0], answers[:, 2] = 9 * (2 + 0.1 * (evaluator.texts % 2)), 9  # all windows of a text have one loss
    low, high = evaluator.interval(answers)
    again = bootstrap_of_sums(answers, evaluator.texts, lambda sums: math.exp(sums[0] / sums[2]), overlap=True)
    assert (low, high) == pytest.approx(again)
    alone = bootstrap_of_sums(answers, np.arange(len(answers)), lambda sums: math.exp(sums[0] / sums[2]))
    assert high - low > 1.6 * (alone[1] - alone[0])
    loss, weight = evaluator.losses(answers, np.arange(len(answers)))
    assert len(loss) == len(weight) == 12
    assert evaluator.resampled() == ""


@pytest.mark.parametrize(
    ("data", "why"), [(long_texts(1, 400), "all of them are of one text"), (long_texts(3), "their 3 texts are too few")]
)
def test_where_texts_are_too_few_windows_are_resampled_and_the_score_says_so(data, why, tmp_path):
    model = language_model()
    score = ls.evaluate(model, ls.task(data, kind="text"), max_length=10)
    assert score.interval[0] <= float(score) <= score.interval[1]
    assert why in score.interval_note
    assert any(f"Intervals are over windows, since {why}" in str(finding) for finding in score.findings())
    assert f"over windows, since {why}" in (ls.save(model, tmp_path / "saved", scores=score) / "README.md").read_text()
    curve = ls.truncation_curve(model, ls.task(data, kind="text"), max_length=10)
    assert any(why in str(finding) for finding in curve.findings())


def test_one_text_among_short_ones_counts_as_what_it_is():
    data = pandas.concat([long_texts(1, 2000), text_frame(20, most=4)])
    score = ls.evaluate(language_model(), ls.task(data, kind="text"), max_length=16)
    assert "too few, or too unequal" in score.interval_note


def test_a_tokenizer_that_gives_no_places_has_windows_by_themselves(monkeypatch):
    monkeypatch.setattr(
        "layerscope.evaluation.perplexity.tokens_of",
        lambda model, text: (np.asarray(model.tokenizer(text, add_special_tokens=False)["input_ids"]), None),
    )
    evaluator = make_evaluator(language_model(), ls.task(long_texts(), kind="text"), max_length=10)
    assert evaluator.units().tolist() == list(range(len(evaluator.examples)))
    assert "the tokenizer does not tell" in evaluator.resampled()


def test_texts_are_dealt_out_first_and_joined_within_their_parts():
    model, data = language_model(), text_frame(30, least=5)
    evaluator = make_evaluator(model, ls.task(data, kind="text"), max_length=16)
    parts = np.arange(30) % 4 - 1  # a quarter is left out
    dealt, of_rows = evaluator.dealt(parts)
    for part in range(3):
        rows = np.flatnonzero(of_rows == part)
        assert dealt.made_of(rows).tolist() == np.flatnonzero(parts == part).tolist()
        ids = np.concatenate([dealt.encoded()[row].ids for row in rows.tolist()])
        joined = "\n\n".join(data["text"][parts == part])
        assert ids.tolist() == model.tokenizer(joined, add_special_tokens=False)["input_ids"]
        assert set(parts[dealt.texts[rows]]) == {part}
    assert str(dealt.spec()) != str(evaluator.spec())
    same, _ = evaluator.dealt(np.zeros(30, np.int64))
    assert str(same.spec()) == str(evaluator.spec())


def test_one_window_has_no_interval():
    task = ls.task(text_frame(2, most=4), kind="text")
    curve = ls.truncation_curve(language_model(), task).frame
    assert (curve["n"] == 1).all()
    assert curve["score"].notna().all()
    assert curve[["low", "high"]].isna().all(axis=None)
    score = ls.evaluate(language_model(), task)
    assert math.isnan(score.interval[0])
    assert score.interval_note == "one window alone cannot be resampled"
