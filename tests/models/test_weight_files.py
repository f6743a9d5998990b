"""Only safetensors are opened, and a config that cannot be the weights' is found out before anything is built."""

import json
import time

import pytest
import torch
from safetensors.torch import load_file, save_file
from transformers import AutoConfig, AutoModelForCausalLM

from layerscope.errors import ModelError
from layerscope.models import load
from tests.helpers.models import VOCABULARY, cased_tokenizer, save_random

PICKLE = b"cos\nsystem\n(S'touch WITNESS'\ntR."


def reconfigure(folder, **changes):
    path = folder / "config.json"
    config = json.loads(path.read_text())
    path.write_text(json.dumps({k: v for k, v in {**config, **changes}.items() if v != "REMOVED"}))


def shard(folder, *names):
    """Spread the weights over files of these names, with an index."""
    weights = load_file(folder / "model.safetensors")
    (folder / "model.safetensors").unlink()
    parts = {
        name: {k: v for j, (k, v) in enumerate(weights.items()) if j % len(names) == i} for i, name in enumerate(names)
    }
    for name, part in parts.items():
        if name.endswith(".safetensors") and "/" not in name:
            save_file(part, folder / name)
        elif "/" not in name:
            torch.save(part, folder / name)
    index = {"metadata": {}, "weight_map": {k: name for name, part in parts.items() for k in part}}
    (folder / "model.safetensors.index.json").write_text(json.dumps(index))


def test_weights_in_several_files_open(tmp_path):
    save_random(tmp_path, "bert")
    before = load(tmp_path).spec()
    shard(tmp_path, "one.safetensors", "two.safetensors")
    assert load(tmp_path).spec() == before


@pytest.mark.parametrize("name", ["w.bin", "w.pt", "pytorch_model.bin", "w", "model.safetensors.bin"])
def test_a_pickle_is_not_opened_whatever_the_index_says(name, tmp_path, monkeypatch):
    save_random(tmp_path, "bert")
    shard(tmp_path, "one.safetensors", name)
    monkeypatch.setattr(torch, "load", lambda *_, **__: pytest.fail("a pickle was opened"))
    with pytest.raises(ModelError, match="not a safetensors file: it may be a pickle"):
        load(tmp_path)


@pytest.mark.parametrize("name", ["../two.safetensors", "/tmp/two.safetensors", "sub/two.safetensors"])
def test_weights_elsewhere_are_not_opened(name, tmp_path):
    save_random(tmp_path / "model", "bert")
    shard(tmp_path / "model", "one.safetensors", name)
    with pytest.raises(ModelError, match="only files of a folder are read"):
        load(tmp_path / "model")


def test_a_file_whose_name_no_disk_has_room_for_is_missing(tmp_path):
    save_random(tmp_path / "model", "bert")
    shard(tmp_path / "model", "one.safetensors")
    index = tmp_path / "model" / "model.safetensors.index.json"
    index.write_text(index.read_text().replace("one.safetensors", f"{'x' * 3000}.safetensors"))
    with pytest.raises(ModelError, match="is missing") as raised:
        load(tmp_path / "model")
    assert len(str(raised.value)) < 1000


@pytest.mark.parametrize("field", ["hidden_dropout_prob", "layer_norm_eps", "made_up"])
def test_no_number_in_a_config_is_a_nan(field, tmp_path):
    save_random(tmp_path, "bert")
    reconfigure(tmp_path, **{field: float("nan")})
    with pytest.raises(ModelError, match=f"{field} NaN"):
        load(tmp_path)


@pytest.mark.parametrize(
    "content", ["", "[]", "{}", '{"weight_map": []}', '{"weight_map": {}}', '{"weight_map": {"a": 1}}', "[" * 100_000]
)
def test_an_index_that_is_none_is_a_sentence(content, tmp_path):
    save_random(tmp_path, "bert")
    shard(tmp_path, "one.safetensors")
    (tmp_path / "model.safetensors.index.json").write_text(content)
    with pytest.raises(ModelError, match=r"index.json is (not JSON|damaged)"):
        load(tmp_path)


@pytest.mark.parametrize("name", ["w.bin", "adapter_model.bin", "w.safetensors", "../w.safetensors", 7])
def test_a_config_does_not_choose_the_file(name, tmp_path):
    save_random(tmp_path, "bert")
    (tmp_path / "adapter_model.bin").write_bytes(PICKLE)
    reconfigure(tmp_path, transformers_weights=name)
    with pytest.raises(ModelError, match=r"config.json"):
        load(tmp_path)


def test_an_adapter_beside_a_model_is_not_applied_without_a_word(tmp_path):
    save_random(tmp_path, "bert")
    lora = {"peft_type": "LORA", "r": 2, "target_modules": ["query"], "base_model_name_or_path": "other/model"}
    (tmp_path / "adapter_config.json").write_text(json.dumps(lora))
    for name in ("adapter_model.safetensors", "adapter_model.bin"):
        (tmp_path / name).write_bytes(PICKLE)
    with pytest.raises(ModelError, match=r"beside it an adapter .* move adapter_config.json away"):
        load(tmp_path)
    assert load(f"random:{tmp_path}").depth == 4
    (tmp_path / "adapter_config.json").unlink()
    assert load(tmp_path).depth == 4


