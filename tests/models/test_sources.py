"""Where a model's files come from, and names that lead nowhere."""

import pytest
import torch
import zoo

from layerscope.errors import InputError, ModelError, UnknownNameError
from layerscope.models import load


def test_a_pickle_is_refused_with_the_way_to_convert_it(tmp_path):
    net = zoo.network("bert")
    net.config.save_pretrained(tmp_path)
    torch.save(net.state_dict(), tmp_path / "pytorch_model.bin")
    with pytest.raises(ModelError, match=r"pickle file \(pytorch_model.bin\).*save_pretrained"):
        load(tmp_path)


@pytest.mark.parametrize(
    ("content", "sentence"),
    [
        ({}, "no config.json"),
        ({"adapter_config.json": "{}"}, "peft adapter"),
        ({"config.json": '{"model_type": "bert"}'}, "no model.safetensors"),
    ],
)
def test_folders_that_are_no_checkpoints(content, sentence, tmp_path):
    for name, text in content.items():
        (tmp_path / name).write_text(text)
    with pytest.raises(ModelError, match=sentence):
        load(tmp_path)


def test_a_folder_of_checkpoints_leads_to_them(tmp_path):
    zoo.save(tmp_path / "checkpoint-500", "bert")
    with pytest.raises(ModelError, match="give one of those: checkpoint-500"):
        load(tmp_path)


def test_names_of_the_demo_that_lead_nowhere():
    for name in ("demo:minillm", "demo:MiniLM", "demo:"):
        with pytest.raises(UnknownNameError, match="there is one: demo:minilm"):
            load(name)
    with pytest.raises(InputError, match="leave @main out"):
        load("demo:minilm@main")


def test_names_that_lead_nowhere():
    with pytest.raises(ModelError, match="no folder 'no/such/folder/here'"):
        load("no/such/folder/here")
    with pytest.raises(ModelError, match=r"hub cannot be reached.*hf download org/model"):
        load("org/model")
    with pytest.raises(ModelError, match=r"HF_HUB_OFFLINE is set.*hf download org/model --revision v2"):
        load("org/model@v2")
    for name in ("random:", "@main", " "):
        with pytest.raises(InputError, match="names no model"):
            load(name)
    with pytest.raises(InputError, match="a dict was given"):
        load({})


def test_the_folder_of_a_tuned_run_is_its_checkpoint(tmp_path):
    zoo.save(tmp_path / "tuned" / "checkpoint", "bert", labels=2)
    assert load(tmp_path / "tuned").network.config.num_labels == 2
    (tmp_path / "empty").mkdir()
    with pytest.raises(ModelError, match=r"holds no config\.json"):
        load(tmp_path / "empty")
