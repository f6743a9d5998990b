"""Families that get their blocks from layerscope: the same answers as before, and every block can be watched."""

import copy

import pandas
import pytest
import torch
from transformers import AutoConfig, AutoModel, AutoModelForSequenceClassification

import layerscope as ls
from layerscope.errors import ModelError
from layerscope.models import Replay, load
from layerscope.models.architecture import block_modules
from layerscope.models.surgery import REWIRINGS
from tests.helpers.models import VOCABULARY, token_batch, word_tokenizer

COMMON = {"vocab_size": len(VOCABULARY), "pad_token_id": 0, "max_position_embeddings": 64}
SQUEEZED = {"hidden_size": 32, "embedding_size": 32, "num_hidden_layers": 3, "num_attention_heads": 4}
JOINED = {"emb_dim": 32, "n_layers": 3, "n_heads": 4, "pad_index": 0}
CASES = {
    "squeezebert": {**COMMON, **SQUEEZED, "intermediate_size": 48},
    "xlm": {**COMMON, **JOINED},
    "flaubert": {**COMMON, **JOINED},
}


def network(family, opener=AutoModel, **changes):
    torch.manual_seed(0)
    return opener.from_config(AutoConfig.for_model(family, **CASES[family], **changes)).eval()


def test_every_such_family_is_tested():
    assert set(CASES) == set(REWIRINGS)


@pytest.mark.parametrize("family", CASES)
@torch.inference_mode()
def test_every_layer_is_what_transformers_gives(family):
    net, inputs = network(family), token_batch()
    before = net(**inputs, output_hidden_states=True)
    names = list(net.state_dict())
    model = load(net, tokenizer=word_tokenizer())
    replay = Replay(model, inputs)
    for got, expected in zip(replay.states, before.hidden_states, strict=True):
        torch.testing.assert_close(got, expected, rtol=1e-4, atol=1e-5)
    torch.testing.assert_close(net(**inputs).last_hidden_state, before.last_hidden_state, rtol=1e-4, atol=1e-5)
    assert list(net.state_dict()) == names
    again = net(**inputs, output_hidden_states=True, output_attentions=True)
    assert len(again.hidden_states) == 4
    assert len(again.attentions) == 3
    swapped = replay.run(replay.states[0], 2)
    assert not torch.allclose(swapped, replay.states[1])


@pytest.mark.parametrize("family", CASES)
@torch.inference_mode()
def test_a_copy_runs_its_own_blocks(family):
    model = load(network(family), tokenizer=word_tokenizer())
    twin, inputs = copy.deepcopy(model.network), token_batch()
    expected = model.network(**inputs).last_hidden_state
    for parameter in block_modules(model.network, model.architecture)[1].parameters():
        parameter.zero_()
    torch.testing.assert_close(twin(**inputs).last_hidden_state, expected)
    assert not torch.allclose(model.network(**inputs).last_hidden_state, expected)


@pytest.mark.parametrize("family", CASES)
def test_it_is_evaluated_cut_saved_and_tuned(family, tmp_path):
    net = network(family, AutoModelForSequenceClassification, num_labels=3)
    frame = pandas.DataFrame(
        {"text": ["the file", "a list of value", "return this string"] * 8, "label": [0, 1, 2] * 8}
    )
    model = load(net, tokenizer=word_tokenizer())
    assert ls.truncation_curve(model, frame).frame["score"].notna().all()
    saved = ls.save(ls.cut(model, ls.LayerPlan([1, 3])), tmp_path / "cut")
    plain = AutoModelForSequenceClassification.from_pretrained(saved).eval()
    replayed = Replay(model, inputs := token_batch())
    with torch.inference_mode():
        state = replayed.run(replayed.run(replayed.states[0], 1), 3)
        torch.testing.assert_close(plain(**inputs).logits, replayed.finish(state).logits, rtol=1e-4, atol=1e-5)
    training = ls.tune(model, frame, strategy="(3, 3, 3)", max_steps=2)
    changed = {
        name
        for name, value in training.model.state_dict().items()
        if name.startswith("transformer.") and not torch.equal(value, net.state_dict()[name])
    }
    assert not any(name.startswith(f"transformer.encoder.layers.{k}") for k in (0, 1) for name in changed)
    assert not any(f"{part}.{k}." in name for part in ("attentions", "ffns") for k in (0, 1) for name in changed)
    assert changed


def test_what_transformers_cannot_run_is_refused_in_a_sentence():
    """FlauBERT with its norms first asks an old kind of cache for its entries."""
    net = network("flaubert", pre_norm=True)
    with torch.inference_mode(), pytest.raises((TypeError, KeyError, AttributeError)):
        net(**token_batch())
    with pytest.raises(ModelError, match="it could not be run on a few tokens"):
        load(net)
