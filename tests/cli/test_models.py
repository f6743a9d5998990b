"""`layerscope models`"""

import json
from pathlib import Path

import pytest

from tests.helpers.cli import run_here
from tests.helpers.models import FAMILIES, random_network, save_random, word_tokenizer


def test_models(model):
    families = {r["family"] for r in json.loads(run_here("models", "--format", "json").stdout)["table"]}
    assert families >= set(FAMILIES)
    record = json.loads(run_here("models", model, "--format", "json").stdout)["table"][0]
    assert record["self_check"] == "passed: its blocks can be run one by one"
    assert record["blocks"] == "1..4 at encoder.layer"


def test_an_encoder_has_no_head(tmp_path):
    random_network("bert", "encoder").save_pretrained(tmp_path)
    word_tokenizer().save_pretrained(tmp_path)
    assert json.loads(run_here("models", tmp_path, "--format", "json").stdout)["table"][0]["head"] == "none"


def test_a_model_and_the_garden_are_not_listed_at_once(model):
    done = run_here("models", model, "--garden")
    assert done.returncode == 2
    assert "--garden lists all its models; leave out" in done.stderr


@pytest.mark.parametrize("family", ["gpt2", "llama"])
def test_models_checks_a_classifier_without_a_padding_token(family, tmp_path):
    save_random(tmp_path, family, pad_token_id=None)
    result = run_here("models", tmp_path)
    assert result.returncode == 0
    assert "passed: its blocks can be run one by one" in result.stdout


def test_what_layerscope_saved_says_what_it_was_made_from(classifier, words, tmp_path):
    folder = tmp_path / "small"
    run_here("skip", classifier, "--blocks", "2-3", "--task", words, "--save", folder)
    shown = run_here("models", folder).stdout
    name = Path(classifier).name
    assert f"keep 1, 4, head on layer 4 (of the 4 blocks of {name})" in shown
    assert "licence" in shown
    assert "accuracy" in shown
    record = json.loads(run_here("models", folder, "--format", "json").stdout)["table"][0]["made_from"]
    assert record["base"]["name"] == name
    assert record["steps"][0]["keep"] == [1, 4]
    assert record["scores"][0]["metric"] == "accuracy"
    assert "made_from" not in json.loads(run_here("models", classifier, "--format", "json").stdout)["table"][0]


def test_models_names_those_that_can_be_tried():
    said = " ".join(run_here("models").stdout.split())
    assert "demo:minilm (an embedding model of 6 blocks), demo:smollm2 (SmolLM2-135M-Instruct" in said
