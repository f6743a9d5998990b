"""Frozen blocks: not run where their output is known, and quiet where they are run."""

import pytest
import torch

import layerscope as ls
from layerscope.tuning.frozen_cache import CHOICES, INDEX, STATES, PrefixedNetwork
from tests.helpers.models import QUICK, random_model, token_batch


@pytest.mark.parametrize("method", ["finetune", "adapter", "lora"])
@pytest.mark.parametrize("family", ["bert", "xlnet", "gpt2", "deberta", "modernbert"])
def test_the_cache_changes_nothing(family, method, task):
    options = {"strategy": "(3, 4, 4)", "method": method, **QUICK}
    base = random_model(family)
    cached, plain = (ls.tune(base, task, cache=cache, **options) for cache in (True, False))
    assert cached.cached
    assert not plain.cached
    assert [e["score"] for e in cached.epochs] == [e["score"] for e in plain.epochs]
    one, two = (dict(training.model.named_parameters()) for training in (cached, plain))
    for name, value in one.items():
        torch.testing.assert_close(value, two[name], rtol=1e-3, atol=1e-4)


def test_frozen_blocks_stay_quiet_and_only_what_is_trained_is_kept(task):
    opened = random_model(kind="classifier")
    opened.network.requires_grad_(False)
    opened.network.classifier.requires_grad_(True)
    wrapped = PrefixedNetwork(opened, 2, trains_embeddings=False).train()
    layers = opened.network.bert.encoder.layer
    assert [block.training for block in layers] == [False, False, True, True]
    assert not opened.network.bert.embeddings.dropout.training
    assert set(wrapped.state_dict()) == {"network.classifier.weight", "network.classifier.bias"}
    assert wrapped.config is opened.network.config


def test_what_a_trainer_asks_in_every_step_is_answered_at_once(monkeypatch):
    opened = random_model(kind="classifier")
    wrapped = PrefixedNetwork(opened, 2, trains_embeddings=False).train()
    assert [*wrapped.parameters()] == [*torch.nn.Module.parameters(wrapped)]
    with monkeypatch.context() as patch:
        for name in ("train", "named_parameters"):
            patch.setattr(torch.nn.Module, name, lambda *_, **__: pytest.fail("all modules were gone through again"))
        assert wrapped.train() is wrapped
        assert len([*wrapped.parameters()]) > 10
    assert not [*wrapped.parameters(recurse=False)]
    opened.network.eval()  # behind its back
    layers = opened.network.bert.encoder.layer
    assert [block.training for block in wrapped.train().network.bert.encoder.layer] == [False, False, True, True]
    assert not any(module.training for module in wrapped.eval().modules())
    assert [block.training for block in layers] == [False] * 4


def test_frozen_blocks_are_not_run_where_their_output_is_known(monkeypatch):
    opened = random_model(kind="classifier")
    wrapped = PrefixedNetwork(opened, 2, trains_embeddings=False).eval()
    inputs = token_batch()
    with torch.no_grad():
        states = opened.network(**inputs, output_hidden_states=True).hidden_states[2]
        expected = wrapped(**inputs)["logits"]
        for block in opened.network.bert.encoder.layer[:2]:
            monkeypatch.setattr(block.attention, "forward", lambda *_, **__: pytest.fail("a frozen block was run"))
        torch.testing.assert_close(wrapped(**inputs, **{STATES: states})["logits"], expected)
        wrapped.table = states.flatten(0, 1)
        index = torch.arange(states.shape[0] * states.shape[1]).view(states.shape[:2])
        torch.testing.assert_close(wrapped(**inputs, **{INDEX: index})["logits"], expected)


def test_losses_and_choices_that_are_not_real():
    opened = random_model(kind="choice")
    wrapped = PrefixedNetwork(opened, 0, trains_embeddings=True).eval()
    inputs = {name: value[None] for name, value in token_batch().items()}  # one text of three choices
    real = torch.tensor([[True, True, False]])
    answer = wrapped(**inputs, **{CHOICES: real}, labels=torch.tensor([1]))
    assert answer["logits"][0, 2] == -torch.inf
    assert float(answer["loss"]) == pytest.approx(float(-answer["logits"].log_softmax(dim=1)[0, 1]))
    numbers = PrefixedNetwork(random_model(kind="classifier", labels=1), 0, trains_embeddings=True).eval()
    answer = numbers(**token_batch(), labels=torch.tensor([0.0, 1.0, 2.0]))
    expected = (answer["logits"][:, 0] - torch.tensor([0.0, 1.0, 2.0])).square().mean()
    assert float(answer["loss"]) == pytest.approx(float(expected))
