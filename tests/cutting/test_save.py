"""A checkpoint gets its name only when it has been reopened and found equal."""

import pandas
import pytest
import torch

import layerscope as ls
from layerscope.errors import InputError, LayerscopeError, ModelError
from tests.helpers.models import random_network, save_random, word_tokenizer

DATA = pandas.DataFrame({"text": ["the file", "a list of it", "return this"] * 4, "label": [0, 1, 2] * 4})


@pytest.fixture
def model():
    return ls.load(random_network("bert"), tokenizer=word_tokenizer())


def test_scores_of_these_very_weights_are_on_the_card(model, tmp_path):
    smaller = ls.truncate(model, 2)
    score = ls.evaluate(smaller, DATA)
    card = (ls.save(smaller, tmp_path / "a", scores=score) / "README.md").read_text()
    assert f"| table | all | accuracy | {score:.4f} | 12 |" in card
    card = (ls.save(smaller, tmp_path / "c", scores=[score, score]) / "README.md").read_text()
    assert card.count("| table | all |") == 2
    with torch.no_grad():
        smaller.classifier.bias += 1
    with pytest.raises(InputError, match="is of other weights than those of"):
        ls.save(smaller, tmp_path / "b", scores=score)
    assert not (tmp_path / "b").exists()
    card = (ls.save(smaller, tmp_path / "b") / "README.md").read_text()
    assert "No score of these weights was given" in card


def test_a_tensor_that_is_lost_on_the_way_fails_the_save(model, tmp_path, monkeypatch):
    save = type(model.network).save_pretrained

    def lossy(self, folder, **options):
        return save(self, folder, state_dict={k: v for k, v in self.state_dict().items() if "layer.3" not in k})

    monkeypatch.setattr(type(model.network), "save_pretrained", lossy)
    with pytest.raises(ModelError, match="missing"):
        ls.save(model, tmp_path / "out")
    assert list(tmp_path.iterdir()) == []


def test_other_weights_fail_the_save(model, tmp_path, monkeypatch):
    save = type(model.network).save_pretrained

    def wrong(self, folder, **options):
        return save(self, folder, state_dict={k: v + 0.1 for k, v in self.state_dict().items()})

    monkeypatch.setattr(type(model.network), "save_pretrained", wrong)
    with pytest.raises(ModelError, match="reopens with other weights"):
        ls.save(model, tmp_path / "out")
    assert list(tmp_path.iterdir()) == []


def test_a_folder_that_layerscope_did_not_save_is_not_overwritten(model, tmp_path):
    original = save_random(tmp_path / "original", "bert")
    with pytest.raises(InputError, match="not overwritten"):
        ls.save(model, original)
    ls.save(model, tmp_path / "mine")
    ls.save(ls.truncate(model, 1), tmp_path / "mine")
    assert ls.load(str(tmp_path / "mine")).depth == 1
    (tmp_path / "file").write_text("x")
    with pytest.raises(LayerscopeError):
        ls.save(model, tmp_path / "file" / "inside")


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_half_precision_stays(model, dtype, tmp_path):
    smaller = ls.truncate(ls.load(model.network.to(dtype), tokenizer=word_tokenizer()), 2)
    assert smaller.dtype == dtype
    folder = ls.save(smaller, tmp_path / "half")
    assert ls.load(str(folder), dtype=dtype).network.dtype == dtype


def test_pairs_of_types_that_the_model_does_not_have_are_not_fed(tmp_path):
    model = ls.load(random_network("roberta", type_vocab_size=1), tokenizer=word_tokenizer())
    assert ls.load(ls.save(model, tmp_path / "saved")).depth == 4


def test_the_tokenizer_that_is_saved_does_not_depend_on_what_it_read(tmp_path):
    model = ls.load(random_network("bert"), tokenizer=word_tokenizer())
    ls.save(model, tmp_path / "before")
    model.tokenizer(["the file", "a list of value"], truncation=True, max_length=4, padding=True)
    ls.save(model, tmp_path / "after")
    assert (tmp_path / "before" / "tokenizer.json").read_bytes() == (tmp_path / "after" / "tokenizer.json").read_bytes()
