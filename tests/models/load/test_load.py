import shutil

import pytest
import torch

from layerscope.errors import InputError, ModelError
from layerscope.models import load
from layerscope.models.fingerprint import fingerprint
from layerscope.models.load import load_trainable
from tests.helpers.checkpoints import numbers_in
from tests.helpers.models import FAMILIES, random_config, random_network, save_random, token_batch, word_tokenizer


@pytest.mark.parametrize("family", FAMILIES)
def test_every_family_opens_with_its_head_and_gives_the_saved_logits(family, tmp_path):
    net = random_network(family)
    net.save_pretrained(tmp_path)
    word_tokenizer(family).save_pretrained(tmp_path)
    model = load(str(tmp_path))
    assert type(model.network) is type(net)
    assert model.depth == 4
    assert model.width == 32
    assert not model.network.training
    with torch.inference_mode():
        torch.testing.assert_close(model.network(**token_batch()).logits, net(**token_batch()).logits)


def test_half_precision_weights_open_in_float32_unless_asked(tmp_path):
    random_network("bert").to(torch.float16).save_pretrained(tmp_path)
    assert load(tmp_path).network.dtype == torch.float32
    assert load(tmp_path, dtype="bfloat16").network.dtype == torch.bfloat16
    with pytest.raises(InputError, match="no float type 'int8'"):
        load(tmp_path, dtype="int8")


@pytest.mark.parametrize("kept", [torch.bfloat16, torch.float16, torch.float32])
def test_a_large_checkpoint_opens_in_its_own_type_and_says_so(kept, tmp_path, monkeypatch, caplog):
    folder = save_random(tmp_path / "model", "llama", "next")
    network = load(folder).network.to(kept)
    network.save_pretrained(folder)
    monkeypatch.setattr("layerscope.models.checkpoints.LARGE", numbers_in(tmp_path / "model"))
    with caplog.at_level("DEBUG", "layerscope"):
        assert load(folder).network.dtype == torch.float32  # not over that many
    assert "its own float type" not in caplog.text
    monkeypatch.setattr("layerscope.models.checkpoints.LARGE", numbers_in(tmp_path / "model") - 1)
    with caplog.at_level("DEBUG", "layerscope"):
        opened = load(folder)
    assert opened.network.dtype == kept
    assert ("its own float type" in caplog.text) == (kept != torch.float32)
    assert opened.described()["dtype"] == str(kept).removeprefix("torch.")
    assert (opened.spec() == load(folder, dtype="float32").spec()) == (kept == torch.float32)
    assert load(f"random:{folder}").network.dtype == kept
    (tmp_path / "model" / "model.safetensors").unlink()
    assert load(f"random:{folder}").network.dtype == kept  # by its config, as there are no weights
    assert load(opened).network.dtype == kept
    if kept != torch.float32:
        with pytest.raises(InputError, match="convert it yourself"):
            load(opened, dtype="float32")


def test_what_trains_the_weights_themselves_opens_them_in_float32(tmp_path, monkeypatch):
    folder = save_random(tmp_path / "model", "bert")
    load(folder).network.to(torch.bfloat16).save_pretrained(folder)
    monkeypatch.setattr("layerscope.models.checkpoints.LARGE", 1)
    assert load_trainable(folder, "tuning").network.dtype == torch.float32
    with pytest.raises(ModelError, match="where tuning goes wrong"):
        load_trainable(load(folder), "tuning")


def test_a_random_twin_has_the_architecture_and_its_seed_decides_the_weights(tmp_path):
    save_random(tmp_path, "bert")
    real, one, same, other = (
        load(s, seed=k) for s, k in ((str(tmp_path), 0), *((f"random:{tmp_path}", k) for k in (1, 1, 2)))
    )
    assert type(one.network) is type(real.network)
    assert fingerprint(one) == fingerprint(same)
    assert len({fingerprint(m) for m in (real, one, other)}) == 3


def test_twins_of_two_seeds_of_one_architecture_differ_and_a_copy_has_the_same(tmp_path):
    for seed in (0, 1):
        save_random(tmp_path / f"s{seed}", "bert", seed=seed)
    shutil.copytree(tmp_path / "s0", tmp_path / "copy")
    first, second, copy = (load(f"random:{tmp_path / name}") for name in ("s0", "s1", "copy"))
    assert fingerprint(first) != fingerprint(second)
    assert fingerprint(first) == fingerprint(copy)
    weights = [m.network.get_input_embeddings().weight for m in (first, second)]
    both = torch.stack([w.flatten() for w in weights])
    assert abs(torch.corrcoef(both)[0, 1]) < 0.1  # drawn anew, not shifted


def test_a_random_twin_needs_no_weights(tmp_path):
    random_config("bert").save_pretrained(tmp_path)
    assert load(f"random:{tmp_path}").depth == 4
    assert fingerprint(load(f"random:{tmp_path}")) != fingerprint(load(f"random:{tmp_path}", seed=1))


def test_loading_leaves_the_global_random_state_alone(tmp_path):
    save_random(tmp_path, "bert")
    torch.manual_seed(5)
    expected = torch.rand(3)
    torch.manual_seed(5)
    load(f"random:{tmp_path}", seed=1)
    assert torch.equal(torch.rand(3), expected)


def test_seeds_out_of_range_are_a_sentence(tmp_path):
    save_random(tmp_path, "bert")
    for seed in (-1, 1 << 32, 1.5, None):
        with pytest.raises(InputError, match="from 0 to 4294967295"):
            load(tmp_path, seed=seed)


def test_a_loaded_network_finds_its_tokenizer_or_says_that_it_has_none(tmp_path):
    from transformers import AutoModel

    save_random(tmp_path, "bert", "encoder")
    assert load(AutoModel.from_pretrained(tmp_path)).require_tokenizer() is not None
    bare = load(random_network("bert"))
    with pytest.raises(ModelError, match="pass tokenizer="):
        _ = bare.require_tokenizer()
    assert load(load(tmp_path).network).tokenizer is not None


def test_live_adapters_are_refused_with_the_way_to_merge():
    from peft import LoraConfig, get_peft_model

    with pytest.raises(InputError, match="merge_and_unload"):
        load(get_peft_model(random_network("bert"), LoraConfig(target_modules=["query"])))


def test_a_loaded_model_is_used_as_it_is(tmp_path):
    net = random_network("bert").train()
    model = load(net)
    assert net.training
    with pytest.raises(InputError, match=r"loaded in torch.float32; convert it yourself"):
        load(model, dtype=torch.float64)
    with pytest.raises(InputError, match="loaded on cpu; move it yourself"):
        load(model, device="meta")


def test_a_tokenizer_may_be_named(tmp_path):
    save_random(tmp_path, "bert")
    assert load(random_network("bert"), tokenizer=str(tmp_path)).require_tokenizer().vocab_size > 5


@pytest.mark.parametrize(("pad", "positions"), [(0, 89), (1, 88), (4, 85), (-1, 90)])
def test_robertas_positions_start_after_its_padding_token(pad, positions):
    model = load(random_network("roberta", "encoder", pad_token_id=pad))
    assert model.positions == positions
    ids = torch.full((1, positions), 7)
    with torch.inference_mode():
        model.network(input_ids=ids)
        with pytest.raises((IndexError, RuntimeError)):
            model.network(input_ids=ids.repeat(1, 2)[:, : positions + 1])


def test_auto_is_the_only_device_where_there_is_one(tmp_path):
    save_random(tmp_path, "llama", "next")
    assert load(tmp_path, device="auto").device.type in ("cpu", "cuda", "mps")