SIZES = [
    ("bert", {"num_hidden_layers": 1_000_000}),
    ("bert", {"vocab_size": 200_000_000}),
    ("bert", {"hidden_size": 40_000_000}),
    ("bert", {"intermediate_size": 200_000_000}),
    ("bert", {"max_position_embeddings": 200_000_000}),
    ("bert", {"type_vocab_size": 200_000_000}),
    ("bert", {"num_labels": 1 << 62, "id2label": {"0": "file", "1": "list"}}),
    ("albert", {"num_hidden_layers": 1_000_000}),
    ("gpt2", {"n_layer": 1_000_000}),
    ("gpt2", {"n_positions": 200_000_000}),
    ("gpt2", {"vocab_size": 200_000_000}),
    ("llama", {"num_hidden_layers": 1_000_000}),
    ("llama", {"head_dim": 200_000_000}),
    ("llama", {"max_position_embeddings": 1 << 40}),
    ("qwen3", {"num_hidden_layers": 1_000_000, "layer_types": "REMOVED"}),
]


@pytest.mark.parametrize(("family", "changes"), SIZES, ids=lambda part: str(part)[:60])
def test_a_config_that_the_weights_cannot_fill_is_refused_at_once(family, changes, tmp_path):
    save_random(tmp_path, family)
    reconfigure(tmp_path, **changes)
    started = time.process_time()
    with pytest.raises(ModelError, match=r"do not match its config.json: \w+ is"):
        load(tmp_path)
    assert time.process_time() - started < 3


def test_experts_that_are_rows_of_a_table_are_not_counted_as_tensors(tmp_path):
    sizes = {"num_hidden_layers": 1, "hidden_size": 8, "intermediate_size": 8, "num_attention_heads": 2}
    made = AutoConfig.for_model("doge", vocab_size=len(VOCABULARY), max_position_embeddings=32, **sizes)
    AutoModelForCausalLM.from_config(made).save_pretrained(tmp_path)  # of 16,384 experts, of which none is there
    assert load(tmp_path).depth == 1
    reconfigure(tmp_path, is_moe=True)
    with pytest.raises(ModelError, match="num_experts is 16,384, which asks for 131,072 numbers"):
        load(tmp_path)


@pytest.mark.parametrize(
    "changes", [{"num_hidden_layers": 1_000_000}, {"vocab_size": 2_000_000_000}, {"hidden_size": 40_000_000}]
)
def test_a_random_model_that_no_memory_holds_is_refused_at_once(changes, tmp_path):
    save_random(tmp_path, "bert")
    reconfigure(tmp_path, **changes)
    with pytest.raises(ModelError, match=r"at most 4,096 are built|this machine has"):
        load(f"random:{tmp_path}")


def deep(levels):
    value = 1
    for _ in range(levels):
        value = [value]
    return value


WRONG = [
    ("bert", {"architectures": 1}),
    ("bert", {"architectures": [1]}),
    ("bert", {"architectures": {"a": 1}}),
    ("bert", {"model_type": 7}),
    ("bert", {"model_type": []}),
    ("bert", {"hidden_act": "unknown"}),
    ("bert", {"hidden_act": 3}),
    ("bert", {"num_attention_heads": 0}),
    ("bert", {"num_attention_heads": -1}),
    ("bert", {"num_attention_heads": 5}),
    ("bert", {"num_attention_heads": "4"}),
    ("bert", {"num_hidden_layers": "4"}),
    ("bert", {"num_hidden_layers": 1e6}),
    ("bert", {"num_hidden_layers": [4]}),
    ("bert", {"vocab_size": None}),
    ("bert", {"vocab_size": -5}),
    ("bert", {"hidden_size": {}}),
    ("bert", {"layer_norm_eps": "small"}),
    ("bert", {"id2label": 3}),
    ("bert", {"id2label": {"a": "b"}}),
    ("bert", {"num_labels": -1}),
    ("bert", {"pad_token_id": "x"}),
    ("bert", {"pad_token_id": 10_000}),
    ("bert", {"quantization_config": {"quant_method": "gptq", "bits": 4}}),
    ("bert", {"quantization_config": {"quant_method": "bitsandbytes", "load_in_4bit": True}}),
    ("bert", {"quantization_config": {"quant_method": "made-up"}}),
    ("bert", {"quantization_config": 3}),
    ("bert", {"x": deep(200)}),
    ("bert", {"x": "\ud800"}),
    ("llama", {"rope_parameters": {"rope_type": "unknown", "rope_theta": 1e4}}),
    ("llama", {"rope_parameters": 3}),
    ("llama", {"rope_scaling": {"type": "unknown"}}),
    ("llama", {"num_key_value_heads": 0}),
    ("llama", {"head_dim": 0}),
    ("qwen3", {"layer_types": 3}),
    ("qwen3", {"layer_types": ["unknown"] * 4}),
    ("gpt2", {"activation_function": "unknown"}),
]


@pytest.mark.parametrize(("family", "changes"), WRONG, ids=lambda part: str(part)[:60])
def test_a_config_with_a_wrong_field_is_one_sentence(family, changes, tmp_path):
    save_random(tmp_path, family)
    reconfigure(tmp_path, **changes)
    for name in (str(tmp_path), f"random:{tmp_path}"):
        with pytest.raises(ModelError) as refused:
            load(name)
        assert str(tmp_path) in str(refused.value)
        assert "\n" not in str(refused.value)


def test_a_size_that_differs_from_block_to_block_is_none_of_one_tensor(tmp_path):
    """Gemma 4 has a width of attention heads for each kind of block, and names none for all of them."""
    config = AutoConfig.for_model(
        *("gemma4_text",),
        **{"num_hidden_layers": 2, "hidden_size": 16, "intermediate_size": 16, "num_attention_heads": 2},
        **{"num_key_value_heads": 1, "head_dim": 8, "vocab_size": 50, "hidden_size_per_layer_input": 4},
        vocab_size_per_layer_input=50,
    )
    AutoModelForCausalLM.from_config(config).save_pretrained(tmp_path)
    cased_tokenizer().save_pretrained(tmp_path)
    with pytest.raises(ModelError, match="it did not pass the self-check"):  # and it is built, to find that out
        load(tmp_path)
