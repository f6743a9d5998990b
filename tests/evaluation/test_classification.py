"""Heads with one answer for a text, against a plain loop, and the order of labels."""

import numpy as np
import pandas
import pytest
import torch
from scipy.stats import pearsonr, spearmanr

import layerscope as ls
from layerscope.errors import DataError, InputError, LayerscopeWarning, ModelError
from layerscope.evaluation.evaluate import make_evaluator
from layerscope.models.replay import caches_off
from tests.helpers.models import CONFIGS, FAMILIES, VOCABULARY, random_network, word_tokenizer

WORDS = ["file", "list", "value", "return", "object", "string", "and", "the", "of", "in", "this", "that", "not"]


def texts(count=40, seed=0):
    generator = np.random.default_rng(seed)
    return [" ".join(generator.choice(WORDS, size=generator.integers(1, 12))) for _ in range(count)]


def table(classes=3, **columns):
    return pandas.DataFrame({"text": texts(), "label": np.arange(40) % classes, **columns})


def model(family="bert", kind="classifier", **options):
    return ls.load(random_network(family, kind, **options), tokenizer=word_tokenizer(family))


@torch.inference_mode()
def plain(opened, frame):
    """One text at a time, no padding."""
    found = []
    with caches_off(opened.network):
        for row in frame.itertuples():
            pair = getattr(row, "pair", None)
            batch = opened.tokenizer(row.text, pair, return_tensors="pt")
            found.append(opened.network(**batch).logits[0].numpy())
    return np.stack(found)


@pytest.mark.parametrize("tokens", [8, 60, 10**6])
@pytest.mark.parametrize("family", FAMILIES)
def test_every_family_gives_what_it_gives_one_text_at_a_time(family, tokens):
    opened, frame = model(family), table(pair=texts(seed=1))
    found = make_evaluator(opened, ls.task(frame, text_pair="pair"), batch_tokens=tokens)
    np.testing.assert_allclose(found.logits(), plain(opened, frame), rtol=1e-3, atol=1e-4)


def test_evaluate_is_the_metric_of_the_predictions():
    opened, frame = model(), table()
    assert ls.evaluate(opened, frame) == pytest.approx((plain(opened, frame).argmax(1) == frame["label"]).mean())


def test_f1_is_the_mean_over_the_tasks_classes_whichever_the_scored_rows_have():
    opened, frame = model(), table()
    some = frame[plain(opened, frame).argmax(1) == 0][:3].assign(label=[0, 1, 0])
    assert len(some) == 3
    score = ls.evaluate(opened, {"train": frame, "validation": some}, metric="f1")
    assert score == pytest.approx((0.8 + 0) / 2)  # of class 1 alone it would be 0
    assert score.majority == score


@pytest.mark.parametrize("metric", ["pearson", "perplexity", "acc"])
def test_a_metric_that_does_not_fit_classes_is_refused(metric):
    message = f"{metric} was asked for, and the labels of table are classes, which are scored by accuracy, f1, matthews"
    with pytest.raises(InputError, match=message):
        ls.evaluate(model(), table(), metric=metric)
    with pytest.raises(InputError, match=message):
        ls.evaluate(model(), ls.task(table(), metric=metric))


def test_a_metric_that_does_not_fit_numbers_is_refused():
    opened, frame = model(labels=1), table().assign(label=np.linspace(0, 1, 40))
    with pytest.raises(InputError, match="accuracy was asked for, and the labels of table are numbers"):
        ls.evaluate(opened, frame, metric="accuracy")
    assert ls.evaluate(opened, frame, metric="pearson").metric == "pearson"


def test_without_a_padding_token_texts_go_one_by_one():
    opened = model("gpt2")
    opened.network.config.pad_token_id = None
    np.testing.assert_allclose(make_evaluator(opened, table()).logits(), plain(opened, table()), rtol=1e-3, atol=1e-4)
    assert ls.evaluate(ls.truncate(opened, 2), table()) == ls.truncation_curve(opened, table()).frame["score"][2]


def named(names):
    network = random_network("bert")
    network.config.id2label = dict(enumerate(names))
    return ls.load(network, tokenizer=word_tokenizer())


