"""LoRA adapters of peft: merged as peft merges them, with their base found, and refused by name."""

import json
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file, save_file

import layerscope as ls
from layerscope.errors import ModelError
from layerscope.models.peft_adapter import CONFIG, WEIGHTS
from tests.helpers.models import save_random

PICKLE = b"\x80\x04cos\nsystem\n(S'false'\ntR."


def save_adapter(folder, base, opener, seed=0, **settings):
    """An adapter with random matrices, as peft saves it; returns the network that peft makes of it."""
    import transformers
    from peft import LoraConfig, get_peft_model

    network = getattr(transformers, opener).from_pretrained(base)
    torch.manual_seed(seed)
    settings = {"r": 2, "lora_alpha": 8, "init_lora_weights": False, **settings}
    wrapped = get_peft_model(network, LoraConfig(**settings))
    wrapped.save_pretrained(folder)
    return wrapped.eval()


def change(folder, **fields):
    content = {**json.loads((folder / CONFIG).read_text()), **fields}
    (folder / CONFIG).write_text(json.dumps(content))


@pytest.fixture
def base(tmp_path):
    return Path(save_random(tmp_path / "base", "bert", "masked"))


@pytest.fixture
def adapter(tmp_path, base):
    save_adapter(tmp_path / "adapter", base, "AutoModelForMaskedLM", target_modules=["query", "value"])
    return tmp_path / "adapter"


@pytest.mark.parametrize(
    "settings",
    [
        {"target_modules": ["query", "value"]},
        {"target_modules": "all-linear", "use_rslora": True},
        {"target_modules": r".*\.layer\.[01]\..*query", "use_dora": True},
        {"target_modules": ["query", "key"], "rank_pattern": {"key": 3}, "alpha_pattern": {"key": 5}},
    ],
)
def test_an_adapter_gives_what_peft_gives(settings, base, tmp_path):
    wrapped = save_adapter(tmp_path / "adapter", base, "AutoModelForMaskedLM", **settings)
    model = ls.load(tmp_path / "adapter")
    ids = torch.arange(5, 25).reshape(2, 10)
    with torch.no_grad():
        expected, found = wrapped(input_ids=ids).logits, model.network(input_ids=ids).logits
        before = ls.load(base).network(input_ids=ids).logits
    torch.testing.assert_close(found, expected, atol=1e-5, rtol=1e-4)
    assert (found - before).abs().max() > 1e-3
    assert not any("lora" in name for name, _ in model.network.named_modules())
    assert model.tokenizer is not None
    assert model.spec() != ls.load(base).spec()


@pytest.mark.parametrize("task", [{"task_type": "SEQ_CLS"}, {}])  # without one, peft notes the network's class
def test_an_adapter_with_a_head_of_its_own(task, base, tmp_path):
    import transformers

    network = transformers.AutoModelForSequenceClassification.from_pretrained(base, num_labels=3)
    network.save_pretrained(tmp_path / "with-head")  # so that its pooler is in a file
    (tmp_path / "with-head" / "config.json").write_text((base / "config.json").read_text())
    from peft import LoraConfig, get_peft_model

    torch.manual_seed(0)
    settings = {**task, "target_modules": ["query"], "init_lora_weights": False}
    wrapped = get_peft_model(network, LoraConfig(**settings, modules_to_save=["classifier", "pooler"]))
    wrapped.save_pretrained(tmp_path / "adapter")
    change(tmp_path / "adapter", base_model_name_or_path=str(base))
    model = ls.load(tmp_path / "adapter")
    assert model.head == "classes"
    ids = torch.arange(5, 15)[None]
    with torch.no_grad():
        torch.testing.assert_close(
            model.network(input_ids=ids).logits, wrapped.eval()(input_ids=ids).logits, atol=1e-5, rtol=1e-4
        )
    tensors = load_file(tmp_path / "adapter" / WEIGHTS)
    save_file({k: v for k, v in tensors.items() if "classifier.bias" not in k}, tmp_path / "adapter" / WEIGHTS)
    with pytest.raises(ModelError, match=r"classifier\.bias of a model .* neither in the adapter"):
        ls.load(tmp_path / "adapter")
    save_file({k: v for k, v in tensors.items() if "lora" in k}, tmp_path / "adapter" / WEIGHTS)
    with pytest.raises(ModelError, match=r"neither it nor its base .* has a head for that"):
        ls.load(tmp_path / "adapter")


