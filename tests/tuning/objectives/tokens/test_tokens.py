"""Healing token by token: the loss is the network's own, and what is scored is what an exam scores."""

from types import SimpleNamespace

import numpy as np
import pytest
import torch

from layerscope.evaluation.evaluate import make_evaluator
from layerscope.tuning.heal import plan_healing
from layerscope.tuning.objectives.tokens import TARGETS, TokenHealing
from tests.helpers.data import running_task
from tests.helpers.models import FEW_STEPS, WITHOUT_BLOCK_2, small_decoder, small_masked


def planned(model, task=None, **options):
    return plan_healing(model, WITHOUT_BLOCK_2, task or running_task(), **{**FEW_STEPS, **options}).job


def batch_of(job, part=None, count=4):
    part = job.objective.learned if part is None else part
    rows = job.objective.rows(part)
    return job.objective.collate(job.training_data.model)([rows[k] for k in range(count)])


def test_the_loss_of_running_text_is_that_of_the_network_itself():
    job = planned(small_decoder())
    model = job.training_data.model
    module = TokenHealing(model, 0, True).train()
    batch = batch_of(job)
    ids = batch["input_ids"]
    assert "attention_mask" not in batch  # windows are full
    expected = model.network(input_ids=ids, labels=ids, use_cache=False).loss
    loss = module(**dict(batch))["loss"]
    torch.testing.assert_close(loss, expected, rtol=1e-5, atol=1e-6)
    names, parameters = zip(*model.network.named_parameters(), strict=True)
    got = torch.autograd.grad(loss, parameters, allow_unused=True)
    wanted = torch.autograd.grad(expected, parameters)
    for name, own, other in zip(names, got, wanted, strict=True):
        torch.testing.assert_close(own, other, rtol=1e-3, atol=1e-6, msg=name)


@pytest.mark.parametrize("mix", [0.25, 1.0])
def test_a_teacher_adds_its_divergence(mix):
    whole = small_decoder()
    job = planned(whole, distill=True, mix=mix)
    model = job.training_data.model
    batch = batch_of(job)
    loss = job.objective.module(model, 0, True).train()(**dict(batch))["loss"]
    ids = batch["input_ids"]
    with torch.no_grad():
        own, wanted = (m.network(input_ids=ids).logits[:, :-1].flatten(0, 1).double() for m in (model, whole))
    apart = torch.nn.functional.kl_div(
        own.log_softmax(-1), wanted.log_softmax(-1), reduction="batchmean", log_target=True
    )
    expected = mix * apart + (1 - mix) * torch.nn.functional.cross_entropy(own, batch[TARGETS])
    assert float(loss) == pytest.approx(float(expected), rel=1e-5)


@pytest.mark.parametrize("make", [small_decoder, small_masked])
def test_what_the_trainer_sees_is_what_an_exam_gives(make):
    job = planned(make())
    model, objective = job.training_data.model, job.objective
    module = objective.module(model, 0, True).eval()
    with torch.no_grad():
        answers = module(**batch_of(job, objective.scored, len(objective.scored.items)))["logits"].numpy()
    np.testing.assert_allclose(answers, objective.answers(model), rtol=1e-4, atol=1e-3)
    marks = objective.metrics(SimpleNamespace(predictions=answers))
    evaluator = make_evaluator(model, job.training_data.task, max_length=16)
    value = evaluator.score(evaluator.logits())
    assert marks["score"] == pytest.approx(float(value), rel=1e-4)
    assert marks["held_out"] == pytest.approx(value.metrics["nll"], rel=1e-4)
    assert float(objective.score(model, objective.answers(model))) == pytest.approx(float(value), rel=1e-5)


def test_a_nan_is_no_score():
    marks = planned(small_decoder()).objective.metrics(SimpleNamespace(predictions=np.full((3, 3), np.nan)))
    assert np.isnan(marks["score"])
    assert np.isnan(marks["held_out"])
