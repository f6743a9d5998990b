"""Heads asked at chosen places: the same logits as the network's own, in portions of any size."""

import numpy as np
import pytest
import torch

import layerscope as ls
from layerscope.errors import ModelError
from layerscope.evaluation import token_evaluator
from layerscope.evaluation.evaluate import make_evaluator
from layerscope.evaluation.token_evaluator import TokenHead
from layerscope.models.architecture import evaluating
from layerscope.models.replay import caches_off
from tests.helpers.data import text_frame
from tests.helpers.models import VOCABULARY, language_model, token_batch

CASES = [
    *((family, "next") for family in ("gpt2", "opt", "gemma3_text", "bloom")),
    *((family, "masked") for family in ("bert", "roberta", "albert", "distilbert", "electra", "deberta-v2")),
    *(("modernbert", "masked"), ("bert", "pretraining"), ("bert", "tags"), ("deberta-v2", "tags")),
]


@pytest.mark.parametrize(("family", "kind"), CASES)
def test_the_head_on_chosen_states_is_the_networks_own(family, kind):
    model = language_model(family, kind)
    head, inputs = TokenHead(model), token_batch(rows=1)
    network = model.network
    with torch.inference_mode(), evaluating(network), caches_off(network):
        result, output = network(**inputs), network.base_model(**inputs)
        chosen = output.last_hidden_state[0, [1, 4, 6]]
        got = torch.cat([logits for _, logits in head.portions(output, chosen, at_once=2)])
    expected = result.prediction_logits if kind == "pretraining" else result.logits
    torch.testing.assert_close(got, expected[0, [1, 4, 6]], rtol=1e-4, atol=1e-5)


def test_logits_are_never_made_all_at_once(monkeypatch):
    monkeypatch.setitem(token_evaluator._NUMBERS, "cpu", 5 * len(VOCABULARY))
    model, seen = language_model(), []
    model.network.lm_head.register_forward_hook(lambda _, __, output: seen.append(output.shape[1]))
    evaluator = make_evaluator(model, ls.task(text_frame(), kind="text"), max_length=16, batch_tokens=10**6)
    seen.clear()
    small = evaluator.logits()
    assert max(seen) == 5
    monkeypatch.setitem(token_evaluator._NUMBERS, "cpu", 1 << 23)
    np.testing.assert_allclose(evaluator.logits(), small, rtol=1e-5)


def test_a_head_that_mixes_places_is_refused():
    model = language_model()
    forward = model.network.lm_head.forward
    model.network.lm_head.forward = lambda states: forward(states.cumsum(dim=1))
    with pytest.raises(ModelError, match="does not answer place by place"):
        TokenHead(model)


def test_an_interval_holds_the_score_and_shrinks():
    model = language_model()
    evaluator = make_evaluator(model, ls.task(text_frame(40, least=5), kind="text", by_text=True), max_length=16)
    answers = evaluator.logits()
    low, high = evaluator.interval(answers)
    assert low < evaluator.value(answers) < high
    some = np.arange(10)
    assert np.subtract(*evaluator.interval(answers, some)[::-1]) > high - low
    losses, weights = evaluator.losses(answers, np.arange(len(answers)))
    assert np.average(losses, weights=weights) == pytest.approx(evaluator.score(answers).metrics["nll"])
    assert len(losses) == 40