def test_classes_are_matched_by_name():
    frame = table().assign(label=[["no", "maybe so", "yes"][i % 3] for i in range(40)])
    task = ls.task(frame)
    assert task.label_names == ("maybe so", "no", "yes")
    plain_order = make_evaluator(named(["LABEL_0", "LABEL_1", "LABEL_2"]), task).logits()
    permuted = make_evaluator(named(["Yes", "MAYBE_SO", "no"]), task).logits()
    np.testing.assert_array_equal(permuted, plain_order[:, [1, 2, 0]])
    with pytest.raises(InputError, match="Which is which is not guessed"):
        make_evaluator(named(["up", "down", "yes"]), task)


@pytest.mark.parametrize("family", ["bert", "xlnet", "modernbert"])
def test_multiple_choice_with_varying_numbers_of_choices(family):
    generator = np.random.default_rng(0)
    choices = [list(generator.choice(WORDS, size=generator.integers(2, 5))) for _ in range(30)]
    frame = pandas.DataFrame({"text": texts(30), "options": choices, "label": [i % 2 for i in range(30)]})
    opened = model(family, "choice")
    found = make_evaluator(opened, ls.task(frame, choices="options", text="text", label="label"), batch_tokens=64)
    logits = found.logits()
    with torch.inference_mode(), caches_off(opened.network):
        for i, (text, options) in enumerate(zip(frame["text"], choices, strict=True)):
            batch = [opened.tokenizer(text, option, return_tensors="pt") for option in options]
            expected = [float(opened.network(**{k: v[None] for k, v in one.items()}).logits[0, 0]) for one in batch]
            np.testing.assert_allclose(logits[i, : len(options)], expected, rtol=1e-3, atol=1e-4)
            assert np.isneginf(logits[i, len(options) :]).all()
    assert found.score(logits) == pytest.approx((logits.argmax(1) == frame["label"]).mean())


def test_regression():
    frame = table().assign(label=np.random.default_rng(0).normal(size=40))
    opened = model(labels=1)
    predictions = plain(opened, frame)[:, 0]
    expected = (pearsonr(predictions, frame["label"])[0] + spearmanr(predictions, frame["label"])[0]) / 2
    assert ls.evaluate(opened, frame) == pytest.approx(expected, abs=1e-4)
    with torch.no_grad():
        opened.network.classifier.weight.zero_()
    reason = "pearson_spearman is undefined: every prediction or every label is the same"
    with pytest.warns(LayerscopeWarning, match=reason):
        score = ls.evaluate(opened, frame)
    assert np.isnan(score)
    assert reason in score.note  # which goes into figures, records and cards
    assert reason in str(score.findings()[0])


def test_mistakes_are_sentences():
    with pytest.raises(ModelError, match="bare encoder"):
        ls.evaluate(model(kind="encoder"), table())
    with pytest.raises(DataError, match="no labels"):
        ls.evaluate(model(), table().drop(columns="label"))
    with pytest.raises(InputError, match=r"has 2 classes, and the head of .* has 3 outputs"):
        ls.evaluate(model(), table(2))
    with pytest.raises(InputError, match=r"has one text per row, and .* gives one of several choices"):
        ls.evaluate(model(kind="choice"), table())
    with pytest.raises(InputError, match="table has a number as its label"):
        ls.evaluate(model(), table().assign(label=0.5))
    several = model()
    several.network.config.problem_type = "multi_label_classification"
    with pytest.raises(InputError, match="several labels per text"):
        ls.evaluate(several, table())


def test_outputs_that_are_no_numbers_have_no_score():
    broken = model()
    with torch.no_grad():
        broken.network.bert.encoder.layer[2].output.dense.weight[0] = float("nan")
    for act in (ls.evaluate, ls.truncation_curve, ls.skip_map):
        with pytest.raises(ModelError, match="are not finite for some texts of table"):
            act(broken, table())


def unrecorded(family, **changes):
    """A classifier of a family without a record."""
    from transformers import AutoConfig, AutoModelForSequenceClassification

    sizes = {**CONFIGS["llama"], "num_hidden_layers": 3, "vocab_size": len(VOCABULARY), "num_labels": 3}
    torch.manual_seed(0)
    net = AutoModelForSequenceClassification.from_config(AutoConfig.for_model(family, **{**sizes, **changes})).eval()
    return ls.load(net, tokenizer=word_tokenizer("llama"))


