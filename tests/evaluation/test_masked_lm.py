"""Masked language models against a plain loop over the same masks."""

import numpy as np
import pytest
import torch

import layerscope as ls
from layerscope.errors import ModelError
from layerscope.evaluation.evaluate import make_evaluator
from layerscope.evaluation.masked_lm import SHARE
from tests.helpers.data import text_frame
from tests.helpers.models import language_model


@pytest.mark.parametrize("family", ["bert", "electra", "modernbert"])
def test_loss_and_accuracy_of_the_masked_tokens(family):
    opened, data = language_model(family, "masked"), text_frame()
    evaluator = make_evaluator(opened, data, batch_tokens=40)
    losses, right = [], []
    for item in evaluator._encoded(opened, evaluator.examples, evaluator.reading):
        assert len(item.take) == max(1, round(SHARE * (~item.special).sum()))
        assert (item.ids[item.take] == opened.tokenizer.mask_token_id).all()
        with torch.inference_mode():
            logits = opened.network(input_ids=torch.tensor(item.ids)[None]).logits[0, item.take].double()
        targets = torch.tensor(item.targets)
        losses += torch.nn.functional.cross_entropy(logits, targets, reduction="none").tolist()
        right += (logits.argmax(-1) == targets).tolist()
    score = evaluator.score(evaluator.logits())
    assert (score.metric, score.higher_is_better) == ("nll", False)
    assert float(score) == pytest.approx(np.mean(losses), abs=1e-4)
    assert score.metrics["accuracy"] == pytest.approx(np.mean(right))
    assert score.metrics["tokens"] == len(losses)


def test_the_seed_decides_which_tokens_are_masked():
    opened = language_model("bert", "masked")
    values = [float(ls.evaluate(opened, ls.task(text_frame(), mask_seed=seed))) for seed in (0, 0, 1)]
    assert values[0] == values[1] != values[2]
    part = make_evaluator(opened, ls.task(text_frame()), limit=5)
    whole = make_evaluator(opened, ls.task(text_frame()))
    np.testing.assert_allclose(part.logits(), whole.logits()[:5], rtol=1e-4)


def test_without_a_mask_token_there_is_nothing_to_find():
    opened = language_model("bert", "masked")
    opened.tokenizer.mask_token = None
    with pytest.raises(ModelError, match="has no mask token"):
        ls.evaluate(opened, text_frame())


def test_the_curve_of_a_masked_model():
    opened, data = language_model("bert", "masked"), ls.task(text_frame())
    curve = ls.truncation_curve(opened, data).frame
    assert curve["score"][2] == pytest.approx(float(ls.evaluate(ls.truncate(opened, 2), data)), rel=1e-4)
