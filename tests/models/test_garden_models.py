"""`garden:` names, in Python and on the command line."""

import importlib.util
import json

import layerscope_garden
import pytest
import torch
from transformers import BertConfig, BertForMaskedLM
from typer.testing import CliRunner

import layerscope as ls
from layerscope.cli import app
from layerscope.errors import InputError, ModelError, UnknownNameError


@pytest.fixture
def garden(tmp_path, monkeypatch):
    config = BertConfig(vocab_size=40, hidden_size=16, num_hidden_layers=2, num_attention_heads=2, intermediate_size=32)
    BertForMaskedLM(config).half().save_pretrained(tmp_path / "bert-s0")
    card = {
        "name": "bert-s0",
        "objective": "masked",
        "parameters": 1000,
        "tokens": 5000,
        "seed": 0,
        "held_out": {"loss": 2.91234},
        "scores": {"sst2": {"seeds": {"0": 0.8, "1": 0.9}, "random": 0.5, "majority": 0.5}},
    }
    (tmp_path / "bert-s0" / "card.json").write_text(json.dumps(card))
    (tmp_path / "unfinished").mkdir()
    monkeypatch.setattr(layerscope_garden, "folder", lambda: tmp_path)
    return tmp_path


def test_a_model_of_the_garden_opens_by_name(garden):
    model, same = ls.load("garden:bert-s0"), ls.load(str(garden / "bert-s0"))
    assert model.name == "garden:bert-s0"
    name = "bert.encoder.layer.1.output.dense.weight"
    assert torch.equal(model.network.state_dict()[name], same.network.state_dict()[name])
    assert model.network.dtype == torch.float32


def test_its_untrained_twin_opens_too(garden):
    model, twin, again = (ls.load(name) for name in ("garden:bert-s0", *["random:garden:bert-s0"] * 2))
    name = "bert.encoder.layer.1.output.dense.weight"
    assert twin.depth == model.depth
    assert not torch.equal(model.network.state_dict()[name], twin.network.state_dict()[name])
    assert torch.equal(again.network.state_dict()[name], twin.network.state_dict()[name])


def test_other_names_and_revisions_are_refused(garden):
    with pytest.raises(UnknownNameError, match="Did you mean 'bert-s0'"):
        ls.load("garden:bert-s1")
    with pytest.raises(InputError, match="leave @main out"):
        ls.load("garden:bert-s0@main")
    with pytest.raises(KeyError, match="it has bert-s0"):
        layerscope_garden.path("unfinished")


def test_without_the_package_the_way_out_is_said(monkeypatch):
    found = importlib.util.find_spec
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None if name == "layerscope_garden" else found(name))
    with pytest.raises(ModelError, match=r"pip install \./garden"):
        ls.load("garden:bert-s0")


def test_the_command_lists_the_garden(garden):
    done = CliRunner().invoke(app, ["models", "--garden", "--format", "json"])
    assert done.exit_code == 0, done.output
    (row,) = json.loads(done.output)["table"]
    assert row["model"] == "garden:bert-s0"
    assert row["held_out_loss"] == 2.912
    assert row["sst2"] == 0.85
