"""Healing embedding models: the distance from the whole model's embeddings, of every text by itself."""

from types import SimpleNamespace

import embedding_folder
import healed
import numpy as np
import pytest
import torch

import layerscope as ls
from layerscope.tuning.aims.embeddings import single_texts
from layerscope.tuning.healing import plan_healing


def _job(model, task, **options):
    few = {"epochs": 1, "batch": 4, "max_length": 9}
    return plan_healing(model, ls.LayerPlan([1, 3]), task, **{**few, **options}).job


def test_both_texts_of_a_pair_are_rows():
    frame = healed.pairs(4)
    examples = ls.task(frame, text="a", text_pair="b", label="score").split()
    single = single_texts(examples)
    assert list(single.texts) == [*frame["a"], *frame["b"]]
    assert list(single.rows) == [0, 1, 2, 3] * 2
    assert single.labels is None
    assert single.pairs is None


@pytest.mark.parametrize("distance", ["cosine", "mse"])
def test_the_distance_is_that_of_sentence_embeddings(tmp_path, distance):
    folder = embedding_folder.make(tmp_path / "model", prompt="a list: ", include_prompt=False)
    job = _job(folder, healed.labelled(labels=False), distance=distance)
    model, whole = job.lesson.model, job.uncut
    rows = job.aim.rows(job.aim.scored)
    batch = job.aim.collate(model)([rows[k] for k in range(6)])
    with torch.no_grad():
        seen = job.aim.module(model, 0, True).eval()(**batch)
    own, other = (torch.from_numpy(job.aim.answers(each, 6)) for each in (model, whole))
    cosine = torch.nn.functional.cosine_similarity(own, other, dim=-1)
    expected = 1 - cosine if distance == "cosine" else (own - other).square().mean(-1)
    torch.testing.assert_close(seen["lost"], expected, rtol=1e-4, atol=1e-5)
    marks = job.aim.metrics(SimpleNamespace(predictions=(seen["logits"].numpy(), seen["lost"].numpy())))
    assert marks["score"] == pytest.approx(float(cosine.mean()), abs=1e-4)
    assert marks["held_out"] == pytest.approx(float(expected.mean()), abs=1e-4)


def test_scored_pairs_score_and_other_texts_are_compared_with_the_whole_model():
    task = ls.task({name: healed.pairs() for name in ("train", "validation")}, text="a", text_pair="b", label="score")
    job = _job(healed.encoder(), task)
    score = job.aim.score(job.lesson.model, np.zeros((1, 1)))
    assert score.metric == "spearman"
    assert float(score) == pytest.approx(float(ls.evaluate(job.lesson.model, task, max_length=9)))
    texts = _job(healed.encoder(), healed.labelled(labels=False)).aim
    whole = texts.teaching.teacher
    assert float(texts.score(whole, texts.answers(whole))) == pytest.approx(1.0)