@pytest.mark.parametrize("pad", [-1, None])
@pytest.mark.parametrize("family", ["llama", "gpt2", "qwen3", "mistral", "opt", "gpt_neox"])
def test_no_padding_token_and_a_negative_one_never_let_the_head_read_padding(family, pad):
    if family in FAMILIES:
        opened = model(family)
        opened.network.config.pad_token_id = pad
    else:
        opened = unrecorded(family, pad_token_id=pad)
    np.testing.assert_allclose(make_evaluator(opened, table()).logits(), plain(opened, table()), rtol=1e-3, atol=1e-4)
    curve = ls.truncation_curve(opened, table()).frame["score"]
    assert curve.iloc[-1] == ls.evaluate(opened, table())


def test_a_classifier_of_an_unrecorded_encoder_needs_no_padding_token():
    opened = unrecorded("mpnet", pad_token_id=None)
    found = make_evaluator(opened, table()).logits()
    np.testing.assert_allclose(found, plain(opened, table()), rtol=1e-3, atol=1e-4)


@pytest.mark.parametrize("summary", ["first", "mean", "last", "cls_index"])
def test_padding_follows_from_what_the_head_reads(summary):
    opened = model("xlnet", summary_type=summary)
    np.testing.assert_allclose(make_evaluator(opened, table()).logits(), plain(opened, table()), rtol=1e-3, atol=1e-4)


def test_outputs_without_names_are_taken_in_sorted_order_with_a_warning(caplog):
    frame = table().assign(label=[["no", "maybe", "yes"][i % 3] for i in range(40)])
    default = named(["LABEL_0", "LABEL_1", "LABEL_2"])
    ls.evaluate(default, frame)
    assert "LABEL_0 is maybe, LABEL_1 is no, LABEL_2 is yes" in caplog.text
    assert "--labels" in caplog.text
    caplog.clear()
    told = make_evaluator(default, ls.task(frame, labels=["yes", "no", "maybe"]))
    assert told.outputs.tolist() == [2, 1, 0]
    assert make_evaluator(
        named(["up", "down", "so"]), ls.task(frame, labels=["yes", "no", "maybe"])
    ).outputs.tolist() == [
        2,
        1,
        0,
    ]
    ls.evaluate(default, table())  # classes 0, 1, 2 are in order
    ls.evaluate(named(["yes", "no", "maybe"]), frame)
    assert not caplog.text
    with pytest.raises(InputError, match=r"names yes, no, and table has the classes maybe, no, yes"):
        ls.evaluate(default, ls.task(frame, labels=["yes", "no"]))
    with pytest.raises(InputError, match=r"its head calls them yes, no, maybe; leave it out"):
        ls.evaluate(named(["yes", "no", "maybe"]), ls.task(frame, labels=["no", "yes", "maybe"]))


def test_exact_names_come_first(caplog):
    frame = table().assign(label=[f"LABEL_{i % 3}" for i in range(40)])
    assert make_evaluator(named(["LABEL_2", "LABEL_1", "LABEL_0"]), frame).outputs.tolist() == [2, 1, 0]
    with pytest.raises(InputError, match="Which is which is not guessed"):
        make_evaluator(named(["LABEL_2", "LABEL_1", "LABEL_0"]), table())
    frame = table().assign(label=[["Polish", "polish", "Dutch"][i % 3] for i in range(40)])
    assert make_evaluator(named(["polish", "Dutch", "Polish"]), frame).outputs.tolist() == [1, 2, 0]
    with pytest.raises(InputError, match="Which is which is not guessed"):
        make_evaluator(named(["polish", "Dutch", "POLISH"]), frame)
    assert not caplog.text


def test_a_perfect_model_with_default_names_is_perfect_when_the_order_is_named():
    frame, opened = table(), named(["LABEL_0", "LABEL_1", "LABEL_2"])
    names = ["neutral", "good", "bad"]  # in the head's order
    frame["label"] = [names[i] for i in plain(opened, frame).argmax(1)]
    if frame["label"].nunique() < 3:
        frame.loc[:2, "label"] = names
    assert ls.evaluate(opened, ls.task(frame, labels=names)) > ls.evaluate(opened, frame)
