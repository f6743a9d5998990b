import json

import pandas
import pytest
import torch
import transformers
from safetensors.torch import load_file, save_file

from layerscope.errors import ModelError
from layerscope.models import load
from layerscope.models.checkpoints import check_reads_text
from layerscope.models.fingerprint import fingerprint
from tests.helpers.models import CONFIGS, VOCABULARY, random_network, save_random, token_batch, word_tokenizer


def rewrite(folder, change):
    """Change the weights of a checkpoint on disk."""
    path = f"{folder}/model.safetensors"
    save_file(change(load_file(path)), path, metadata={"format": "pt"})


def reconfigure(folder, **changes):
    path = folder / "config.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | changes))


@pytest.mark.parametrize("kind", ["encoder", "masked", "next", "tags", "spans", "pretraining"])
def test_a_checkpoint_opens_as_the_class_that_its_config_names(kind, tmp_path):
    changes = {"is_decoder": True} if kind == "next" else {}
    network = random_network("bert", kind, **changes)
    network.save_pretrained(tmp_path)
    word_tokenizer().save_pretrained(tmp_path)
    model, twin = load(tmp_path), load(f"random:{tmp_path}")
    assert type(model.network) is type(network)
    assert type(twin.network) is type(network)
    weights = model.network.state_dict()
    assert all(torch.equal(tensor, weights[name]) for name, tensor in network.state_dict().items())


def test_a_class_that_transformers_has_not_opens_as_the_bare_network(tmp_path):
    save_random(tmp_path, "bert", "masked")
    reconfigure(tmp_path, architectures=["BertForEverything"])
    model = load(tmp_path)
    assert (type(model.network).__name__, model.head) == ("BertModel", "none")
    reconfigure(tmp_path, architectures=["RobertaForMaskedLM"])  # of another family than the config
    assert load(tmp_path).head == "none"


@pytest.mark.parametrize("method", ["gptq", "awq", "bitsandbytes"])
def test_quantised_checkpoints_are_refused_with_the_way_out(method, tmp_path):
    save_random(tmp_path, "llama", "next")
    reconfigure(tmp_path, quantization_config={"quant_method": method, "bits": 4})
    with pytest.raises(ModelError, match=rf"is quantised \({method}\).*the checkpoint that it was made from"):
        load(tmp_path)


def test_code_in_a_checkpoint_is_never_run(tmp_path):
    witness = tmp_path / "ran"
    (tmp_path / "evil.py").write_text(f"open({str(witness)!r}, 'w')\nclass Config: pass\nclass Net: pass\n")
    auto = {"AutoConfig": "evil.Config", "AutoModel": "evil.Net"}
    (tmp_path / "config.json").write_text(json.dumps({"model_type": "evil", "auto_map": auto}))
    save_file({"x": torch.zeros(1)}, tmp_path / "model.safetensors")
    with pytest.raises(ModelError, match="code from a checkpoint is never run"):
        load(tmp_path)
    assert not witness.exists()


@pytest.mark.parametrize("kind", ["classifier", "encoder"])
def test_missing_blocks_are_refused_not_filled_in(kind, tmp_path):
    save_random(tmp_path, "bert", kind)
    reconfigure(tmp_path, num_hidden_layers=5)
    with pytest.raises(ModelError, match=r"do not match its config.json: \d+ tensors are missing"):
        load(tmp_path)


@pytest.mark.parametrize("kind", ["classifier", "encoder"])
def test_blocks_that_the_config_does_not_know_are_refused(kind, tmp_path):
    save_random(tmp_path, "bert", kind)
    reconfigure(tmp_path, num_hidden_layers=3)
    with pytest.raises(ModelError, match=r"not in the model that the config describes .*encoder\.layer\.3"):
        load(tmp_path)


def test_a_classifier_without_its_head_is_refused(tmp_path):
    save_random(tmp_path, "bert")
    rewrite(tmp_path, lambda w: {k: v for k, v in w.items() if not k.startswith("classifier")})
    with pytest.raises(ModelError, match=r"2 tensors are missing \(such as classifier\.bias\)"):
        load(tmp_path)


def test_wrong_shapes_are_refused(tmp_path):
    save_random(tmp_path, "bert")
    reconfigure(tmp_path, intermediate_size=64)
    with pytest.raises(ModelError, match="do not have the shapes"):
        load(tmp_path)


