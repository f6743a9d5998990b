"""A checkpoint cut on disk is the one that is cut in memory, and nothing of it is built on the way."""

import json

import pytest
import torch
import transformers
from safetensors.torch import load_file, save_file

import layerscope as ls
from layerscope.cutting import cut_on_disk
from layerscope.errors import LayerscopeError
from tests.helpers.models import random_model, save_random, token_batch

PLANS = {
    "bert": [1, 2, 4],
    "roberta": [2],
    "albert": [1, 2],
    "deberta-v2": [1, 4],
    "distilbert": [1, 3],
    "gpt2": [2, 4],
}
MORE = {
    "modernbert": [1, 2, 3],
    "xlnet": [3, 4],
    "llama": [1, 4],
    "qwen3": [1, 2, 4],
    "openai-gpt": [4],
    "electra": [2],
}


def weights(folder):
    return {name: t for file in sorted(folder.glob("*.safetensors")) for name, t in load_file(file).items()}


@pytest.mark.parametrize(("family", "keep"), [*PLANS.items(), *MORE.items()])
def test_it_is_the_model_that_is_cut_in_memory(tmp_path, family, keep):
    whole = save_random(tmp_path / "whole", family)
    plan = ls.LayerPlan(keep)
    on_disk = ls.cut_folder(whole, plan, tmp_path / "on-disk")
    in_memory = ls.save(ls.cut(whole, plan), tmp_path / "in-memory")
    ours, theirs = weights(on_disk), weights(in_memory)
    assert ours.keys() == theirs.keys()
    assert all(torch.equal(ours[name], theirs[name]) for name in ours)
    batch = token_batch()
    answers = [ls.load(folder).network(**batch).logits for folder in (on_disk, in_memory)]
    assert torch.equal(*answers)
    assert ls.load(on_disk).tokenizer("a text")["input_ids"] == ls.load(whole).tokenizer("a text")["input_ids"]


def test_blocks_whose_kind_the_config_leaves_out_stay_what_they_were(tmp_path):
    window = {"sliding_window": 30, "use_sliding_window": True, "max_window_layers": 2}
    whole = save_random(tmp_path / "whole", "qwen3", "next", **window)
    file = tmp_path / "whole" / "config.json"
    config = json.loads(file.read_text())
    assert config.pop("layer_types") == ["full_attention"] * 2 + ["sliding_attention"] * 2
    file.write_text(json.dumps(config))
    plan = ls.LayerPlan([1, 3, 4])
    out = ls.cut_folder(whole, plan, tmp_path / "out")
    batch = token_batch(rows=1, length=60)  # the window hides nothing of a short text
    smaller = transformers.AutoModelForCausalLM.from_pretrained(out).eval()
    assert torch.equal(smaller(**batch).logits, ls.cut(whole, plan)(**batch).logits)


def test_files_stay_small_and_their_index_is_right(tmp_path, monkeypatch):
    whole = save_random(tmp_path / "whole", "llama", "next")
    monkeypatch.setattr(cut_on_disk, "MOST", 20_000)
    out = ls.cut_folder(whole, ls.LayerPlan([1, 3, 4]), tmp_path / "out")
    files = sorted(out.glob("*.safetensors"))
    assert len(files) > 2
    index = json.loads((out / "model.safetensors.index.json").read_text())
    assert {file.name for file in files} == set(index["weight_map"].values())
    assert all(name in load_file(out / file) for name, file in index["weight_map"].items())
    assert index["metadata"]["total_size"] == sum(t.nbytes for t in weights(out).values())
    network, info = transformers.AutoModelForCausalLM.from_pretrained(out, output_loading_info=True)
    assert not info["missing_keys"]
    assert not info["unexpected_keys"]
    assert network.config.num_hidden_layers == 3
    again = ls.cut_folder(out, ls.LayerPlan([2]), tmp_path / "again")  # from files and an index, too
    steps = json.loads((again / "layerscope.json").read_text())["steps"]
    assert [step["keep"] for step in steps] == [[1, 3, 4], [2]]


def test_the_float_type_and_tied_weights_stay_as_they_are(tmp_path):
    network = transformers.AutoModelForCausalLM.from_config(
        transformers.GPT2Config(n_layer=3, n_embd=16, n_head=2, n_positions=32, vocab_size=60), dtype=torch.bfloat16
    )
    network.save_pretrained(tmp_path / "whole")
    out = ls.cut_folder(tmp_path / "whole", ls.LayerPlan([1, 3]), tmp_path / "out")
    assert {t.dtype for t in weights(out).values()} == {torch.bfloat16}
    assert "lm_head.weight" not in weights(out)
    reopened = transformers.AutoModelForCausalLM.from_pretrained(out)
    assert reopened.lm_head.weight is reopened.transformer.wte.weight


def test_blocks_without_the_bodys_prefix_are_renumbered_too(tmp_path):
    whole = save_random(tmp_path / "whole", "gpt2", "next")
    file = tmp_path / "whole" / "model.safetensors"
    bare = {name.removeprefix("transformer."): tensor for name, tensor in load_file(file).items()}
    save_file(bare, file, metadata={"format": "pt"})
    out = ls.cut_folder(whole, ls.LayerPlan([2, 3]), tmp_path / "out")
    assert torch.equal(weights(out)["h.0.ln_1.weight"], bare["h.1.ln_1.weight"])
    assert ls.load(out).depth == 2


