"""What a checkpoint holds beside the network that is opened."""

import json

import pytest
import torch
from safetensors.torch import load_file, save_file

import layerscope as ls
from layerscope.cutting.costs import Costs
from layerscope.errors import ModelError
from layerscope.models.extras import extras, float_type, saved_weights
from tests.helpers.checkpoints import numbers_in
from tests.helpers.models import random_network, save_random, word_tokenizer


def add(folder, **tensors):
    path = folder / "model.safetensors"
    save_file({**load_file(path), **{k.replace("__", "."): v for k, v in tensors.items()}}, path, {"format": "pt"})


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16, torch.float32])
@pytest.mark.parametrize("family", ["gpt2", "llama"])
def test_a_checkpoint_is_saved_in_its_own_float_type(family, dtype, tmp_path):
    random_network(family, "next").to(dtype).save_pretrained(tmp_path / "whole")
    word_tokenizer(family).save_pretrained(tmp_path / "whole")
    assert float_type(tmp_path / "whole") == dtype
    model = ls.load(tmp_path / "whole")
    assert model.network.dtype == torch.float32
    ls.save(ls.truncate(model, 2), tmp_path / "half")
    saved = load_file(tmp_path / "half" / "model.safetensors")
    assert {tensor.dtype for tensor in saved.values()} == {dtype}
    assert json.loads((tmp_path / "half" / "config.json").read_text())["dtype"] == str(dtype).removeprefix("torch.")
    sizes = [(tmp_path / name / "model.safetensors").stat().st_size for name in ("half", "whole")]
    assert sizes[0] < sizes[1]


def test_weights_that_do_not_fit_into_it_are_saved_as_they_are(tmp_path):
    random_network("llama", "next").to(torch.bfloat16).save_pretrained(tmp_path / "whole")
    network = ls.load(tmp_path / "whole").network
    with torch.no_grad():
        network.model.norm.weight += 1e-4  # as training would
    assert saved_weights(network)[1] == torch.float32
    narrow = ls.load(tmp_path / "whole", dtype="float16").network
    assert saved_weights(narrow)[1] == torch.float16


def test_tied_weights_are_written_once(tmp_path):
    random_network("gpt2", "next").to(torch.bfloat16).save_pretrained(tmp_path / "whole")
    ls.save(ls.truncate(tmp_path / "whole", 1), tmp_path / "small")
    assert "lm_head.weight" not in load_file(tmp_path / "small" / "model.safetensors")
    again = ls.load(tmp_path / "small").network
    assert again.lm_head.weight is again.transformer.wte.weight


def test_the_tensors_of_other_heads_come_along(tmp_path):
    save_random(tmp_path / "whole", "bert", "masked")
    other = {"cls__seq_relationship__weight": torch.ones(2, 32), "bert__pooler__dense__weight": torch.ones(32, 32)}
    add(tmp_path / "whole", **other)
    model = ls.load(tmp_path / "whole")
    assert set(extras(model.network).tensors) == {name.replace("__", ".") for name in other}
    saved = load_file(ls.save(ls.truncate(model, 2), tmp_path / "small") / "model.safetensors")
    assert all(torch.equal(saved[name.replace("__", ".")], tensor) for name, tensor in other.items())


def test_parameters_are_counted_alike_before_and_after_saving(tmp_path):
    save_random(tmp_path / "whole", "bert", "encoder")
    path = tmp_path / "whole" / "model.safetensors"
    tensors = {name: tensor for name, tensor in load_file(path).items() if not name.startswith("pooler.")}
    save_file({**tensors, "embeddings.position_ids": torch.arange(8)}, path, {"format": "pt"})
    count = sum(tensor.numel() for tensor in tensors.values())
    model = ls.load(tmp_path / "whole")
    everything = ls.LayerPlan(range(1, model.depth + 1))
    assert ls.describe(model).facts["parameters"] == Costs(model).parameters(everything) == count
    ls.save(model, tmp_path / "saved")
    ls.cut_folder(tmp_path / "whole", everything, tmp_path / "cut")
    assert numbers_in(tmp_path / "saved") == count
    for folder in (tmp_path / "saved", tmp_path / "cut"):
        assert json.loads((folder / "layerscope.json").read_text())["parameters"] == count


def test_only_saving_refuses_a_head_that_was_not_opened(tmp_path):
    save_random(tmp_path / "whole", "bert", "masked")
    path = tmp_path / "whole" / "config.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | {"architectures": ["BertForEverything"]}))
    smaller = ls.truncate(tmp_path / "whole", 2)
    with pytest.raises(ModelError, match=r"BertForEverything .*its head was not opened and would be lost: .*cls\."):
        ls.save(smaller, tmp_path / "small")
    assert not (tmp_path / "small").exists()


def test_a_way_of_generating_and_a_chat_template_come_along(tmp_path):
    network, tokenizer = random_network("llama", "next"), word_tokenizer("llama")
    network.generation_config.update(temperature=0.7, do_sample=True, top_p=0.8)
    network.save_pretrained(tmp_path / "whole")
    tokenizer.chat_template = "{% for m in messages %}{{ m.content }}{% endfor %}"
    tokenizer.save_pretrained(tmp_path / "whole")
    folder = ls.save(ls.skip(tmp_path / "whole", 2, 3), tmp_path / "small")
    kept = json.loads((folder / "generation_config.json").read_text())
    assert (kept["temperature"], kept["top_p"], kept["do_sample"]) == (0.7, 0.8, True)
    again = ls.load(folder)
    assert again.network.generation_config.top_p == 0.8
    assert again.tokenizer.apply_chat_template([{"content": "a file"}], tokenize=False) == "a file"


def without_pooler(folder):
    """A bare encoder in float16 whose file has no pooler, as many embedding models are published."""
    save_random(folder, "bert", "encoder")
    weights = load_file(folder / "model.safetensors")
    kept = {name: tensor.half() for name, tensor in weights.items() if not name.startswith("pooler.")}
    save_file(kept, folder / "model.safetensors", metadata={"format": "pt"})
    return folder, kept


def test_a_pooler_that_no_file_has_is_not_made_up_on_saving(tmp_path):
    folder, kept = without_pooler(tmp_path / "whole")
    ls.save(ls.load(folder, seed=1), tmp_path / "again")
    again = load_file(tmp_path / "again" / "model.safetensors")
    assert again.keys() == kept.keys()
    assert {tensor.dtype for tensor in again.values()} == {torch.float16}
    ls.save(ls.truncate(folder, 2), tmp_path / "smaller")
    assert not any("pooler" in name for name in load_file(tmp_path / "smaller" / "model.safetensors"))
    changed = ls.load(folder)
    with torch.no_grad():
        changed.network.pooler.dense.weight.add_(1)
    ls.save(changed, tmp_path / "changed")  # what was trained since is kept whole
    names = {name for name in load_file(tmp_path / "changed" / "model.safetensors") if "pooler" in name}
    assert names == {"pooler.dense.weight", "pooler.dense.bias"}
    assert torch.equal(ls.load(tmp_path / "changed").network.pooler.dense.weight, changed.network.pooler.dense.weight)