def test_a_merged_model_is_saved_cut_and_twinned(adapter, base, tmp_path):
    model = ls.load(adapter)
    ls.save(ls.cut(model, ls.LayerPlan.parse("without 2", model.depth)), tmp_path / "smaller")
    assert ls.load(tmp_path / "smaller").depth == model.depth - 1
    assert ls.load(f"random:{adapter}").spec() == ls.load(f"random:{base}").spec()


def test_the_base_of_an_adapter_is_found(adapter, base):
    from layerscope.recipes.study import _base_of

    found = _base_of(ls.load(adapter))
    assert found.spec() == ls.load(base).spec()


@pytest.mark.parametrize(
    ("fields", "sentence"),
    [
        ({"peft_type": "PREFIX_TUNING"}, "of the type PREFIX_TUNING, and only LoRA is merged"),
        ({"base_model_name_or_path": None}, "names no base"),
        ({"base_model_name_or_path": "no/such-model"}, r"was trained on no/such-model, which cannot be opened here"),
        ({"base_model_name_or_path": "random:demo:minilm"}, "not a checkpoint but untrained"),
        ({"layer_replication": [[0, 2]]}, "sets layer_replication, which is not merged here"),
        ({"init_lora_weights": "pissa"}, "began as 'pissa'"),
        ({"alpha_pattern": {"(a+)+$": 3}}, "has the expression"),
        ({"r": "many"}, "adapter_config.json"),
        ({"peft_type": 7}, "adapter_config.json"),
    ],
)
def test_what_cannot_be_merged_is_refused_by_name(fields, sentence, adapter, monkeypatch):
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    change(adapter, **fields)
    with pytest.raises(ModelError, match=sentence):
        ls.load(adapter)


def test_a_rank_that_no_tensor_has_allocates_nothing(adapter):
    before = ls.load(adapter).spec()
    change(adapter, r=10**9, target_modules="(a+)+$", rank_pattern={"(a+)+$": 10**9})
    assert ls.load(adapter).spec() == before  # both are read from the tensors


def test_a_pickle_is_never_opened(adapter):
    (adapter / WEIGHTS).unlink()
    with pytest.raises(ModelError, match=r"has no adapter_model.safetensors"):
        ls.load(adapter)
    (adapter / "adapter_model.bin").write_bytes(PICKLE)
    with pytest.raises(ModelError, match=r"only as a pickle file .* can run code"):
        ls.load(adapter)


def test_a_link_that_leads_out_is_refused(adapter, tmp_path):
    (adapter / WEIGHTS).rename(tmp_path / "private.safetensors")
    (adapter / WEIGHTS).symlink_to(tmp_path / "private.safetensors")
    with pytest.raises(ModelError, match=r"is a link to .*private"):
        ls.load(adapter)


def test_an_adapter_of_an_adapter_is_refused(adapter, tmp_path):
    change(adapter, base_model_name_or_path=str(adapter))
    with pytest.raises(ModelError, match="another adapter"):
        ls.load(adapter)


def test_a_base_that_does_not_fit_is_refused(adapter, tmp_path):
    other = save_random(tmp_path / "other", "gpt2", "next")
    change(adapter, base_model_name_or_path=str(other))
    with pytest.raises(ModelError, match=r"does not fit its base .*which has no bert\."):
        ls.load(adapter)
    wider = save_random(tmp_path / "wider", "bert", "masked", hidden_size=64)
    change(adapter, base_model_name_or_path=str(wider))
    with pytest.raises(ModelError, match="does not fit its base"):
        ls.load(adapter)


@pytest.mark.parametrize("value", [float("nan"), float("inf")])
def test_numbers_that_are_none_are_refused(value, adapter):
    tensors = load_file(adapter / WEIGHTS)
    next(iter(tensors.values()))[0, 0] = value
    save_file(tensors, adapter / WEIGHTS)
    with pytest.raises(ModelError, match="finite"):
        ls.load(adapter)


def test_strange_tensors_are_refused(adapter):
    tensors = load_file(adapter / WEIGHTS)
    save_file({**tensors, "other.weight": torch.ones(2)}, adapter / WEIGHTS)
    with pytest.raises(ModelError, match="not a tensor of a peft adapter"):
        ls.load(adapter)
    half = {name: tensor for name, tensor in tensors.items() if "lora_A" in name}
    save_file(half, adapter / WEIGHTS)
    with pytest.raises(ModelError, match="on one side alone"):
        ls.load(adapter)
    save_file({"base_model.model.cls.predictions.bias": torch.ones(3)}, adapter / WEIGHTS)
    with pytest.raises(ModelError, match="holds no LoRA matrix"):
        ls.load(adapter)
