"""Healing classifiers: labels in the head's own order, a teacher's logits, numbers, and choices that a text lacks."""

from types import SimpleNamespace

import numpy as np
import pytest
import torch

import layerscope as ls
from layerscope.tuning.heal import plan_healing
from layerscope.tuning.objectives.classification import row_losses
from tests.helpers.data import WORDS, three_class_frame, three_class_task
from tests.helpers.models import SMALL, WITHOUT_BLOCK_2, random_network, small_classifier, word_tokenizer


def test_rows_lose_against_labels_and_against_a_teacher():
    own, whole = torch.randn(5, 3, generator=torch.Generator().manual_seed(0)), torch.randn(5, 3)
    labels = torch.tensor([0, 2, 1, 1, 0])
    plain = torch.nn.functional.cross_entropy(own, labels, reduction="none")
    torch.testing.assert_close(row_losses(own, labels, None, 0.5, False), plain)
    apart = (whole.softmax(-1) * (whole.log_softmax(-1) - own.log_softmax(-1))).sum(-1)
    torch.testing.assert_close(row_losses(own, None, whole, 0.5, False), apart)
    torch.testing.assert_close(row_losses(own, labels, whole, 0.3, False), 0.3 * apart + 0.7 * plain)
    numbers = torch.tensor([0.5, 1.5, -1.0, 0.0, 2.0])
    squares = (own[:, 0] - numbers) ** 2
    torch.testing.assert_close(row_losses(own[:, :1], numbers, None, 0.5, True), squares)
    both = 0.5 * squares + 0.5 * (own[:, 0] - whole[:, 0]) ** 2
    torch.testing.assert_close(row_losses(own[:, :1], numbers, whole[:, :1], 0.5, True), both)


def _plan(model, task, **options):
    few = {"epochs": 1, "batch": 8, "max_length": 16}
    return plan_healing(model, WITHOUT_BLOCK_2, task, **{**few, **options}).job


def test_labels_are_those_of_the_heads_own_outputs():
    frame = three_class_frame(32, 0)
    named = frame.assign(label=[WORDS[k] for k in frame["label"]])
    task = ls.task({"train": named, "validation": named})
    model = small_classifier()
    names = [WORDS[2], WORDS[0], WORDS[1]]  # not in the task's order
    model.network.config.id2label = dict(enumerate(names))
    model.network.config.label2id = {name: k for k, name in enumerate(names)}
    job = _plan(model, task)
    rows = job.objective.rows(job.objective.learned)
    batch = job.objective.collate(job.training_data.model)([rows[k] for k in range(32)])
    assert [names[k] for k in batch["targets"].tolist()] == named["label"].tolist()
    answers = job.objective.answers(job.training_data.model)
    marks = job.objective.module(job.training_data.model, 0, True).eval()
    with torch.no_grad():
        seen = marks(**batch)
    prediction = SimpleNamespace(predictions=(seen["logits"].numpy(), seen["lost"].numpy()))
    expected = float(job.objective.score(job.training_data.model, answers))
    assert job.objective.metrics(prediction)["score"] == pytest.approx(expected)
    assert expected == pytest.approx(float(ls.evaluate(job.training_data.model, task, max_length=16)))


def test_without_labels_a_score_is_agreement_with_the_teacher():
    job = _plan(small_classifier(), three_class_task(labels=False), distill=True)
    whole = job.uncut
    assert float(job.objective.score(whole, job.objective.answers(whole))) == 1.0
    smaller = job.objective.score(job.training_data.model, job.objective.answers(job.training_data.model))
    assert smaller.metric == "agreement"
    assert 0 <= smaller <= 1
    assert "not beside labels" in smaller.note


def test_agreement_with_the_teacher_has_an_interval():
    model = small_classifier()
    job = plan_healing(model, ls.LayerPlan([1]), three_class_task(labels=False), distill=True, epochs=1).job
    objective = job.objective
    score = objective.score(objective.model, objective.answers(objective.model))
    assert score.interval[0] <= float(score) <= score.interval[1]
    assert score.interval[0] < score.interval[1]
    assert score.kind == "classes"


def test_choices_that_a_text_lacks_cost_nothing():
    frame = three_class_frame(12, 0)
    options = [[WORDS[(k + c) % 3] for c in range(2 + i % 2)] for i, k in enumerate(frame["label"])]
    frame = frame.assign(options=options, label=0)
    task = ls.task({"train": frame, "validation": frame}, choices="options", text="text", label="label")
    model = ls.load(random_network("bert", "choice", **SMALL), tokenizer=word_tokenizer())
    job = _plan(model, task, distill=True)
    rows = job.objective.rows(job.objective.learned)
    batch = job.objective.collate(job.training_data.model)([rows[k] for k in range(4)])
    lost = job.objective.module(job.training_data.model, 0, True).train()(**batch)["loss"]
    assert np.isfinite(float(lost))
    assert float(lost) < 100
