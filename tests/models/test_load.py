import json

import pandas
import pytest
import torch
import zoo
from safetensors.torch import load_file, save_file

from layerscope.errors import InputError, ModelError
from layerscope.models import load
from layerscope.models.identity import fingerprint


def rewrite(folder, change):
    """Change the weights of a checkpoint on disk."""
    path = f"{folder}/model.safetensors"
    save_file(change(load_file(path)), path, metadata={"format": "pt"})


def reconfigure(folder, **changes):
    path = folder / "config.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | changes))


@pytest.mark.parametrize("family", zoo.FAMILIES)
def test_every_family_opens_with_its_head_and_gives_the_saved_logits(family, tmp_path):
    net = zoo.network(family)
    net.save_pretrained(tmp_path)
    zoo.tokenizer(family).save_pretrained(tmp_path)
    model = load(str(tmp_path))
    assert type(model.network) is type(net)
    assert model.depth == 4
    assert model.width == 32
    assert not model.network.training
    with torch.inference_mode():
        torch.testing.assert_close(model.network(**zoo.inputs()).logits, net(**zoo.inputs()).logits)


def test_a_base_checkpoint_opens_as_a_bare_encoder(tmp_path):
    from transformers import BertForMaskedLM

    BertForMaskedLM(zoo.config("bert")).save_pretrained(tmp_path)
    zoo.tokenizer().save_pretrained(tmp_path)
    model = load(tmp_path)
    assert type(model.network).__name__ == "BertModel"
    assert not model.has_head


def test_half_precision_weights_open_in_float32_unless_asked(tmp_path):
    zoo.network("bert").to(torch.float16).save_pretrained(tmp_path)
    assert load(tmp_path).network.dtype == torch.float32
    assert load(tmp_path, dtype="bfloat16").network.dtype == torch.bfloat16
    with pytest.raises(InputError, match="no float type 'int8'"):
        load(tmp_path, dtype="int8")


def test_a_random_twin_has_the_architecture_and_its_seed_decides_the_weights(tmp_path):
    zoo.save(tmp_path, "bert")
    real, one, same, other = (
        load(s, seed=k) for s, k in ((str(tmp_path), 0), *((f"random:{tmp_path}", k) for k in (1, 1, 2)))
    )
    assert type(one.network) is type(real.network)
    assert fingerprint(one) == fingerprint(same)
    assert len({fingerprint(m) for m in (real, one, other)}) == 3


def test_a_random_twin_needs_no_weights(tmp_path):
    zoo.config("bert").save_pretrained(tmp_path)
    assert load(f"random:{tmp_path}").depth == 4


def test_loading_leaves_the_global_random_state_alone(tmp_path):
    zoo.save(tmp_path, "bert")
    torch.manual_seed(5)
    expected = torch.rand(3)
    torch.manual_seed(5)
    load(f"random:{tmp_path}", seed=1)
    assert torch.equal(torch.rand(3), expected)


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
    zoo.save(tmp_path, "bert", kind)
    reconfigure(tmp_path, num_hidden_layers=5)
    with pytest.raises(ModelError, match=r"do not match its config.json: \d+ tensors are missing"):
        load(tmp_path)


@pytest.mark.parametrize("kind", ["classifier", "encoder"])
def test_blocks_that_the_config_does_not_know_are_refused(kind, tmp_path):
    zoo.save(tmp_path, "bert", kind)
    reconfigure(tmp_path, num_hidden_layers=3)
    with pytest.raises(ModelError, match=r"not in the model that the config describes .*encoder\.layer\.3"):
        load(tmp_path)


def test_a_classifier_without_its_head_is_refused(tmp_path):
    zoo.save(tmp_path, "bert")
    rewrite(tmp_path, lambda w: {k: v for k, v in w.items() if not k.startswith("classifier")})
    with pytest.raises(ModelError, match=r"2 tensors are missing \(such as classifier\.bias\)"):
        load(tmp_path)


def test_wrong_shapes_are_refused(tmp_path):
    zoo.save(tmp_path, "bert")
    reconfigure(tmp_path, intermediate_size=64)
    with pytest.raises(ModelError, match="do not have the shapes"):
        load(tmp_path)


def test_the_pooler_of_a_bare_encoder_may_be_missing_and_is_seeded(tmp_path):
    zoo.save(tmp_path, "bert", "encoder")
    rewrite(tmp_path, lambda w: {k: v for k, v in w.items() if "pooler" not in k})
    assert fingerprint(load(tmp_path)) == fingerprint(load(tmp_path))


@pytest.mark.parametrize(
    "content", [b"", b"version https://git-lfs.github.com/spec/v1\n", None], ids=["empty", "lfs", "cut"]
)
def test_weights_that_cannot_be_read_are_a_sentence(content, tmp_path):
    zoo.save(tmp_path, "bert")
    path = tmp_path / "model.safetensors"
    path.write_bytes(path.read_bytes()[:-100] if content is None else content)
    with pytest.raises(ModelError, match=r"The weights of .* cannot be read .* fetch it again"):
        load(tmp_path)


