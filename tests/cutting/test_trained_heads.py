"""Truncation curves with a trained head on every layer."""

import numpy as np
import pytest
import torch

import layerscope as ls
from layerscope.errors import InputError, ModelError
from layerscope.evaluation.layer_heads import LayerHeads
from layerscope.recipes.recipe import read_recipe
from layerscope.tuning.hyperparameters import PRESETS
from tests.helpers.data import three_class_frame
from tests.helpers.models import random_model


@pytest.fixture(scope="module")
def task():
    return ls.task({"train": three_class_frame(48, 0), "validation": three_class_frame(24, 1)})


@pytest.mark.parametrize("mode", ["tuned", "tunedorig"])
def test_trained_truncation_curves(mode, task):
    base = random_model()
    tuned = ls.load(ls.tune(base, task, epochs=3, batch=8, learning_rate=3e-3).model)
    extra = {"base": base} if mode == "tunedorig" else {}
    curve = ls.truncation_curve(tuned, task, mode=mode, epochs=4, learning_rate=1e-2, **extra)
    frame = curve.frame
    assert ((frame["low"] <= frame["score"]) & (frame["score"] <= frame["high"])).all()
    assert curve.left_out.shape == (20, 5)
    assert abs(curve.left_out.mean(axis=0) - frame["score"]).max() < 0.02  # 24 texts in groups of one or two
    assert list(frame["layer"]) == [0, 1, 2, 3, 4]
    if mode == "tuned":
        untuned = ls.truncation_curve(tuned, task).frame
        assert frame["score"].iloc[:4].mean() >= untuned["score"].iloc[:4].mean()
    with pytest.raises(InputError, match="base="):
        ls.truncation_curve(tuned, task, mode="tunedorig")


def test_heads_are_not_trained_in_16_bits(task):
    whole = random_model(kind="classifier")
    half = ls.load(whole.network.half(), tokenizer=whole.tokenizer, dtype=torch.float16)
    with pytest.raises(ModelError, match="are open in float16, where training heads goes wrong"):
        ls.truncation_curve(half, task, mode="tuned")


def test_heads_are_not_scored_on_what_they_learn_from():
    whole = three_class_frame(50, 3)
    with pytest.raises(InputError, match=r"Heads are trained on one split of .* and scored on another"):
        ls.truncation_curve(random_model(kind="classifier"), ls.task(whole), mode="tuned")
    two = ls.task({"train": whole, "validation": whole[:9]})
    with pytest.raises(InputError, match="train was to serve for both"):
        ls.truncation_curve(random_model(kind="classifier"), two, mode="tuned", split="train")


def test_heads_take_as_many_steps_as_are_asked_for(task):
    """Phang et al. 2021: steps and warm-up as they are for whole models, of which the paper has one setting."""
    tuned = random_model(kind="classifier")
    states = torch.randn(5, 12, tuned.width)
    heads, rates = LayerHeads(tuned, range(5)), []
    take = torch.optim.AdamW.step

    def step(optimizer, *args, **kwargs):
        rates.append(optimizer.param_groups[0]["lr"])
        return take(optimizer, *args, **kwargs)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(torch.optim.AdamW, "step", step)
        labels = np.arange(12) % 3
        options = {"learning_rate": 1.0, "epochs": 10, "batch": 5, "max_steps": 7, "warmup": 4}
        history = heads.fit(states, labels, states, lambda part: 0.0, **options)
    assert rates == pytest.approx([1 / 4, 2 / 4, 3 / 4, 1.0, 1.0, 2 / 3, 1 / 3])
    assert len(history) == 3  # epochs of three batches, the last of which is cut short
    preset, heads_alone = PRESETS["phang2021"], read_recipe("phang2021").profile("paper").settings["heads"]
    assert heads_alone == preset
    with pytest.raises(InputError, match="Both epochs and max_steps"):
        ls.truncation_curve(tuned, task, mode="tuned", epochs=1, max_steps=2)
    with pytest.raises(InputError, match="max_steps is 0; it must be at least 1"):
        ls.truncation_curve(tuned, task, mode="tuned", max_steps=0)
