"""Networks that are given tensors in place of drawing them: what is shared, what is copied, and what was in a file."""

import pytest
import torch
from safetensors.torch import save_file

from layerscope.models.weights import give_tensors, is_in_file, other_tensors, without_weights
from layerscope.store import open_tensors
from tests.helpers.models import random_network, token_batch


def rebuilt(network, *, share):
    again = without_weights(type(network), network.config, network.dtype)
    tensors = network.state_dict(keep_vars=True)
    assert other_tensors(again, tensors) == []
    give_tensors(again, tensors, share=share)
    return again


@pytest.mark.parametrize("share", [True, False])
@pytest.mark.parametrize("family", ["bert", "gpt2", "llama", "albert", "deberta-v2"])
def test_the_network_computes_what_the_other_does(family, share):
    network = random_network(family)
    again = rebuilt(network, share=share)
    shared = [a.data_ptr() == b.data_ptr() for a, b in zip(again.parameters(), network.parameters(), strict=True)]
    assert all(shared) if share else not any(shared)
    assert not any(a is b for a, b in zip(again.parameters(), network.parameters(), strict=True))
    assert not any(buffer.is_meta for buffer in again.buffers())
    with torch.inference_mode():
        inputs = token_batch()
        assert torch.equal(again(**inputs).logits, network(**inputs).logits)


def test_nothing_is_drawn_and_the_state_of_the_generator_stays():
    network, before = random_network("llama"), torch.get_rng_state()
    empty = without_weights(type(network), network.config, torch.bfloat16)
    assert all(parameter.is_meta and parameter.dtype == torch.bfloat16 for parameter in empty.parameters())
    assert torch.equal(torch.get_rng_state(), before)


def test_tied_weights_stay_one_parameter_and_flags_are_the_new_networks_own():
    network = random_network("gpt2", "next")
    network.requires_grad_(False)
    again = rebuilt(network, share=True)
    assert again.lm_head.weight is again.transformer.wte.weight
    assert all(parameter.requires_grad for parameter in again.parameters())
    assert not any(parameter.requires_grad for parameter in network.parameters())


def test_other_tensors_are_named():
    network = random_network("bert")
    tensors = network.state_dict()
    bias = tensors.pop("classifier.bias")
    assert other_tensors(network, {**tensors, "more": bias}) == ["classifier.bias", "more"]
    assert other_tensors(network, {**tensors, "classifier.bias": bias[:1]}) == ["classifier.bias"]


@pytest.mark.parametrize("tensor", [torch.arange(12.0).view(4, 3), torch.tensor(3.0), torch.zeros(0, 2)])
def test_a_tensor_is_in_a_file_if_every_number_of_it_is(tensor, tmp_path):
    save_file({"a": tensor.half(), "b": tensor + 1, "c": tensor.reshape(-1, 1)}, tmp_path / "file.safetensors")
    file = open_tensors(tmp_path / "file.safetensors")
    assert is_in_file(tensor, file, "a")
    assert is_in_file(tensor, file, "b") == (tensor.numel() == 0)
    assert not is_in_file(tensor, file, "c")
