"""Taggers: words by their first sub-word, tags by their names."""

import numpy as np
import pandas
import pytest
import torch

import layerscope as ls
from layerscope.errors import InputError
from layerscope.evaluation.evaluate import make_evaluator
from tests.helpers.data import random_texts
from tests.helpers.models import random_network, word_tokenizer

NAMES = ("DET", "NOUN", "VERB")


def table(count=12):
    words = [text.split() for text in random_texts(count)]
    words[0] = ["listing", "strings", "of", "filed"]  # several sub-words each
    return pandas.DataFrame(
        {"words": words, "pos": [[NAMES[(len(w) + k) % 3] for k, w in enumerate(r)] for r in words]}
    )


def task():
    return ls.task(table(), tags="pos")


def model(family="bert", names=("VERB", "DET", "NOUN")):
    network = random_network(family, "tags", labels=3)
    network.config.id2label = dict(enumerate(names))
    return ls.load(network, tokenizer=word_tokenizer(family))


@pytest.mark.parametrize("family", ["bert", "roberta", "deberta-v2"])
def test_accuracy_over_words(family):
    opened = model(family)
    right = []
    for row in table().itertuples():
        batch = opened.tokenizer(" ".join(row.words), return_tensors="pt", return_offsets_mapping=True)
        offsets = batch.pop("offset_mapping")[0].tolist()
        with torch.inference_mode():
            logits = opened.network(**batch).logits[0]
        starts = np.cumsum([0] + [len(word) + 1 for word in row.words[:-1]])
        for start, tag in zip(starts, row.pos, strict=True):
            place = next(i for i, (a, b) in enumerate(offsets) if a == start and b > a)
            right.append(opened.network.config.id2label[int(logits[place].argmax())] == tag)
    evaluator = make_evaluator(opened, task(), batch_tokens=50)
    score = evaluator.score(evaluator.logits())
    assert float(score) == pytest.approx(np.mean(right))
    assert score.metrics["words"] == len(right)
    assert (score.metric, score.higher_is_better) == ("accuracy", True)
    tags = np.concatenate([NAMES.index(t) * np.ones(1, int) for row in table()["pos"] for t in row])
    assert score.majority == pytest.approx(np.bincount(tags).max() / len(tags))


def test_a_metric_that_the_task_asks_for_is_taken_or_refused():
    score = ls.evaluate(model(), ls.task(table(), tags="pos", metric="nll"))
    assert (score.metric, float(score)) == ("nll", score.metrics["nll"])
    with pytest.raises(InputError, match="whose answers are scored by accuracy, nll"):
        ls.evaluate(model(), ls.task(table(), tags="pos", metric="f1"))


def test_words_that_are_cut_off_count_neither_in_the_score_nor_in_the_majority():
    frame = pandas.DataFrame({"words": [["the", "file"] + ["list"] * 20], "pos": [["DET", "NOUN"] + ["VERB"] * 20]})
    score = ls.evaluate(model(), ls.task(frame, tags="pos"), max_length=4)
    assert score.metrics["words"] == 2
    assert score.majority == 0.5


def test_a_cut_tagger_scores_as_the_curve_says():
    opened = model()
    curve = ls.truncation_curve(opened, task()).frame
    assert curve["score"][2] == float(ls.evaluate(ls.truncate(opened, 2), task()))


def test_tags_need_a_tagger_and_its_names():
    with pytest.raises(InputError, match=r"has a tag for every word, and .* Such a task goes with a model for token"):
        ls.evaluate(ls.load(random_network("bert"), tokenizer=word_tokenizer()), task())
    with pytest.raises(InputError, match="Which is which is not guessed"):
        ls.evaluate(model(names=("A", "B", "C")), task())
    with pytest.raises(InputError, match="has no labels, so there is nothing to learn"):
        ls.tune(model(), task(), max_steps=1)
