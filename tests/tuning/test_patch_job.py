"""Healing by a patch, and training that begins where a patch ends."""

import numpy as np
import pandas
import pytest
import torch

import layerscope as ls
from layerscope.errors import InputError
from layerscope.models.lineage import _decoded_marks, learned, marks
from tests.helpers.data import random_texts, scored_pairs, two_class_task
from tests.helpers.models import WITHOUT_BLOCK_2, shared_classifier, shared_encoder

UNLABELLED = {"text": random_texts(40, most=8)}


def test_healing_by_a_patch_trains_nothing(tmp_path):
    model = shared_classifier()
    before = {name: tensor.clone() for name, tensor in model.network.state_dict().items()}
    healing = ls.heal(model, "first 1", two_class_task(), method="patch", out=tmp_path / "patched")
    assert healing.patched
    assert healing.outcome["patch"]["applied"] == bool(healing.outcome["patch"]["solved"])
    assert healing.row["steps"] == 0
    assert set(healing.scores) == {"uncut", "cut", "healed"}
    assert healing.scores["healed"] == pytest.approx(
        float(ls.evaluate(tmp_path / "patched", two_class_task(), max_length=128))
    )
    assert healing.scores["cut"] == pytest.approx(float(ls.evaluate(ls.truncate(model, 1), two_class_task())))
    assert all(torch.equal(tensor, before[name]) for name, tensor in model.network.state_dict().items())
    assert "Solved anew without training" in " ".join(map(str, healing.findings()))
    with pytest.raises(InputError, match=r"steps \(--steps\) is for a healing that trains"):
        ls.heal(model, "first 1", two_class_task(), method="patch", steps=3)
    with pytest.raises(InputError, match="not a model that was cut before"):
        ls.heal(model, None, two_class_task(), method="patch")


def test_a_training_may_begin_where_a_patch_ends():
    model, task = shared_classifier(), two_class_task()
    few = {"steps": 1, "batch": 4, "max_length": 32, "learning_rate": 1e-6}
    before = {name: tensor.clone() for name, tensor in model.network.state_dict().items()}
    plain = ls.heal(model, "first 1", task, **few)
    begun = ls.heal(model, "first 1", task, patch=pandas.DataFrame(UNLABELLED), **few)
    assert begun.path != plain.path
    assert all(torch.equal(tensor, before[name]) for name, tensor in model.network.state_dict().items())
    weights = [h.model.bert.pooler.dense.weight for h in (plain, begun)]
    assert not torch.allclose(*weights, atol=1e-3)
    with pytest.raises(InputError, match="other is for a patch"):
        ls.heal(model, WITHOUT_BLOCK_2, task, other=pandas.DataFrame(UNLABELLED), **few)


def test_a_patch_and_a_training_of_one_corpus_share_no_text_with_those_that_are_scored():
    """The patch took all texts of a short corpus, so that none was left to score the healed model on."""
    corpus = pandas.DataFrame({"text": random_texts(60, least=3, most=9), "label": ["file", "list"] * 30})
    few = {"steps": 1, "batch": 4, "max_length": 16, "learning_rate": 1e-6}
    healing = ls.heal(shared_classifier(), "first 1", corpus, patch=corpus, **few)
    data = healing.job.training_data
    (patched,) = learned(data.model.network)
    assert 0 < patched["n"] < 60
    assert len(data.validation) > 0
    assert not np.isin(marks(data.validation), _decoded_marks(patched)).any()
    everything = {"train": corpus[:20], "validation": corpus}
    with pytest.raises(InputError, match="none is left to patch on"):
        ls.heal(shared_classifier(), "first 1", everything, patch=corpus[:20], **few)


def test_an_embedding_model_is_patched_and_scored_with_what_was_put_behind_it(tmp_path):
    task = ls.task(scored_pairs(60), text="a", text_pair="b", label="score")
    healing = ls.heal(shared_encoder(), "first 1", task, method="patch", out=tmp_path / "patched")
    assert healing.outcome["patch"]["applied"]
    assert "Dense" in healing.outcome["patch"]["solved"][0]["module"]
    opened = ls.evaluate(tmp_path / "patched", task, max_length=128)
    assert healing.scores["healed"] == pytest.approx(float(opened), abs=1e-6)
    assert healing.scores["healed"] != pytest.approx(healing.scores["cut"], abs=1e-6)
