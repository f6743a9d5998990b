"""The rows of a model: described without reading them, and those of two models correspond or are refused."""

import numpy as np
import pytest

import layerscope as ls
from layerscope.alignment.model_pairs import Attention, Correspondence, States
from layerscope.errors import InputError
from layerscope.extraction.pooling import Reading
from layerscope.models.fingerprint import tokenizer_identity
from layerscope.store import Store
from tests.helpers.models import random_network, word_tokenizer


@pytest.fixture(scope="module")
def model():
    return ls.load(random_network("bert", "encoder"), tokenizer=word_tokenizer())


def test_states_are_those_of_extract_and_described_before_they_are_read(model, data):
    examples = data.split("validation").take(slice(20))
    side = States(model, examples, [1, 3], Reading("mean"), Correspondence())
    assert side.spec() == {
        "model": model.spec(),
        "examples": examples.spec(),
        "reading": Reading("mean").spec(),
    }
    assert (side.layers, side.width) == ((1, 3), 32)
    assert not Store().entries()
    assert side[3].equal(ls.extract(model, examples, pool="mean")[3])


def test_rows_are_drawn_the_same_for_every_layer(model, data):
    examples = data.split("validation").take(slice(20))
    reading = Reading("tokens", special=True)
    whole = States(model, examples, None, reading, Correspondence())
    some = States(model, examples, None, reading, Correspondence(), (0, 30))
    assert some.spec()["drawn"] == [0, 30]
    assert len(some[2]) == 30 < len(whole[2])
    places = [int((whole[4] == row).all(dim=1).nonzero()[0]) for row in some[4]]
    assert places == sorted(places)
    assert some[2].equal(whole[2][places])
    assert some.texts.tolist() == whole.texts[places].tolist()
    assert set(whole.texts) == set(examples.rows)


def test_attention_weights_have_one_row_per_pair_of_tokens(model, data):
    examples = data.split("validation").take(slice(5))
    side = Attention(model, examples, None, 128, Correspondence(), 0)
    assert (side.layers, side.width) == ((1, 2, 3, 4), 4)
    weights = ls.attentions(model, examples, pool="tokens")[2]
    assert side[2].shape == (sum(text.shape[-1] ** 2 for text in weights), 4)
    assert side[2][1].equal(weights[0][:, 0, 1])
    assert side.spec()["attention"]["pool"] == "tokens"
    assert side.texts.tolist() == np.repeat(examples.rows, [text.shape[-1] ** 2 for text in weights]).tolist()


def test_other_rows_are_refused():
    correspondence = Correspondence()
    correspondence.check("a", [1, 2])
    correspondence.check("b", [1, 2])
    with pytest.raises(InputError, match="a and c read different words or tokens"):
        correspondence.check("c", [1, 3])


def test_a_tokenizer_without_a_fingerprint_is_known_by_itself():
    tokenizer = word_tokenizer()
    tokenizer.own = lambda text: text
    first, second = (ls.load(random_network("bert", "encoder", seed=k), tokenizer=tokenizer) for k in (0, 1))
    assert tokenizer_identity(first.tokenizer) == tokenizer_identity(second.tokenizer)
    assert tokenizer_identity(first.tokenizer) != tokenizer_identity(word_tokenizer())
