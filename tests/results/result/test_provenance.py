"""What a result rests on: models with hashes, data, settings, versions; nothing of the machine."""

import json
from pathlib import Path

import pandas

import layerscope as ls
from layerscope.results.result import provenance_of, versions
from tests.helpers.models import random_network, save_random, word_tokenizer


def test_what_describes_itself_is_asked_and_what_is_described_is_taken():
    model = ls.load(random_network("bert", "encoder"), tokenizer=word_tokenizer())
    examples = ls.task(pandas.DataFrame({"text": ["a b", "c d"], "label": [0, 1]})).split()
    found = provenance_of([model, {"name": "other"}], examples, {"pool": "mean", "limit": None})
    assert found["models"][0]["weights"] == model.described()["weights"]
    assert found["models"][1] == {"name": "other"}
    assert (found["data"]["n"], found["data"]["fingerprint"]) == (2, examples.fingerprint)
    assert found["settings"] == {"pool": "mean"}  # what was not given is left out
    assert json.loads(json.dumps(found)) == found


def test_nothing_is_nothing():
    found = provenance_of()
    assert (found["models"], found["data"], found["settings"]) == ([], {}, {})


def test_a_model_of_a_folder_says_no_path_of_the_machine(tmp_path):
    folder = save_random(tmp_path / "some-model", "bert", labels=2)
    data = pandas.DataFrame({"text": ["the file", "a list"] * 4, "label": [0, 1] * 4})
    score = ls.evaluate(folder, data)
    said = json.dumps({**score.provenance, "models": [{**m, "name": ""} for m in score.provenance["models"]]})
    assert str(tmp_path) not in said
    assert str(Path.home()) not in said
    assert score.weights


def test_the_versions_are_those_in_use():
    import torch

    found = versions()
    assert found["layerscope"] == ls.__version__
    assert found["torch"] == torch.__version__
    assert list(found)[:2] == ["layerscope", "python"]
    found["layerscope"] = "edited"
    assert versions()["layerscope"] == ls.__version__