def test_the_pooler_of_a_bare_encoder_may_be_missing_and_is_seeded(tmp_path):
    save_random(tmp_path, "bert", "encoder")
    rewrite(tmp_path, lambda w: {k: v for k, v in w.items() if "pooler" not in k})
    assert fingerprint(load(tmp_path)) == fingerprint(load(tmp_path))


@pytest.mark.parametrize(
    "content", [b"", b"version https://git-lfs.github.com/spec/v1\n", None], ids=["empty", "lfs", "cut"]
)
def test_weights_that_cannot_be_read_are_a_sentence(content, tmp_path):
    save_random(tmp_path, "bert")
    path = tmp_path / "model.safetensors"
    path.write_bytes(path.read_bytes()[:-100] if content is None else content)
    with pytest.raises(ModelError, match=r"model\.safetensors is damaged or not a safetensors file .* fetch it again"):
        load(tmp_path)


def test_a_missing_shard_is_named(tmp_path):
    save_random(tmp_path, "bert")
    names = list(load_file(tmp_path / "model.safetensors"))
    (tmp_path / "model.safetensors").rename(tmp_path / "model-00001-of-00002.safetensors")
    shards = {name: f"model-0000{1 + k % 2}-of-00002.safetensors" for k, name in enumerate(names)}
    (tmp_path / "model.safetensors.index.json").write_text(json.dumps({"metadata": {}, "weight_map": shards}))
    with pytest.raises(ModelError, match=r"cannot be read .*model-00002-of-00002\.safetensors"):
        load(tmp_path)


@pytest.mark.parametrize(
    ("content", "sentence"),
    [('{"model_type": "bert",', "is not JSON"), ("", "is not JSON"), ("[1]", "config.json is damaged")],
)
def test_a_broken_config_is_not_taken_for_an_unknown_architecture(content, sentence, tmp_path):
    save_random(tmp_path, "bert")
    (tmp_path / "config.json").write_text(content)
    with pytest.raises(ModelError, match=sentence):
        load(tmp_path)


def test_a_folder_without_tokenizer_files_gets_none_made_up(tmp_path):
    random_network("bert").save_pretrained(tmp_path)
    assert load(tmp_path).tokenizer is None


@pytest.mark.parametrize(
    ("family", "key"), [("gpt2", "transformer.h.0.attn.masked_bias"), ("openai-gpt", "transformer.h.0.attn.bias")]
)
def test_mask_buffers_of_old_checkpoints_are_no_weights(family, key, tmp_path):
    save_random(tmp_path, family)
    rewrite(tmp_path, lambda w: {**w, key: torch.zeros(1)})
    assert load(tmp_path).depth == 4


@pytest.mark.parametrize(
    ("family", "key", "changes"),
    [
        ("gpt_neo", "h.0.attn.attention.bias", {"attention_types": [[["global", "local"], 2]], "num_layers": 4}),
        ("gptj", "h.0.attn.masked_bias", {"rotary_dim": 4}),
        ("codegen", "h.0.attn.causal_mask", {"rotary_dim": 4}),
        ("gpt_bigcode", "h.0.attn.bias", {}),
    ],
)
def test_mask_buffers_of_unrecorded_families_are_no_weights(family, key, changes, tmp_path):
    from transformers import AutoConfig, AutoModel

    sizes = {**CONFIGS["gpt2"], "vocab_size": 60, "num_heads": 4, "hidden_size": 32, **changes}
    sizes = sizes if family == "gpt_neo" else {k: v for k, v in sizes.items() if k not in ("num_heads", "hidden_size")}
    AutoModel.from_config(AutoConfig.for_model(family, **sizes)).save_pretrained(tmp_path)
    rewrite(tmp_path, lambda w: {**w, key: torch.zeros(1)})
    assert load(tmp_path).depth == 4
    rewrite(tmp_path, lambda w: {**w, "h.0.attn.other.weight": torch.zeros(1)})
    with pytest.raises(ModelError, match=r"h\.0\.attn\.other"):
        load(tmp_path)


