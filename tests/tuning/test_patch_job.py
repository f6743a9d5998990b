"""Healing by a patch, and training that begins where a patch ends."""

import dataclasses

import numpy as np
import pandas
import pytest
import torch

import layerscope as ls
from layerscope.cutting import patch as patches
from layerscope.errors import InputError
from layerscope.models.extras import attach_extras, extras
from layerscope.models.lineage import _decoded_marks, learned, marks
from layerscope.models.sentence_embedding import Embedding, with_dense
from tests.helpers.data import random_texts, scored_pairs, three_class_task, two_class_task
from tests.helpers.models import WITHOUT_BLOCK_2, shared_classifier, shared_encoder

UNLABELLED = {"text": random_texts(40, seed=9, least=4, most=12)}


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
    parts = {"train": scored_pairs(40), "validation": scored_pairs(60)[40:]}
    task = ls.task(parts, text="a", text_pair="b", label="score")
    healing = ls.heal(shared_encoder(), "first 1", task, method="patch", out=tmp_path / "patched")
    assert healing.outcome["patch"]["applied"]
    assert "Dense" in healing.outcome["patch"]["solved"][0]["module"]
    opened = ls.evaluate(tmp_path / "patched", task, max_length=128)
    assert healing.scores["healed"] == pytest.approx(float(opened), abs=1e-6)
    assert healing.scores["healed"] != pytest.approx(healing.scores["cut"], abs=1e-6)


def _embedding_healing(patched):
    task, patch = three_class_task(labels=False), pandas.DataFrame(UNLABELLED) if patched else None
    few = {"steps": 1, "batch": 4, "max_length": 32, "learning_rate": 1e-9}
    return ls.heal(shared_encoder(), "first 1", task, patch=patch, **few)


def test_the_training_of_an_embedding_model_begins_where_its_patch_ends():
    """The objective was made before the patch: the student was read without what was put behind its pooling."""
    plain, begun = _embedding_healing(False), _embedding_healing(True)
    assert plain.path != begun.path
    assert plain.job.objective.settings() != begun.job.objective.settings()
    objective = begun.job.objective
    assert len(objective.embedding.steps) == 1
    assert objective.taught.steps == ()
    assert begun.scores["patched"] == pytest.approx(begun.scores["healed"], abs=1e-5)
    assert begun.scores["patched"] > begun.scores["cut"]
    assert begun.scores["cut"] == pytest.approx(plain.scores["cut"], abs=1e-6)
    smaller, whole = begun.job.training_data.model, begun.job.uncut
    expected = 1 - torch.nn.functional.cosine_similarity(
        *(torch.from_numpy(objective.answers(each)) for each in (smaller, whole)), dim=-1
    )
    assert begun.epochs[-1]["loss"] == pytest.approx(float(expected.mean()), abs=1e-4)


def test_a_teacher_with_embeddings_of_another_size_is_refused(tmp_path):
    model, small = shared_encoder(), ls.load(shared_encoder().network, tokenizer=shared_encoder().tokenizer)
    small = ls.load(ls.save(small, tmp_path / "small"))
    held = extras(small.network)
    dense = with_dense(Embedding(), ("mean",), torch.randn(3, small.width), torch.zeros(3))
    attach_extras(small.network, dataclasses.replace(held, embedding=dense))
    task = ls.task(scored_pairs(60), text="a", text_pair="b", label="score")
    with pytest.raises(InputError, match="its embeddings have 3 numbers"):
        ls.heal(model, "first 1", task, teacher=small, steps=1)


def test_a_healing_that_begins_with_a_patch_shows_the_plain_cut_and_the_patched_model():
    model, task = shared_classifier(), two_class_task()
    few = {"steps": 1, "batch": 4, "max_length": 32, "learning_rate": 1e-9}
    healing = ls.heal(model, "first 1", task, patch=pandas.DataFrame(UNLABELLED), **few)
    assert list(healing.scores) == ["uncut", "cut", "patched", "healed"]
    assert not healing.patched
    assert healing.scores["cut"] == pytest.approx(float(ls.evaluate(ls.truncate(model, 1), task)))
    assert healing.scores["patched"] == pytest.approx(healing.scores["healed"])
    assert healing.row["patched"] == healing.scores["patched"]
    over = healing.gains["cut"].value
    assert over == pytest.approx(healing.scores["healed"] - healing.scores["cut"])
    said = " ".join(map(str, healing.findings()))
    assert "Solved anew without training" in said
    assert "with the patch alone" in said
    assert healing.figures()[0].values == tuple(healing.scores.values())


def test_where_no_patch_is_applied_a_healing_says_so_and_has_no_row_for_it(monkeypatch):
    monkeypatch.setattr(patches.Domain, "better", False)
    few = {"steps": 1, "batch": 4, "max_length": 32, "learning_rate": 1e-9}
    healing = ls.heal(shared_classifier(), "first 1", two_class_task(), patch=pandas.DataFrame(UNLABELLED), **few)
    assert list(healing.scores) == ["uncut", "cut", "healed"]
    assert "The patch is not applied" in " ".join(map(str, healing.findings()))


def test_a_patch_that_is_not_applied_has_the_loss_of_the_plain_cut(monkeypatch):
    monkeypatch.setattr(patches.Domain, "better", False)
    healing = ls.heal(shared_classifier(), "first 1", two_class_task(), method="patch")
    described = healing.outcome["patch"]
    assert "solved" not in described
    assert described["tried"]
    assert healing.epochs[-1]["loss"] == described["domains"][0]["cut"]


def test_a_pooling_that_is_asked_for_cannot_be_patched():
    task = ls.task(scored_pairs(60), text="a", text_pair="b", label="score", embedding="cls")
    with pytest.raises(InputError, match="leave the pooling out"):
        ls.heal(shared_encoder(), "first 1", task, method="patch")
    with pytest.raises(InputError, match="leave the pooling out"):
        ls.cut_study(shared_encoder(), "first 1", task, patch=pandas.DataFrame(UNLABELLED))
