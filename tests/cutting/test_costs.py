"""What a plan costs: parameters and multiply-adds of the model that is really cut, and a measured time."""

import pytest
import torch
from torch.utils.flop_counter import FlopCounterMode

import layerscope as ls
from layerscope.cutting.costs import Costs
from tests.helpers.models import FAMILIES, random_model, random_network

PLANS = [ls.LayerPlan([1, 2, 3, 4]), ls.LayerPlan([1, 3]), ls.LayerPlan([1])]


@pytest.mark.parametrize("family", FAMILIES)
def test_parameters_are_those_of_the_cut_model(family):
    opened = random_model(family, "classifier")
    costs = Costs(opened)
    for plan in PLANS:
        if opened.architecture.shared:
            assert costs.parameters(plan) == costs.parameters(PLANS[0])  # one block, however often it runs
        else:
            cut = ls.cut(opened, plan)
            assert costs.parameters(plan) == sum(p.numel() for p in cut.parameters())


@pytest.mark.parametrize("family", ["bert", "gpt2", "albert"])
def test_multiply_adds_are_those_of_the_cut_model(family):
    opened = random_model(family, "classifier")
    implementation = opened.network.config._attn_implementation
    costs = Costs(opened, tokens=20)
    counts = [costs.macs(plan) for plan in PLANS]
    assert counts[0] > counts[1] > counts[2] > 0
    assert opened.network.config._attn_implementation == implementation
    opened.network.set_attn_implementation("eager")
    with FlopCounterMode(display=False) as counter, torch.no_grad():
        opened.network(**costs._inputs(1))
    assert counts[0] == pytest.approx(counter.get_total_flops() / 2, rel=0.01)


def test_a_text_is_no_longer_than_the_model_allows():
    assert Costs(random_model(max_position_embeddings=40)).tokens == 40
    assert Costs(random_model(), tokens=30).tokens == 30


def test_plans_alike_are_timed_once(monkeypatch):
    opened = random_model(kind="classifier")
    costs = Costs(opened, tokens=8)
    first = costs.latency(ls.LayerPlan([1, 2]), 2)
    assert first > 0
    monkeypatch.setattr(opened.network, "forward", lambda **_: pytest.fail("it was timed again"))
    assert costs.latency(ls.LayerPlan([3, 4]), 2) == first
    assert opened.network.config.num_hidden_layers == 4
    assert len(opened.network.bert.encoder.layer) == 4


@pytest.mark.parametrize("pad", [0, None, -1])
def test_the_latency_of_32_texts_is_of_32_texts(pad):
    model = ls.load(random_network("gpt2", pad_token_id=pad))
    seen = []
    model.network.register_forward_pre_hook(
        lambda _, args, kwargs: seen.append(tuple(kwargs["input_ids"].shape)), with_kwargs=True
    )
    Costs(model, tokens=8).latency(ls.LayerPlan([1, 2]), 32)
    assert set(seen[1:]) == {(32, 8)}
    assert model.network.config.pad_token_id == pad
