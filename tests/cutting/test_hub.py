"""`ls.push`: the real client against a small hub on this machine."""

import shutil

import pytest
from huggingface_hub import constants

import layerscope as ls
from layerscope.errors import ModelError
from tests.helpers.checkpoints import HUB_TOKEN, serve_hub
from tests.helpers.models import save_random


@pytest.fixture
def hub(tmp_path, monkeypatch):
    """A small hub that this process talks to, and the folder of its models."""
    with serve_hub(tmp_path / "hub") as (address, requests):
        monkeypatch.setattr(constants, "ENDPOINT", address)
        monkeypatch.setattr(constants, "HF_HUB_OFFLINE", False)
        monkeypatch.setenv("HF_TOKEN", HUB_TOKEN)
        yield tmp_path / "hub" / "models", requests


@pytest.fixture(scope="module")
def saved(tmp_path_factory):
    place = tmp_path_factory.mktemp("saved")
    return ls.save(ls.skip(save_random(place / "base", "bert", labels=2), 2, 3), place / "small")


def test_a_checkpoint_goes_to_a_private_repository_and_its_card_says_how_to_open_it(hub, saved):
    place, _ = hub
    address = ls.push(saved, "org/small")
    assert address.endswith("/org/small")
    names = {path.name for path in saved.iterdir()}
    assert {path.name for path in (place / "org" / "small").iterdir()} == names
    for name in names - {"README.md"}:
        assert (place / "org" / "small" / name).read_bytes() == (saved / name).read_bytes()
    card = (place / "org" / "small" / "README.md").read_text()
    assert 'AutoModelForSequenceClassification.from_pretrained("org/small")' in card
    with pytest.raises(ls.LayerscopeError, match="may not write there"):
        ls.push(saved, "org/small", token="hf_another")
    ls.push(saved, "mine")
    assert (place / "me" / "mine" / "layerscope.json").is_file()


def test_weights_of_an_earlier_model_do_not_stay(hub, saved):
    place, _ = hub
    ls.push(saved, "org/small")
    for name in ("model-00001-of-00002.safetensors", "pytorch_model.bin", "notes.txt"):
        (place / "org" / "small" / name).write_text("old")
    ls.push(saved, "org/small", message="Again")
    left = {path.name for path in (place / "org" / "small").iterdir()}
    assert "notes.txt" in left
    assert not left & {"model-00001-of-00002.safetensors", "pytorch_model.bin"}


def test_what_is_public_already_is_not_written_to_unless_that_is_meant(hub, saved):
    _, requests = hub
    ls.push(saved, "org/open", private=False)
    done = len(requests)
    with pytest.raises(ls.LayerscopeError, match="org/open is there already, and everyone may read it"):
        ls.push(saved, "org/open")
    assert not any("commit" in request for request in requests[done:])
    ls.push(saved, "org/open", private=False)


def test_what_cannot_be_put_there(hub, saved, tmp_path, monkeypatch):
    with pytest.raises(ls.LayerscopeError, match="not the name of a repository"):
        ls.push(saved, "not/a/name")
    with pytest.raises(ls.LayerscopeError, match="not a checkpoint that layerscope saved"):
        ls.push(tmp_path, "org/other")
    (tmp_path / "adapter").mkdir()
    with pytest.raises(ls.LayerscopeError, match="holds an adapter and no whole checkpoint"):
        ls.push(tmp_path, "org/other")
    damaged = shutil.copytree(saved, tmp_path / "damaged")
    (damaged / "layerscope.json").write_text('{"steps": 3}')
    with pytest.raises(ls.LayerscopeError, match="is damaged"):
        ls.push(damaged, "org/other")
    monkeypatch.setattr(constants, "HF_HUB_OFFLINE", True)
    with pytest.raises(ls.LayerscopeError, match="HF_HUB_OFFLINE is set"):
        ls.push(saved, "org/other")


def test_a_file_that_only_a_link_leads_to_is_not_put_there(hub, saved, tmp_path):
    place, _ = hub
    (tmp_path / "private").write_text("secret")
    sent = shutil.copytree(saved, tmp_path / "sent")
    (sent / "notes.txt").symlink_to(tmp_path / "private")
    with pytest.raises(ModelError, match=r"notes\.txt is a link to .*private"):
        ls.push(sent, "org/sent")
    assert not (place / "org" / "sent").exists()


def test_without_a_token_a_sentence_says_how_to_get_one(hub, saved, monkeypatch, tmp_path):
    monkeypatch.delenv("HF_TOKEN")
    monkeypatch.setattr(constants, "HF_TOKEN_PATH", str(tmp_path / "none"))
    with pytest.raises(ls.LayerscopeError, match="log in with a token that may write"):
        ls.push(saved, "org/other")


def test_a_hub_that_cannot_be_reached(hub, saved, monkeypatch):
    monkeypatch.setattr(constants, "ENDPOINT", "http://127.0.0.1:9")
    with pytest.raises(ls.LayerscopeError, match="org/other cannot be written to"):
        ls.push(saved, "org/other")
