"""Models and data sets from a hub: the real client against a small hub on this machine."""

import os
import subprocess
import sys

import pandas
import pytest
import torch

from tests.helpers.checkpoints import HUB_SHA, serve_hub
from tests.helpers.models import random_network, save_random

CODE = """
import sys, torch
import layerscope as ls
try:
    {code}
except ls.LayerscopeError as error:
    print("ERROR", error)
"""


@pytest.fixture
def hub(tmp_path):
    """A hub with a model, a model that has only a pickle, and a data set; and a function to use it."""
    save_random(tmp_path / "models" / "org" / "good", "bert")
    (tmp_path / "models" / "org" / "good" / "pytorch_model.bin").write_bytes(b"never fetched")
    (tmp_path / "models" / "org" / "good" / "evil.py").write_text("raise SystemExit")
    pickled = tmp_path / "models" / "org" / "pickled"
    random_network("bert").config.save_pretrained(pickled)
    torch.save({}, pickled / "pytorch_model.bin")
    data = tmp_path / "datasets" / "org" / "data" / "data"
    data.mkdir(parents=True)
    for split, n in (("train", 5), ("validation", 2)):
        frame = pandas.DataFrame({"text": [f"the file {i}" for i in range(n)], "label": [i % 2 for i in range(n)]})
        frame.to_parquet(data / f"{split}-00000-of-00001.parquet")
    with serve_hub(tmp_path) as (address, requests):

        def use(code, **environment):
            offline = {"HF_HUB_OFFLINE": "0", "HF_DATASETS_OFFLINE": "0", "HF_HUB_DISABLE_XET": "1"}
            done = subprocess.run(
                [sys.executable, "-c", CODE.format(code=code)],
                capture_output=True,
                text=True,
                env={**os.environ, **offline, "HF_ENDPOINT": address, "HF_HOME": str(tmp_path / "hf"), **environment},
                timeout=120,
                check=False,
            )
            return done.stdout + done.stderr[-2000:], requests

        yield use


def test_a_hub_id_and_a_revision_open(hub):
    out, requests = hub("m = ls.load('org/good@v2'); print(m.depth, m.name, m.has_head, m.tokenizer is not None)")
    assert "4 org/good@v2 True True" in out
    assert any("/revision/v2" in r for r in requests)
    assert any(f"/resolve/{HUB_SHA}/model.safetensors" in r for r in requests)
    fetched = [r for r in requests if "/resolve/" in r]
    assert not any("pytorch_model.bin" in r or "evil.py" in r for r in fetched)
    # What was fetched once is found without a network.
    out, _ = hub("print(ls.load('org/good@v2').depth)", HF_HUB_OFFLINE="1")
    assert "4" in out


def test_a_random_twin_of_a_hub_model_needs_its_config_only(hub):
    out, _ = hub("print(ls.load('random:org/pickled').depth)")
    assert "4" in out


@pytest.mark.parametrize(
    ("name", "sentence"),
    [
        ("org/pickled", "only as a pickle file (pytorch_model.bin)"),
        ("org/absent", "the hub has no model of that name"),
        ("org/good@v9", "no revision 'v9' of it"),
    ],
)
def test_what_the_hub_does_not_have_is_a_sentence(name, sentence, hub):
    out, _ = hub(f"ls.load({name!r})")
    assert out.startswith("ERROR")
    assert sentence in out


def test_a_data_set_of_the_hub(hub):
    out, _ = hub("t = ls.task('org/data'); print(t.splits, len(t.split()), t.split('train').labels.tolist())")
    assert "('train', 'validation') 2 [0, 1, 0, 1, 0]" in out


def test_a_data_set_that_the_hub_does_not_have(hub):
    out, _ = hub("ls.task('org/absent').split()")
    assert "ERROR The data set org/absent could not be fetched from the hub" in out
