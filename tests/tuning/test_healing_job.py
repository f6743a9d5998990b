"""One healing as an artifact: interrupted it goes on, its precision and memory are choices, its save is compared."""

import re

import numpy as np
import pandas
import pytest
import torch

import layerscope as ls
from layerscope.errors import ModelError
from layerscope.store import Store
from layerscope.tuning import healing_job
from layerscope.tuning.heal import plan_healing
from layerscope.tuning.objectives.tokens import TokenCollate
from tests.helpers.data import running_task
from tests.helpers.models import FEW_STEPS, SMALL, WITHOUT_BLOCK_2, random_network, small_decoder, word_tokenizer

FEW = {**FEW_STEPS, "steps": 6, "evaluate_every": 2}


class Killed(BaseException):
    pass


def test_the_card_tells_of_the_healing(tmp_path):
    ls.heal(small_decoder(), WITHOUT_BLOCK_2, running_task(), out=tmp_path / "healed", **FEW)
    card = (tmp_path / "healed" / "README.md").read_text()
    assert "blocks 2 were removed; the head reads" in card  # and not that nothing was trained
    assert "- Trained by `lora`, strategy (1, 2, 2), on " in card
    assert "steps 6" in card
    assert re.search(r"\| [\d.]+ to [\d.]+ \| perplexity \|", card)  # with its interval and its kind
    assert "It began as" not in card  # a network in memory has no name that leads to it


@pytest.mark.slow
def test_interrupted_in_the_middle_it_ends_with_the_same_metrics(monkeypatch):
    options = {**FEW, "train_limit": 12, "strategy": "(L, L, L)", "distill": True}
    model, task = small_decoder(), running_task()
    whole = ls.heal(model, WITHOUT_BLOCK_2, task, **options)
    entry = next(entry for entry in Store().entries() if entry.kind == "healing")
    Store().remove(entry)
    given, plain = [], TokenCollate.__call__

    def counted(self, entries):
        given.append(1)
        if len(given) == 8:  # after the second look
            raise Killed
        return plain(self, entries)

    monkeypatch.setattr(TokenCollate, "__call__", counted)
    with pytest.raises(Killed):
        ls.heal(model, WITHOUT_BLOCK_2, task, **options)
    left = [entry for entry in Store().entries() if entry.kind == "healing"]
    assert [entry.state for entry in left] == ["unfinished"]
    assert list((left[0].path / "checkpoints").glob("checkpoint-*"))
    monkeypatch.setattr(TokenCollate, "__call__", plain)
    again = ls.heal(model, WITHOUT_BLOCK_2, task, **options)
    assert again.epochs == whole.epochs
    assert again.scores == whole.scores


@pytest.mark.slow
def test_bfloat16_accumulation_and_checkpointing():
    plain = ls.heal(small_decoder(), WITHOUT_BLOCK_2, running_task(), **FEW)
    again = ls.heal(small_decoder(), WITHOUT_BLOCK_2, running_task(), seed=0, checkpointing=True, **FEW)
    assert again.path == plain.path  # memory is not a part of the key
    Store().remove(next(entry for entry in Store().entries() if entry.kind == "healing"))
    sparing = ls.heal(small_decoder(), WITHOUT_BLOCK_2, running_task(), checkpointing=True, **FEW)
    assert sparing.scores == pytest.approx(plain.scores, rel=1e-5)
    half = {**FEW, "batch": 2, "accumulate": 2, "bf16": True}
    mixed = ls.heal(small_decoder(), WITHOUT_BLOCK_2, running_task(), **half)
    assert mixed.scores["healed"] == pytest.approx(plain.scores["healed"], rel=0.1)
    assert mixed.scores["cut"] == plain.scores["cut"]  # scores are always in full precision


def test_what_answers_unlike_what_was_trained_does_not_count(monkeypatch):
    monkeypatch.setattr(healing_job, "_alike", lambda *_: False)
    with pytest.raises(ModelError, match="the healing does not count"):
        ls.heal(small_decoder(), WITHOUT_BLOCK_2, running_task(), **{**FEW, "steps": 1})