def test_a_missing_shard_is_named(tmp_path):
    zoo.save(tmp_path, "bert")
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
    zoo.save(tmp_path, "bert")
    (tmp_path / "config.json").write_text(content)
    with pytest.raises(ModelError, match=sentence):
        load(tmp_path)


def test_seeds_out_of_range_are_a_sentence(tmp_path):
    zoo.save(tmp_path, "bert")
    for seed in (-1, 1 << 32, 1.5, None):
        with pytest.raises(InputError, match="from 0 to 4294967295"):
            load(tmp_path, seed=seed)


def test_a_loaded_network_finds_its_tokenizer_or_says_that_it_has_none(tmp_path):
    from transformers import AutoModel

    zoo.save(tmp_path, "bert", "encoder")
    assert load(AutoModel.from_pretrained(tmp_path)).require_tokenizer() is not None
    bare = load(zoo.network("bert"))
    with pytest.raises(ModelError, match="pass tokenizer="):
        _ = bare.require_tokenizer()
    assert load(load(tmp_path).network).tokenizer is not None


def test_a_folder_without_tokenizer_files_gets_none_made_up(tmp_path):
    zoo.network("bert").save_pretrained(tmp_path)
    assert load(tmp_path).tokenizer is None


def test_live_adapters_are_refused_with_the_way_to_merge():
    from peft import LoraConfig, get_peft_model

    with pytest.raises(InputError, match="merge_and_unload"):
        load(get_peft_model(zoo.network("bert"), LoraConfig(target_modules=["query"])))


@pytest.mark.parametrize(
    ("family", "key"), [("gpt2", "transformer.h.0.attn.masked_bias"), ("openai-gpt", "transformer.h.0.attn.bias")]
)
def test_mask_buffers_of_old_checkpoints_are_no_weights(family, key, tmp_path):
    zoo.save(tmp_path, family)
    rewrite(tmp_path, lambda w: {**w, key: torch.zeros(1)})
    assert load(tmp_path).depth == 4


def test_a_loaded_model_is_used_as_it_is(tmp_path):
    net = zoo.network("bert").train()
    model = load(net)
    assert net.training
    with pytest.raises(InputError, match=r"loaded in torch.float32; convert it yourself"):
        load(model, dtype=torch.float64)
    with pytest.raises(InputError, match="loaded on cpu; move it yourself"):
        load(model, device="meta")


def test_a_tokenizer_may_be_named(tmp_path):
    zoo.save(tmp_path, "bert")
    assert load(zoo.network("bert"), tokenizer=str(tmp_path)).require_tokenizer().vocab_size > 5


@pytest.mark.parametrize(("pad", "positions"), [(0, 89), (1, 88), (4, 85), (-1, 90)])
def test_robertas_positions_start_after_its_padding_token(pad, positions):
    model = load(zoo.network("roberta", "encoder", pad_token_id=pad))
    assert model.positions == positions
    ids = torch.full((1, positions), 7)
    with torch.inference_mode():
        model.network(input_ids=ids)
        with pytest.raises((IndexError, RuntimeError)):
            model.network(input_ids=ids.repeat(1, 2)[:, : positions + 1])


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

    sizes = {**zoo.CONFIGS["gpt2"], "vocab_size": 60, "num_heads": 4, "hidden_size": 32, **changes}
    sizes = sizes if family == "gpt_neo" else {k: v for k, v in sizes.items() if k not in ("num_heads", "hidden_size")}
    AutoModel.from_config(AutoConfig.for_model(family, **sizes)).save_pretrained(tmp_path)
    rewrite(tmp_path, lambda w: {**w, key: torch.zeros(1)})
    assert load(tmp_path).depth == 4
    rewrite(tmp_path, lambda w: {**w, "h.0.attn.other.weight": torch.zeros(1)})
    with pytest.raises(ModelError, match=r"h\.0\.attn\.other"):
        load(tmp_path)


def test_a_tokenizer_without_a_vocabulary_file_is_one(tmp_path):
    from transformers import ByT5Tokenizer

    zoo.network("bert", vocab_size=400).save_pretrained(tmp_path)
    ByT5Tokenizer().save_pretrained(tmp_path)
    for left in ("added_tokens.json", "special_tokens_map.json", "tokenizer.json"):
        (tmp_path / left).unlink(missing_ok=True)
    assert load(tmp_path).require_tokenizer()("ab")["input_ids"] == ByT5Tokenizer()("ab")["input_ids"]


def test_a_config_that_asks_for_tuples_is_no_obstacle(tmp_path):
    import layerscope as ls

    zoo.save(tmp_path, "bert")
    reconfigure(tmp_path, return_dict=False)
    frame = pandas.DataFrame({"text": ["the file", "a list", "this"], "label": [0, 1, 2]})
    assert ls.evaluate(load(tmp_path), frame).n == 3
    with pytest.raises(ModelError, match=r"network\.config\.return_dict = True"):
        load(zoo.network("bert", return_dict=False))