def test_a_tokenizer_without_a_vocabulary_file_is_one(tmp_path):
    from transformers import ByT5Tokenizer

    random_network("bert", vocab_size=400).save_pretrained(tmp_path)
    ByT5Tokenizer().save_pretrained(tmp_path)
    for left in ("added_tokens.json", "special_tokens_map.json", "tokenizer.json"):
        (tmp_path / left).unlink(missing_ok=True)
    assert load(tmp_path).require_tokenizer()("ab")["input_ids"] == ByT5Tokenizer()("ab")["input_ids"]


def test_a_config_that_asks_for_tuples_is_no_obstacle(tmp_path):
    import layerscope as ls

    save_random(tmp_path, "bert")
    reconfigure(tmp_path, return_dict=False)
    frame = pandas.DataFrame({"text": ["the file", "a list", "this"], "label": [0, 1, 2]})
    assert ls.evaluate(load(tmp_path), frame).n == 3
    with pytest.raises(ModelError, match=r"network\.config\.return_dict = True"):
        load(random_network("bert", return_dict=False))


_TEXT = {
    **{"num_hidden_layers": 2, "hidden_size": 16, "num_attention_heads": 2, "num_key_value_heads": 2, "head_dim": 8},
    **{"intermediate_size": 16, "vocab_size": len(VOCABULARY), "max_position_embeddings": 64},
}
_SEEN = {"num_hidden_layers": 1, "hidden_size": 16, "num_attention_heads": 2, "intermediate_size": 16}
_PICTURE = {**_SEEN, "image_size": 16, "patch_size": 8}
WRAPPERS = {
    "gemma3": {"text_config": _TEXT, "vision_config": _PICTURE, "mm_tokens_per_image": 4},
    "llava": {
        "text_config": {"model_type": "llama", **_TEXT},
        "vision_config": {"model_type": "clip_vision_model", **_PICTURE},
    },
    "mistral3": {
        "text_config": {"model_type": "mistral", **_TEXT},
        "vision_config": {"model_type": "pixtral", **_PICTURE, "head_dim": 8},
    },
}


@pytest.mark.parametrize("family", WRAPPERS)
def test_the_language_part_of_a_multimodal_model_opens_on_the_way_that_is_named(family, tmp_path, monkeypatch):
    torch.manual_seed(0)
    config = transformers.AutoConfig.for_model(family, **WRAPPERS[family])
    network = transformers.AutoModelForImageTextToText.from_config(config).eval()
    network.save_pretrained(tmp_path / "whole")
    word_tokenizer("llama").save_pretrained(tmp_path / "whole")
    monkeypatch.chdir(tmp_path)
    with pytest.raises(
        ModelError, match=r"no vocabulary of its own. Its language part is a \w+ForCausalLM; save"
    ) as told:
        load("whole")
    with pytest.raises(ModelError, match="Its language part is a"):
        load(network)
    classes = ("AutoTokenizer", "AutoModelForCausalLM", "AutoModelForImageTextToText")
    lines = str(told.value).partition("give its folder: ")[2].removesuffix(".")
    exec(lines, {name: getattr(transformers, name) for name in classes})
    part = load("language-part")
    ids = token_batch(rows=1)["input_ids"]
    types = {"token_type_ids": torch.zeros_like(ids)} if family == "gemma3" else {}
    with torch.inference_mode():
        expected = network(input_ids=ids, **types).logits
        torch.testing.assert_close(part.network(input_ids=ids).logits, expected, rtol=1e-4, atol=1e-5)
    assert part.tokenizer("the file")["input_ids"] == word_tokenizer("llama")("the file")["input_ids"]


def test_a_language_part_that_has_no_class_of_its_own_is_told():
    config = transformers.AutoConfig.for_model("qwen2_5_vl")
    with pytest.raises(ModelError, match=r"x \(qwen2_5_vl\) .* language part \(qwen2_5_vl_text\) .* no class"):
        check_reads_text(config, "x")


@pytest.mark.parametrize("name", ["tokenizer_config.json", "special_tokens_map.json"])
@pytest.mark.parametrize("content", [r'{"model_input_names": ["\ud83d"]}', "[]", "{", '{"a":' * 3000])
def test_tokenizer_settings_that_cannot_be_written_again_are_refused(name, content, tmp_path):
    """transformers takes half characters, and fails where it writes them: after a training, say."""
    save_random(tmp_path, "bert")
    (tmp_path / name).write_text(content)
    with pytest.raises(ModelError, match=f"{name} is damaged|{name} .*; fetch the checkpoint"):
        load(tmp_path)
