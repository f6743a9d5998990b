"""The folder of a training opens as a model, whatever the method saved."""

import json

import numpy as np
import pytest
import torch

import layerscope as ls
from layerscope.errors import ModelError
from tests.helpers.data import three_class_frame
from tests.helpers.models import QUICK, save_random, word_tokenizer


def test_an_adapter_folder_is_a_model(tmp_path):
    base, data = save_random(tmp_path / "base", "bert", "encoder"), three_class_frame(60, 0)
    options = {"method": "adapter", "size": 4, "strategy": "(2, 3, 3)", **QUICK}
    training = ls.tune(str(base), data, out=tmp_path / "tuned", **options)
    opened = ls.load(tmp_path / "tuned")
    assert opened.depth == 3
    score = ls.evaluate(opened, data)
    assert score == pytest.approx(training.score)
    assert score.n == 12
    assert ls.evaluate(tmp_path / "tuned" / "adapter", data) == score
    half = ls.load(tmp_path / "tuned", dtype="bfloat16")
    assert half.network.dtype == torch.bfloat16
    assert ls.evaluate(half, data).n == 12
    reps = ls.extract(tmp_path / "tuned", data, pool="mean")
    np.testing.assert_array_equal(reps[3], ls.extract(training.model, data, pool="mean")[3])
    assert ls.compare(str(base), tmp_path / "tuned", task=data, pool="mean").values.shape == (5, 4)
    with pytest.raises(ModelError, match="live adapters that no standard checkpoint can hold"):
        ls.truncate(tmp_path / "tuned", 2)
    with pytest.raises(ModelError, match="live adapters that no standard checkpoint can hold"):
        ls.save(opened, tmp_path / "saved")
    network = ls.load(str(base)).network
    with torch.no_grad():
        network.base_model.embeddings.word_embeddings.weight[0] += 1
    network.save_pretrained(base)
    for dtype in ("float32", "bfloat16", "float16"):
        with pytest.raises(ModelError, match="whose weights are others now"):
            ls.load(tmp_path / "tuned", dtype=dtype)


def test_the_base_is_called_as_it_was_when_the_folder_was_written(tmp_path):
    base, data = save_random(tmp_path / "base", "bert", "encoder"), three_class_frame(60, 0)
    in_memory = ls.load(ls.load(str(base)).network, tokenizer=word_tokenizer())
    in_memory.name = "of no folder"
    first = ls.tune(in_memory, data, method="adapter", size=4, **QUICK)
    second = ls.tune(str(base), data, out=tmp_path / "tuned", method="adapter", size=4, **QUICK)
    assert second.path == first.path  # the same weights and rows, so nothing is trained again
    assert ls.evaluate(tmp_path / "tuned", data) == ls.evaluate(second.model, data)


def test_advice_on_an_adapter(tmp_path):
    base, data = save_random(tmp_path / "base", "bert", "encoder"), three_class_frame(120, 0)
    ls.tune(str(base), data, out=tmp_path / "tuned", method="adapter", size=4, **QUICK)
    advice = ls.advise(tmp_path / "tuned", data, max_span=1, evaluations=0)
    assert not advice.frame["savable"].any()  # no standard checkpoint holds live adapters
    assert advice.choice.removed(4) == ()
    assert "no smaller model can be saved as a checkpoint" in str(advice)


def test_what_cannot_be_opened_is_a_sentence(tmp_path):
    base, data = save_random(tmp_path / "base", "bert", "encoder"), three_class_frame(60, 0)
    ls.tune(str(base), data, out=tmp_path / "tuned", method="adapter", size=4, **QUICK)
    base.rename(tmp_path / "elsewhere") if hasattr(base, "rename") else (tmp_path / "base").rename(tmp_path / "gone")
    with pytest.raises(ModelError, match=r"holds what adapter tuning adds to .*base, which cannot be opened here"):
        ls.load(tmp_path / "tuned")


@pytest.mark.parametrize("method", ["finetune", "lora"])
def test_the_card_has_the_score_that_was_measured_and_a_cut_is_named_after_it(method, tmp_path):
    base, data = save_random(tmp_path / "base", "bert", "encoder"), three_class_frame(60, 0)
    training = ls.tune(str(base), data, out=tmp_path / "mine", method=method, **QUICK)
    card = (tmp_path / "mine" / "checkpoint" / "README.md").read_text()
    assert f"| table | all | accuracy | {training.score:.4f} | 12 |" in card
    assert "Learned from 48 rows of `table` (all)" in card
    smaller = ls.save(ls.truncate(tmp_path / "mine", 2), tmp_path / "smaller")
    assert "# mine, saved by layerscope" in (smaller / "README.md").read_text()
    again = ls.save(ls.truncate(smaller, 1), tmp_path / "smallest")
    assert len(json.loads((again / "layerscope.json").read_text())["steps"]) == 2


def test_a_damaged_account_of_a_training_is_a_sentence(tmp_path):
    (tmp_path / "adapter").mkdir()
    good = {
        **{"strategy": "full", "method": {"name": "adapter", "size": 4}, "seed": 0, "score": 0.5, "best_epoch": 1},
        **{"epochs": [], "metric": "accuracy", "majority": 0.5, "seconds": 1, "seconds_per_epoch": 1, "cached": True},
        **{"parameters": 10, "trainable": 1},
    }
    (tmp_path / "training.json").write_text(json.dumps(good))
    with pytest.raises(ModelError, match="did not note its base"):
        ls.load(tmp_path)
    for content in ("{", "[]", "[" * 100_000, *(json.dumps({**good, name: [None]}) for name in good)):
        (tmp_path / "training.json").write_text(content)
        with pytest.raises(ModelError, match=r"training.json is (damaged|not JSON) .*tune again"):
            ls.load(tmp_path)
