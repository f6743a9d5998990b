"""One forward: padding, order and the choice of layers change nothing."""

import pytest
import torch

import layerscope as ls
from layerscope.models.replay import caches_off
from tests.helpers.models import FAMILIES, random_model


@pytest.mark.parametrize("family", FAMILIES)
@pytest.mark.parametrize("pool", ["cls", "mean", "words"])
def test_batches_order_and_padding_side_change_nothing(family, pool, task, corpus):
    model = random_model(family)
    data = corpus if pool == "words" else task
    reference = ls.extract(model, data, pool=pool, store=False, batch_tokens=10**6)
    for side, tokens in (("right", 1), ("left", 10**6), ("left", 40)):
        model.tokenizer.padding_side = side
        other = ls.extract(model, data, pool=pool, store=False, batch_tokens=tokens)
        assert other.rows.difference(reference.rows) is None
        for layer in reference.layers:
            torch.testing.assert_close(other[layer], reference[layer], rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("family", FAMILIES)
def test_final_norm_gives_the_last_hidden_state_of_transformers(family, task):
    model = random_model(family)
    reps = ls.extract(model, task, pool="last", store=False, final_norm=True)
    with torch.inference_mode(), caches_off(model.network):
        for i, text in enumerate(task.split().texts):
            batch = model.tokenizer(text, return_tensors="pt")
            if family == "distilbert":
                batch.pop("token_type_ids")
            expected = model.network(**batch).last_hidden_state[0, -1]
            torch.testing.assert_close(reps[model.depth][i], expected, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("family", FAMILIES)
def test_some_layers_are_the_same_as_all_of_them(family, task):
    model = random_model(family)
    every, some = (ls.extract(model, task, store=False, layers=chosen) for chosen in (None, [2, 0]))
    assert some.layers == [0, 2]
    for layer in (0, 2):
        torch.testing.assert_close(some[layer], every[layer])
    # Leaving early must leave the network as it was.
    torch.testing.assert_close(ls.extract(model, task, store=False)[4], every[4])


def test_autocast_computes_in_half_precision_and_returns_float32(task):
    model = random_model("bert")
    exact, half = (ls.extract(model, task, store=False, autocast=a) for a in (None, "bfloat16"))
    assert half[4].dtype == torch.float32
    error = (half[4] - exact[4]).abs().max()
    assert 0 < error < 0.3


def test_training_mode_and_settings_are_restored(task):
    model = random_model("bert")
    model.network.train()
    one = ls.extract(model, task, store=False)
    assert model.network.training
    torch.testing.assert_close(ls.extract(model, task, store=False)[4], one[4])  # no dropout in between