def test_answers_are_alike_up_to_rounding():
    some = np.asarray([[10.0, -3.0], [4.0, 5.0]])
    assert healing_job._alike(some + 1e-4, some, torch.float32)
    assert not healing_job._alike(some + 0.1, some, torch.float32)
    assert healing_job._alike(some + 0.1, some, torch.bfloat16)
    assert not healing_job._alike(some[:1], some, torch.float32)
    assert not healing_job._alike(some * np.nan, some, torch.float32)
    fewer = np.where(some == 5.0, -np.inf, some)  # a text with one choice less
    assert healing_job._alike(fewer + 1e-4, fewer, torch.float32)
    assert not healing_job._alike(some, fewer, torch.float32)
    assert not healing_job._alike(fewer + 0.1, fewer, torch.float32)


def test_texts_with_different_numbers_of_choices_heal():
    model = ls.load(random_network("bert", "choice", **SMALL), tokenizer=word_tokenizer())
    choices = [["the list", "a value"], ["in", "of this", "the file"]] * 12
    data = pandas.DataFrame({"text": ["the file", "a list of"] * 12, "choices": choices, "label": [1, 2] * 12})
    task = ls.task({"train": data, "validation": data[:10]}, text="text", choices="choices", label="label")
    healing = ls.heal(model, WITHOUT_BLOCK_2, task, **{**FEW, "steps": 2})
    assert healing.scores["healed"] == ls.evaluate(healing.model, task, all_rows=True)


def test_everything_that_decides_a_healing_is_in_its_key():
    model, task, base = small_decoder(), running_task(), {**FEW, "distill": True}

    def key(model=model, plan=WITHOUT_BLOCK_2, task=task, **options):
        return plan_healing(model, plan, task, **{**base, **options}).job.key

    others = [
        key(),
        key(model=small_decoder(seed=1)),
        key(plan=ls.LayerPlan([1, 2])),
        key(task=running_task(41)),
        key(method="finetune"),
        key(strategy="(2, L, L)"),
        key(size=4),
        key(teacher=small_decoder(seed=2)),
        key(distill=False),
        key(mix=0.1),
        key(keep_teacher=3),
        key(steps=7),
        key(metric="nll"),
        key(seed=1),
        key(max_length=12),
        key(train_limit=5),
        key(validation_limit=5),
        key(evaluate_every=3),
    ]
    assert len(set(others)) == len(others)
    assert key(checkpointing=True) == key()


@pytest.mark.parametrize("method", ["lora", "finetune"])
def test_training_shares_what_it_leaves_alone_and_changes_no_other_model(method, tmp_path):
    model = small_decoder()
    options = {**FEW, "steps": 2, "method": method, "strategy": "(L, L, L)"}
    job = plan_healing(model, WITHOUT_BLOCK_2, running_task(), **options).job
    both = (model.network, job.training_data.model.network)
    before = [{name: tensor.clone() for name, tensor in network.state_dict().items()} for network in both]
    cut = job.training_data.model.network
    whole = {parameter.data_ptr() for parameter in model.network.parameters()}
    assert all(parameter.data_ptr() in whole for parameter in cut.parameters())
    assert all(parameter.requires_grad for parameter in cut.parameters())
    tuned = job.train(tmp_path)[0].network
    taken = {parameter.data_ptr() for parameter in cut.parameters()}
    for name, parameter in tuned.named_parameters():
        assert (parameter.data_ptr() in taken) is not parameter.requires_grad, name
    job.build(tmp_path / "whole")  # merged, saved and compared
    for network, weights in zip(both, before, strict=True):
        assert all(torch.equal(tensor, weights[name]) for name, tensor in network.state_dict().items())
    assert all(parameter.requires_grad for parameter in cut.parameters())


@pytest.mark.gpu
def test_without_room_on_the_gpu_it_is_merged_on_the_host(monkeypatch):
    model = small_decoder()
    model.network.to("cuda")
    plain = ls.heal(model, WITHOUT_BLOCK_2, running_task(), **FEW)
    Store().remove(next(entry for entry in Store().entries() if entry.kind == "healing"))
    moved = []
    monkeypatch.setattr(healing_job, "free_on", lambda device: moved.append(device) or 0)
    again = ls.heal(model, WITHOUT_BLOCK_2, running_task(), **FEW)
    assert moved
    assert again.scores == pytest.approx(plain.scores, rel=1e-3)
    assert {parameter.device.type for parameter in model.network.parameters()} == {"cuda"}
