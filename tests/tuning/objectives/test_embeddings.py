"""Healing embedding models: the distance from the whole model's embeddings, of every text by itself."""

from types import SimpleNamespace

import numpy as np
import pytest
import torch

import layerscope as ls
from layerscope.evaluation.embedding_similarity import single_texts
from layerscope.tuning.heal import plan_healing
from tests.helpers.checkpoints import save_sentence_transformer
from tests.helpers.data import scored_pairs, three_class_task
from tests.helpers.models import small_encoder


def _job(model, task, **options):
    few = {"epochs": 1, "batch": 4, "max_length": 9}
    return plan_healing(model, ls.LayerPlan([1, 3]), task, **{**few, **options}).job


def test_both_texts_of_a_pair_are_rows():
    frame = scored_pairs(4)
    examples = ls.task(frame, text="a", text_pair="b", label="score").split()
    single = single_texts(examples)
    assert list(single.texts) == [*frame["a"], *frame["b"]]
    assert list(single.rows) == [0, 1, 2, 3] * 2
    assert single.labels is None
    assert single.pairs is None


@pytest.mark.parametrize("distance", ["cosine", "mse"])
def test_the_distance_is_that_of_sentence_embeddings(tmp_path, distance):
    folder = save_sentence_transformer(tmp_path / "model", prompt="a list: ", include_prompt=False)
    job = _job(folder, three_class_task(labels=False), distance=distance)
    model, whole = job.training_data.model, job.uncut
    rows = job.objective.rows(job.objective.scored)
    batch = job.objective.collate(model)([rows[k] for k in range(6)])
    with torch.no_grad():
        seen = job.objective.module(model, 0, True).eval()(**batch)
    own, other = (torch.from_numpy(job.objective.answers(each, 6)) for each in (model, whole))
    cosine = torch.nn.functional.cosine_similarity(own, other, dim=-1)
    expected = 1 - cosine if distance == "cosine" else (own - other).square().mean(-1)
    torch.testing.assert_close(seen["lost"], expected, rtol=1e-4, atol=1e-5)
    marks = job.objective.metrics(SimpleNamespace(predictions=(seen["logits"].numpy(), seen["lost"].numpy())))
    assert marks["score"] == pytest.approx(float(cosine.mean()), abs=1e-4)
    assert marks["held_out"] == pytest.approx(float(expected.mean()), abs=1e-4)


def test_scored_pairs_score_and_other_texts_are_compared_with_the_whole_model():
    task = ls.task({name: scored_pairs() for name in ("train", "validation")}, text="a", text_pair="b", label="score")
    job = _job(small_encoder(), task)
    score = job.objective.score(job.training_data.model, np.zeros((1, 1)))
    assert score.metric == "spearman"
    assert float(score) == pytest.approx(float(ls.evaluate(job.training_data.model, task, max_length=9)))
    texts = _job(small_encoder(), three_class_task(labels=False)).objective
    whole = texts.distillation.teacher
    assert float(texts.score(whole, texts.answers(whole))) == pytest.approx(1.0)
    smaller = texts.score(texts.model, texts.answers(texts.model))
    assert smaller.interval[0] < float(smaller) < smaller.interval[1]
    assert smaller.kind == "similarity of embeddings"
