import copy
import tempfile
from pathlib import Path

import pytest
import torch
from torch import nn

pytest.importorskip("peft")

from peft import LoraConfig, get_peft_model
from transformers.pytorch_utils import Conv1D

from layerscope.tuning.heal import plan_healing
from layerscope.tuning.methods.lora import QuickLinear, _Projection, quicken
from tests.helpers.data import running_task
from tests.helpers.models import FEW_STEPS, WITHOUT_BLOCK_2, language_model, small_decoder


class Chain(nn.Module):
    """A projection with a bias, one without, and one that is stored the other way round."""

    def __init__(self, turned=False):
        super().__init__()
        self.first, self.second = (Conv1D(6, 5), Conv1D(4, 6)) if turned else (nn.Linear(5, 6), nn.Linear(6, 4, False))

    def forward(self, x):
        return self.second(torch.tanh(self.first(x)))


def pair(turned=False, **options):
    """The same network with LoRA, as peft runs it and in fewer steps; B starts away from 0."""
    torch.manual_seed(0)
    config = LoraConfig(r=2, lora_alpha=3, target_modules=["first", "second"], fan_in_fan_out=turned, **options)
    plain = get_peft_model(Chain(turned), config)
    for name, parameter in plain.named_parameters():
        if "lora_B" in name:
            nn.init.normal_(parameter)
    quick = copy.deepcopy(plain)
    return plain, quick, quicken(quick)


def answers_and_gradients(network, dtype=None):
    torch.manual_seed(1)
    x = torch.randn(3, 7, 5, requires_grad=True)
    with torch.autocast("cpu", dtype=dtype or torch.bfloat16, enabled=dtype is not None):
        answer = network(x)
    answer.float().pow(2).sum().backward()
    trained = {name: p.grad.clone() for name, p in network.named_parameters() if p.requires_grad}
    network.zero_grad()
    return {"answer": answer.detach(), "x": x.grad, **trained}


@pytest.mark.parametrize("turned", [False, True])
def test_answers_and_gradients_are_those_of_peft(turned):
    plain, quick, count = pair(turned)
    assert count == 2
    expected, got = answers_and_gradients(plain), answers_and_gradients(quick)
    assert got.keys() == expected.keys()
    for name in expected:
        torch.testing.assert_close(got[name], expected[name], rtol=1e-4, atol=1e-5, msg=name)


def test_under_autocast_they_differ_by_rounding_alone():
    plain, quick, _ = pair()
    exact, expected, got = (
        answers_and_gradients(network, dtype)
        for network, dtype in ((plain, None), (plain, torch.bfloat16), (quick, torch.bfloat16))
    )
    assert got["answer"].dtype == expected["answer"].dtype == torch.bfloat16
    for name in exact:
        assert got[name].dtype == expected[name].dtype
        scale = exact[name].abs().max()
        assert (got[name].float() - exact[name]).abs().max() < 0.03 * scale, name
        assert (got[name].float() - expected[name].float()).abs().max() < 0.03 * scale, name


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
@pytest.mark.parametrize("turned", [False, True])
def test_beside_weights_of_16_bits_the_updates_are_float32_and_answers_are_those_of_peft(turned, dtype):
    plain, _, _ = pair(turned)
    for module in plain.modules():
        if hasattr(module, "base_layer"):
            module.base_layer.to(dtype)
    quick = copy.deepcopy(plain)
    assert quicken(quick) == 2
    exact = copy.deepcopy(plain).float()
    wanted = answers_and_gradients(exact)
    expected, got = (answers_and_gradients(network, torch.bfloat16) for network in (plain, quick))
    for name in wanted:
        assert got[name].dtype == expected[name].dtype
        scale = wanted[name].abs().max()
        assert (got[name].float() - wanted[name].float()).abs().max() < 0.03 * scale, name
    x = torch.randn(2, 5, dtype=dtype)
    with torch.no_grad():
        assert torch.equal(quick(x), plain(x))  # without autocast as peft does it


def kept_for_backward(network, **inputs):
    """Bytes by float type of what a forward under autocast keeps, parameters and what they share memory with aside."""
    own = {p.untyped_storage().data_ptr() for p in network.parameters()}
    kept = {}

    def pack(tensor):
        storage = tensor.untyped_storage()
        if storage.data_ptr() not in own:
            kept[storage.data_ptr()] = (storage, tensor.dtype)
        return tensor

    with torch.autograd.graph.saved_tensors_hooks(pack, lambda t: t), torch.autocast("cpu", dtype=torch.bfloat16):
        answer = network(**inputs)
    sizes = {}
    for storage, dtype in kept.values():
        sizes[dtype] = sizes.get(dtype, 0) + storage.nbytes()
    return sizes, answer


