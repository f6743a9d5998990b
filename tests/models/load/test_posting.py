"""A model arrives in another process as it was sent, also after it has been run."""

import pickle

import pandas
import pytest
import torch

import layerscope as ls
from layerscope.models.load import picklable_copy
from tests.helpers.models import random_network, token_batch, word_tokenizer


@pytest.mark.parametrize("family", ["bert", "gpt2", "llama"])
def test_a_network_that_has_been_run_can_be_sent(family):
    network = random_network(family)
    given = token_batch()
    states = network(**given, output_hidden_states=True).hidden_states
    hooks = sum(len(module._forward_hooks) for module in network.modules())
    arrived = pickle.loads(pickle.dumps(picklable_copy(network)))
    assert not any(module._forward_hooks for module in arrived.modules())
    again = arrived(**given, output_hidden_states=True).hidden_states  # transformers hangs its hooks onto it anew
    assert len(again) == len(states)
    assert all(torch.equal(a, b) for a, b in zip(again, states, strict=True))
    assert sum(len(module._forward_hooks) for module in network.modules()) == hooks  # what was sent is as it was


def test_no_weight_is_copied_before_it_is_sent():
    network = random_network("bert")
    shared = {tensor.data_ptr() for tensor in network.parameters()}
    assert {tensor.data_ptr() for tensor in picklable_copy(network).parameters()} == shared


def test_a_model_keeps_its_name_tokenizer_and_weights():
    model = ls.load(random_network("bert"), tokenizer=word_tokenizer())
    model.name = "mine"
    ls.extract(model, pandas.DataFrame({"text": ["the file", "a list"]}), store=False)
    arrived = pickle.loads(pickle.dumps(model))
    assert arrived.name == "mine"
    assert arrived.spec() == model.spec()


def test_hooks_of_ones_own_stay():
    network = random_network("bert")
    network.bert.embeddings.register_forward_hook(_doubled)
    given = token_batch()
    arrived = pickle.loads(pickle.dumps(picklable_copy(network)))
    assert torch.equal(arrived(**given).logits, network(**given).logits)
    assert len(arrived.bert.embeddings._forward_hooks) == 1


def _doubled(module, args, output):
    return 2 * output
