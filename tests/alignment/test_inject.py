"""Injection: a model into itself changes nothing, at every layer, for every family; mistakes are sentences."""

import numpy as np
import pytest
import torch

import layerscope as ls
from layerscope.errors import InputError, ModelError
from layerscope.models.selfcheck import primary, probe_inputs
from tests.helpers.models import FAMILIES, random_network, word_tokenizer

ROWS = np.random.default_rng(0).normal(size=(20, 32))


@pytest.fixture(scope="module")
def identity():
    return ls.align(ROWS, ROWS, method="identity")


@pytest.mark.parametrize("family", FAMILIES)
def test_a_model_into_itself_changes_no_logit(family, identity):
    model = ls.load(random_network(family, labels=3), tokenizer=word_tokenizer(family))
    inputs = probe_inputs(model)
    with torch.no_grad():
        expected = model.network(**inputs).logits
    for layer in range(model.depth + 1):
        found = ls.inject(model, model, identity, layer=layer)(**inputs)
        torch.testing.assert_close(found.logits, expected, rtol=1e-4, atol=1e-5)


def test_multiple_choice_and_bare_encoders(identity):
    choices = ls.load(random_network("bert", "choice"), tokenizer=word_tokenizer())
    bare = ls.load(random_network("bert", "encoder"), tokenizer=word_tokenizer())
    for model in (choices, bare):
        inputs = probe_inputs(model)
        with torch.no_grad():
            expected = primary(model.network(**inputs))
        torch.testing.assert_close(primary(ls.inject(model, model, identity)(**inputs)), expected, rtol=1e-4, atol=1e-5)


def test_the_states_are_the_sources_and_the_rest_is_the_targets(identity):
    one, two = (ls.load(random_network("bert", labels=2, seed=seed), tokenizer=word_tokenizer()) for seed in (0, 1))
    inputs = probe_inputs(one)
    with torch.no_grad():
        states = one.network(**inputs, output_hidden_states=True).hidden_states
        expected = two.network.classifier(two.network.bert.pooler(states[4]))
    torch.testing.assert_close(ls.inject(one, two, identity)(**inputs).logits, expected, rtol=1e-4, atol=1e-5)
    lower = ls.inject(one, two, identity, layer=3, source_layer=1)(**inputs).logits
    with torch.no_grad():
        replay = ls.Replay(two, inputs)
        expected = replay.finish(replay.run(states[1], 4)).logits
    torch.testing.assert_close(lower, expected, rtol=1e-4, atol=1e-5)


def test_different_widths_and_depths():
    generator = np.random.default_rng(0)
    x, y = generator.normal(size=(60, 32)), generator.normal(size=(60, 16))
    narrow = {"hidden_size": 16, "num_hidden_layers": 2}
    one = ls.load(random_network("bert", labels=2), tokenizer=word_tokenizer())
    two = ls.load(random_network("bert", labels=2, **narrow), tokenizer=word_tokenizer())
    injection = ls.inject(one, two, ls.align(x, y))
    assert (injection.source_layer, injection.layer) == (4, 2)
    assert injection(**probe_inputs(two)).logits.shape == (2, 2)
    with pytest.raises(InputError, match=r"maps width 16 to 32.*has 32 and.*has 16"):
        ls.inject(one, two, ls.align(y, x))


def test_mistakes_are_sentences(identity):
    bert = ls.load(random_network("bert", labels=2), tokenizer=word_tokenizer())
    other = ls.load(random_network("xlnet", labels=2), tokenizer=word_tokenizer("xlnet"))
    with pytest.raises(ModelError, match="different tokenizers"):
        ls.inject(bert, other, identity)
    with pytest.raises(InputError, match=r"Layer 7 was asked for; .* has layers 0..4"):
        ls.inject(bert, bert, identity, layer=7)
    with pytest.raises(InputError, match=r"layer is 2\.5; it must be a whole number or None"):
        ls.inject(bert, bert, identity, layer=2.5)
    inputs = bert.tokenizer("a file", return_tensors="pt")
    with pytest.raises(InputError, match="output_hidden_states is True, and an injection takes tensors"):
        ls.inject(bert, bert, identity)(**inputs, output_hidden_states=True)