def test_a_block_in_16_bits_keeps_less_than_peft_and_no_float32_input():
    network = small_decoder().network.to(torch.bfloat16)
    config = LoraConfig(r=2, lora_alpha=4, target_modules="all-linear")
    plain = get_peft_model(network, config)
    quick = copy.deepcopy(plain)
    blocks = network.config.num_hidden_layers
    assert quicken(quick) == 7 * blocks
    ids = torch.arange(2 * 16).view(2, 16) % network.config.vocab_size
    (ours, answer), (theirs, other) = (kept_for_backward(n, input_ids=ids, use_cache=False) for n in (quick, plain))
    torch.testing.assert_close(answer.logits, other.logits, rtol=0.05, atol=0.02)
    # Four copies of the width are gone: two of the three that q, k and v had, one of gate's and up's, and that of o,
    # whose input attention keeps anyway. Roundings of the updates' own weights are kept in return.
    copies = 2 * ids.numel() * 4 * network.config.hidden_size * network.config.num_hidden_layers
    assert sum(ours.values()) <= sum(theirs.values()) - 0.95 * copies
    assert ours.get(torch.float32, 0) <= theirs.get(torch.float32, 0)


@pytest.mark.parametrize("fused", [False, True])
def test_what_was_rounded_is_rounded_anew_after_a_step(fused):
    _, quick, _ = pair()
    trained = [p for p in quick.parameters() if p.requires_grad]
    optimizer = torch.optim.AdamW(trained, lr=0.5, fused=fused)
    before = answers_and_gradients(quick, torch.bfloat16)["answer"]
    for p in trained:
        p.grad = torch.ones_like(p)
    optimizer.step()
    optimizer.zero_grad()
    after = answers_and_gradients(quick, torch.bfloat16)["answer"]
    fresh, _, _ = pair()
    fresh.load_state_dict(quick.state_dict())
    torch.testing.assert_close(after, answers_and_gradients(fresh, torch.bfloat16)["answer"], rtol=0.05, atol=0.2)
    assert (after - before).abs().max() > 1


def test_merged_or_switched_off_it_answers_as_peft_does():
    plain, quick, _ = pair()
    x = torch.randn(2, 5)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        quick(x)  # the rounded weight is kept
    with torch.no_grad(), plain.disable_adapter(), quick.disable_adapter():
        torch.testing.assert_close(quick(x), plain(x))
    with torch.no_grad():
        expected = quick(x)
        torch.testing.assert_close(quick.merge_and_unload()(x), expected, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("options", [{"lora_dropout": 0.1}, {"use_dora": True}, {"lora_bias": True}])
def test_what_is_not_plain_stays_with_peft(options):
    _, quick, count = pair(**options)
    assert count == 0
    assert not any(isinstance(module, QuickLinear) for module in quick.modules())


def test_weights_that_do_not_fit_are_rounded_in_every_step():
    _, quick, _ = pair()
    _, other, _ = pair()
    for module in other.modules():
        if isinstance(module, QuickLinear):
            module.keeps_weight = False
    first, second = (answers_and_gradients(network, torch.bfloat16) for network in (quick, other))
    for name in first:
        assert torch.equal(first[name], second[name])
    kept = [[m._weight is not None for m in n.modules() if isinstance(m, QuickLinear)] for n in (quick, other)]
    assert kept == [[True, True], [False, False]]


@pytest.mark.parametrize("family", ["llama", "gpt2"])
def test_a_healing_learns_the_same(family, monkeypatch):
    """The losses at every look are those of peft's own projections."""
    model = small_decoder() if family == "llama" else language_model("gpt2", n_layer=3)
    with monkeypatch.context() as patch:
        patch.setattr("layerscope.tuning.methods.lora.quicken", lambda network: 0)
        expected = _losses(model)
    assert _losses(model) == pytest.approx(expected, rel=1e-5)


def test_a_healing_in_16_bits_learns_what_peft_learns(monkeypatch):
    model = small_decoder()
    model.network.bfloat16()
    with monkeypatch.context() as patch:
        patch.setattr("layerscope.tuning.methods.lora.quicken", lambda network: 0)
        expected = _losses(model, bf16=True)
    made, plain = [], _Projection.apply
    monkeypatch.setattr(_Projection, "apply", lambda *given: made.append(given[3].dtype) or plain(*given))
    assert _losses(model, bf16=True) == pytest.approx(expected, rel=1e-2)
    assert set(made) == {torch.bfloat16}


def _losses(model, **options):
    with tempfile.TemporaryDirectory() as folder:
        job = plan_healing(model, WITHOUT_BLOCK_2, running_task(), evaluate_every=2, **FEW_STEPS, **options).job
        return [look["loss"] for look in job.train(Path(folder))[2].epochs]
