"""Embedding models on scored pairs: bare encoders, and folders of sentence-transformers."""

import numpy as np
import pandas
import pytest
import torch
from scipy.stats import pearsonr, spearmanr

import layerscope as ls
from layerscope.errors import InputError
from layerscope.evaluation.evaluate import make_evaluator
from tests.helpers.checkpoints import save_sentence_transformer
from tests.helpers.data import random_texts
from tests.helpers.models import random_network, word_tokenizer


def pairs(count=20):
    labels = np.random.default_rng(0).uniform(0, 5, count).round(2)
    columns = {"sentence1": random_texts(count), "sentence2": random_texts(count, seed=1), "score": labels}
    return pandas.DataFrame(columns)


def task(**options):
    return ls.task(pairs(), label="score", **options)


def cosines(opened, pool):
    found = []
    for row in pairs().itertuples():
        vectors = []
        for text in (row.sentence1, row.sentence2):
            with torch.inference_mode():
                states = opened.network(**opened.tokenizer(text, return_tensors="pt")).last_hidden_state[0]
            vectors.append({"mean": states.mean(0), "cls": states[0], "last": states[-1]}[pool])
        found.append(float(torch.nn.functional.cosine_similarity(*vectors, dim=0)))
    return np.asarray(found)


@pytest.mark.parametrize("pool", ["mean", "cls", "last"])
@pytest.mark.parametrize("family", ["bert", "llama"])
def test_the_order_of_cosines(family, pool):
    opened = ls.load(random_network(family, "encoder"), tokenizer=word_tokenizer(family))
    evaluator = make_evaluator(opened, task(embedding=None if pool == "mean" else pool), batch_tokens=60)
    answers = evaluator.logits()
    np.testing.assert_allclose(answers[:, 0], cosines(opened, pool), rtol=1e-4, atol=1e-5)
    score = evaluator.score(answers)
    assert float(score) == pytest.approx(spearmanr(answers[:, 0], pairs()["score"])[0])
    assert score.metrics["pearson"] == pytest.approx(pearsonr(answers[:, 0], pairs()["score"])[0], abs=1e-6)
    assert score.metric == "spearman"


def test_score_by_layer_is_that_of_the_cut_model():
    opened = ls.load(random_network("bert", "encoder"), tokenizer=word_tokenizer())
    curve = ls.truncation_curve(opened, task()).frame
    assert curve["score"][2] == pytest.approx(float(ls.evaluate(ls.truncate(opened, 2), task())), abs=1e-6)
    assert curve["majority"].isna().all()


def test_other_tasks_need_a_head():
    opened = ls.load(random_network("bert", "encoder"), tokenizer=word_tokenizer())
    classes = pairs().assign(score=np.arange(20) % 2)
    with pytest.raises(InputError, match="goes with pairs with a number as their label"):
        ls.evaluate(opened, ls.task(classes, label="score"))


def test_sentence_transformers_gives_the_same_score(tmp_path):
    library = pytest.importorskip("sentence_transformers", reason="sentence-transformers is not installed")
    whole = save_sentence_transformer(tmp_path / "whole", prompt="the list ", include_prompt=False)
    folder = ls.save(ls.truncate(whole, 3), tmp_path / "small")
    theirs = library.SentenceTransformer(str(folder), device="cpu")
    first, second = (theirs.encode(list(pairs()[name])) for name in ("sentence1", "sentence2"))
    expected = (first * second).sum(1) / np.linalg.norm(first, axis=1) / np.linalg.norm(second, axis=1)
    evaluator = make_evaluator(ls.load(folder), task())
    np.testing.assert_allclose(evaluator.logits()[:, 0], expected, rtol=1e-4, atol=1e-5)
