import json

import pytest
import torch
from safetensors.torch import save_file

import layerscope as ls
from layerscope.errors import DataError, ModelError
from layerscope.tuning.methods.adapter import Bottleneck, add_adapters, load_adapters, trained_state
from tests.helpers.models import FAMILIES, QUICK, check_what_changes, random_model, token_batch, tuning_cases


@pytest.mark.parametrize(("family", "strategy"), tuning_cases())
def test_exactly_the_right_parameters_change(family, strategy, task):
    def expected(inside, _, architecture):
        return {n for n in inside if ".adapter." in n or "norm" in n.lower() or "ln_" in n}

    check_what_changes(family, task, strategy, "adapter", 4, expected)


def test_adapters_are_small_files_that_load_back(task):
    training = ls.tune(random_model(), task, method="adapter", size=4, strategy="(3, 4, 4)", **QUICK)
    files = {p.name for p in (training.path / "adapter").iterdir()}
    assert files == {"adapter.json", "adapter.safetensors"}
    size = (training.path / "adapter" / "adapter.safetensors").stat().st_size
    assert size < 0.3 * sum(p.numel() * 4 for p in training.model.parameters())
    assert json.loads((training.path / "adapter" / "adapter.json").read_text())["blocks"] == [3, 4]


def test_adapters_of_another_model_are_refused(task, tmp_path):
    training = ls.tune(random_model(), task, method="adapter", size=4, strategy="(3, 4, 4)", **QUICK)
    with pytest.raises(ModelError, match="does not fit"):
        load_adapters(random_model("roberta", "classifier"), training.path / "adapter")
    with pytest.raises(DataError, match="holds no adapter that layerscope saved"):
        load_adapters(random_model(kind="classifier"), tmp_path)


def test_near_identity_at_the_start():
    for family in FAMILIES:
        opened = random_model(family, "classifier")
        inputs = token_batch()
        with torch.inference_mode():
            before = opened.network(**inputs).logits
            add_adapters(opened, [1, 2, 3, 4], 8)
            after = opened.network(**inputs).logits
        assert not torch.equal(before, after), family
        torch.testing.assert_close(after, before, atol=0.1, rtol=0.1)


def test_adapters_that_are_damaged_are_a_sentence(tmp_path):
    opened = random_model(kind="classifier")
    add_adapters(opened, [3, 4], 4)
    good = {"blocks": [3, 4], "width": 4}
    state = {name: value.clone() for name, value in trained_state(opened, [3, 4]).items()}

    def refused(card, tensors, reason):
        (tmp_path / "adapter.json").write_text(json.dumps(card))
        save_file(tensors, tmp_path / "adapter.safetensors")
        with pytest.raises((DataError, ModelError), match=reason):
            load_adapters(random_model(kind="classifier"), tmp_path)

    for card in (
        {},
        [],
        {**good, "blocks": []},
        {**good, "blocks": ["3"]},
        {**good, "blocks": [0]},
        {**good, "width": 0},
    ):
        refused(card, state, "is damaged")
    refused({**good, "blocks": [9]}, state, "does not fit")
    refused({**good, "width": 10**9}, state, "does not fit")
    name = next(iter(state))
    bad = state[name].clone()
    bad[1] = torch.nan
    refused(good, {**state, name: bad}, f"{name}, row 1 holds a value that is not a finite number")
    (tmp_path / "adapter.safetensors").write_bytes(b"x" * 40)
    with pytest.raises(DataError, match="damaged or not a safetensors file"):
        load_adapters(random_model(kind="classifier"), tmp_path)


def test_both_matrices_start_with_berts_deviation():
    """Xie et al. 2022, B.2: initialised as BERT is, by a normal distribution with a deviation of 0.02."""
    torch.manual_seed(0)
    adapter = Bottleneck(256, 128, torch.zeros(1))
    for linear in (adapter.down, adapter.up):
        assert abs(float(linear.weight.detach().std()) - 0.02) < 0.0005  # 32,768 draws: a standard error of 0.00008
        assert not linear.bias.any()
