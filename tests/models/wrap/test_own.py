"""What needs more than states refuses a network of one's own; it has a key only where everything in it is known."""

import numpy as np
import pytest
import torch

import layerscope as ls
from layerscope.errors import InputError, ModelError
from layerscope.models.wrap import WrappedNetwork
from layerscope.store import NoKey, keys_of
from tests.helpers.data import some_examples
from tests.helpers.models import Convolutional, Plain, by_words


def wrapped(network=None, **changes):
    options = {"layers": ["convolutions.*"], "embedding": "embed", "encode": by_words, "layout": "batch width time"}
    return ls.wrap(network or Convolutional(), **options | changes)


@pytest.mark.parametrize(
    ("call", "what"),
    [
        (lambda model: ls.cut(model, ls.LayerPlan.truncated(2, 1)), "cutting needs"),
        (lambda model: ls.truncate(model, 1), "cutting needs"),
        (lambda model: ls.skip(model, 1, 1), "cutting needs"),
        (lambda model: ls.save(model, "nowhere"), "saving needs"),
        (lambda model: ls.truncation_curve(model, "pydocs"), "truncation curves"),
        (lambda model: ls.skip_map(model, "pydocs"), "skip maps"),
        (lambda model: ls.evaluate(model, "pydocs"), "evaluation"),
        (lambda model: ls.tune(model, "pydocs", strategy="1,2,2"), "tuning needs"),
        (lambda model: ls.inject(model, model, ls.align(np.eye(4), np.eye(4)), layer=1), "injection needs"),
        (lambda model: ls.injection_study(model, model, "pydocs"), "injection needs"),
        (lambda model: ls.attentions(model, some_examples()), "attention needs"),
        (lambda model: ls.compare(model, task=some_examples(), measure="attention_js", pool="words"), "this needs"),
        (lambda model: ls.Replay(model, {}), "replay needs"),
    ],
)
def test_what_needs_more_than_states_refuses_it_by_name(call, what):
    with pytest.raises(ModelError) as caught:
        call(wrapped(name="mine"))
    sentence = str(caught.value)
    assert sentence.startswith("mine is a network of its own (Convolutional), and ")
    assert what in sentence
    assert "extract, stream, compare" in sentence


def test_the_pool_cls_needs_a_place():
    with pytest.raises(InputError, match="the pool 'cls' has no meaning for it; take mean"):
        ls.extract(wrapped(), some_examples(), store=False)
    reps = ls.extract(wrapped(summary="last"), some_examples(), store=False)
    again = ls.extract(wrapped(), some_examples(), pool="last", store=False)
    assert torch.equal(reps[2], again[2])


def test_code_of_ones_own_has_no_key_unless_it_is_given_one():
    model = wrapped()
    with pytest.raises(NoKey, match=r"which cannot be fingerprinted \(give ls.wrap a version="):
        model.spec()
    first, again, other = wrapped(version="1"), wrapped(version="1"), wrapped(version="2")
    assert first.spec() == again.spec() != other.spec()
    trained = Convolutional()
    with torch.no_grad():
        trained.embed.weight += 1
    assert wrapped(trained, version="1").spec() != first.spec()
    assert wrapped(version="1", layers=["convolutions.0"]).spec() != first.spec()
    assert wrapped(version="1", summary="first").spec() != first.spec()


def test_with_a_version_results_are_kept():
    calls = [
        lambda model=model: ls.extract(model, some_examples(), pool="mean")
        for model in (wrapped(version="1"), wrapped(version="1"), wrapped(version="2"))
    ]
    first, again, other = (keys_of(call) for call in calls)
    assert first == again != other
    with pytest.raises(NoKey):
        keys_of(lambda: ls.extract(wrapped(), some_examples(), pool="mean"))


def test_a_class_of_ones_own_has_no_key_even_where_a_tokenizer_reads():
    tokenizer = ls.load("garden:bert-s0").tokenizer
    model = ls.wrap(Plain(8000), layers=["blocks.*"], embedding="embed", encode=tokenizer)
    with pytest.raises(NoKey, match="Plain"):
        model.spec()


def test_a_tokenizer_cannot_be_exchanged():
    with pytest.raises(InputError, match="leave out the tokenizer"):
        ls.load(wrapped(), tokenizer=ls.load("garden:bert-s0").tokenizer)


def test_the_door_is_the_module_and_no_more():
    network = WrappedNetwork(Plain(), "plain")
    ids = torch.tensor([[1, 2]])
    assert torch.equal(network(ids), network.module(ids))
    assert network.dtype == torch.float32
    with pytest.raises(ModelError, match="plain is a network of its own"):
        _ = network.config


def test_provenance_says_what_it_is():
    reps = ls.extract(wrapped(name="mine"), some_examples(), pool="mean", store=False)
    assert reps.info["described"]["class"] == "Convolutional"
    assert len(reps.info["described"]["weights"]) > 8
