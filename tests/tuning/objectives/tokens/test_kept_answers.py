"""A teacher's likeliest outputs: those of its own logits, in any number of shards, and what they leave out."""

import numpy as np
import pytest
import torch

from layerscope.errors import InputError
from layerscope.tuning.heal import plan_healing
from layerscope.tuning.objectives import tokens
from layerscope.tuning.objectives.losses import Likeliest, divergence
from layerscope.tuning.objectives.tokens import LikeliestAnswers, error_of
from tests.helpers.data import running_task
from tests.helpers.models import FEW_STEPS, WITHOUT_BLOCK_2, small_decoder


def exam_of(**options):
    job = plan_healing(small_decoder(), WITHOUT_BLOCK_2, running_task(), distill=True, **FEW_STEPS, **options).job
    return job, job.objective._learned


def logits_of(model, item):
    with torch.no_grad():
        return model.network(input_ids=torch.from_numpy(item.ids)[None]).logits[0][torch.from_numpy(item.take)]


def test_what_is_kept_are_the_likeliest_outputs_of_every_place(monkeypatch):
    monkeypatch.setattr(tokens, "_SHARD_ROWS", 5)
    job, evaluator = exam_of()
    artifact = LikeliestAnswers(job.uncut, evaluator, 4)
    kept = artifact.open()
    assert len(list(artifact.produce().glob("shard-*"))) == int(np.ceil(len(kept) / 5)) > 1
    for place in (0, 7, len(kept) - 1):
        wanted = Likeliest.from_logits(logits_of(job.uncut, evaluator.encoded()[place]), 4)
        got = kept.item(place)
        torch.testing.assert_close(got.logs, wanted.logs, rtol=1e-4, atol=1e-4)
        assert torch.equal(got.outputs, wanted.outputs)


def test_the_error_is_what_the_others_would_have_shown():
    job, evaluator = exam_of()
    student, teacher = job.training_data.model, job.uncut
    told = error_of(student, teacher, evaluator, 3)
    rest, full, some = [], [], []
    for item in evaluator.encoded()[: told["rows"]]:
        own, whole = (logits_of(model, item) for model in (student, teacher))
        probabilities = whole.softmax(-1).sort(dim=-1, descending=True).values
        rest.append(1 - probabilities[:, :3].sum(-1))
        full.append((whole.softmax(-1) * (whole.log_softmax(-1) - own.log_softmax(-1))).sum(-1))
        some.append(divergence(own.log_softmax(-1), Likeliest.from_logits(whole, 3))[0])
    expected = [float(torch.cat(part).mean()) for part in (rest, full, some)]
    assert [told[name] for name in ("left_out", "divergence", "kept_divergence")] == pytest.approx(expected, rel=1e-3)
    assert told["kept_divergence"] <= told["divergence"]


def test_more_than_there_is_cannot_be_kept():
    with pytest.raises(InputError, match=r"it has 165, so 1\.\.165"):
        LikeliestAnswers(*[small_decoder(), exam_of()[1]], 1000)