@pytest.mark.parametrize("large", [{"free_memory": lambda: 1}, {"LARGE": 1}], ids=["no memory", "many parameters"])
def test_a_large_model_is_compared_by_hashes_and_names_alone(large, tmp_path, monkeypatch, caplog):
    whole = save_random(tmp_path / "whole", "bert")
    for name, value in large.items():
        monkeypatch.setattr(cut_on_disk, name, value)
    monkeypatch.setattr(cut_on_disk, "load", lambda *_, **__: pytest.fail("a network was opened"))
    with caplog.at_level("INFO", "layerscope"):
        out = ls.cut_folder(whole, ls.LayerPlan([1, 2]), tmp_path / "out")
    assert "compared by its hash" in caplog.text
    renumbered = cut_on_disk.renumbered

    def one_less(*arguments):
        kept = renumbered(*arguments)
        return {name: place for name, place in kept.items() if not name.endswith("1.output.dense.bias")}

    monkeypatch.setattr(cut_on_disk, "renumbered", one_less)
    with pytest.raises(LayerscopeError, match=r"missing .*layer\.1\.output\.dense\.bias"):
        ls.cut_folder(whole, ls.LayerPlan([1, 2]), tmp_path / "other")
    assert not (tmp_path / "other").exists()
    monkeypatch.undo()
    assert ls.load(out).depth == 2


def test_what_cannot_be_cut_is_a_sentence_and_leaves_nothing(tmp_path, monkeypatch):
    whole = save_random(tmp_path / "whole", "modernbert")
    out = tmp_path / "out"
    for folder, plan, sentence in (
        (whole, ls.LayerPlan([2, 3]), "cannot lose block 1"),
        (whole, ls.LayerPlan([1, 9]), r"this model has blocks 1\.\.4"),
        (f"random:{whole}", ls.LayerPlan([1]), "has no weights on disk"),
        (whole, [1, 2], r"plan is \[1, 2\]; it must be a LayerPlan"),
    ):
        with pytest.raises(LayerscopeError, match=sentence):
            ls.cut_folder(folder, plan, out)
    monkeypatch.setattr(cut_on_disk.shutil, "disk_usage", lambda _: type("Usage", (), {"free": 10})())
    with pytest.raises(LayerscopeError, match="free some space"):
        ls.cut_folder(whole, ls.LayerPlan([1, 2]), out)
    assert [path.name for path in tmp_path.iterdir()] == ["whole"]


def test_a_file_that_changes_under_the_hand_is_not_saved(tmp_path, monkeypatch):
    whole = save_random(tmp_path / "whole", "bert")
    real = cut_on_disk.write_shard

    def failing(path, tensors):
        checksums = real(path, tensors)
        content = bytearray(path.read_bytes())
        content[-1] ^= 1
        path.write_bytes(content)
        return checksums

    monkeypatch.setattr(cut_on_disk, "write_shard", failing)
    with pytest.raises(LayerscopeError, match="the disk is failing"):
        ls.cut_folder(whole, ls.LayerPlan([1]), tmp_path / "out")
    assert not (tmp_path / "out").exists()


def test_blocks_that_the_files_do_not_have_are_a_sentence(tmp_path):
    whole = save_random(tmp_path / "whole", "bert")
    file = tmp_path / "whole" / "model.safetensors"
    fewer = {name: tensor for name, tensor in load_file(file).items() if ".layer.3." not in name}
    save_file(fewer, file, metadata={"format": "pt"})
    with pytest.raises(LayerscopeError, match="said to have 4 blocks, and its files name 3"):
        ls.cut_folder(whole, ls.LayerPlan([1]), tmp_path / "out")


def test_blocks_under_another_prefix_than_the_bodys_are_renumbered_where_there_is_one_alone():
    """Nemotron-H's files name blocks under `backbone`, and its network under `model`."""
    model = ls.load(random_model("llama").network, tokenizer=random_model("llama").tokenizer)
    assert model.network.base_model_prefix == "model"
    names = [f"backbone.layers.{k}.mlp.weight" for k in range(model.depth)]
    plan = ls.LayerPlan([1, model.depth])
    kept = cut_on_disk.renumbered(dict.fromkeys([*names, "backbone.norm.weight"]), model, plan)
    assert sorted(kept) == ["backbone.layers.0.mlp.weight", "backbone.layers.1.mlp.weight", "backbone.norm.weight"]
    both = [*names, *(name.replace("backbone", "vision") for name in names)]
    with pytest.raises(LayerscopeError, match="they cannot be renumbered on disk"):
        cut_on_disk.renumbered(dict.fromkeys(both), model, plan)
    own = [name.replace("backbone", "model") for name in names]
    kept = cut_on_disk.renumbered(dict.fromkeys([*own, "vision.layers.0.weight"]), model, plan)
    assert "vision.layers.0.weight" in kept
    assert len(kept) == 3
