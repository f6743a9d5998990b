"""Any network becomes a model: its states are those of its modules, and what cannot be read is said in a sentence."""

import numpy as np
import pytest
import torch
from torch import nn

import layerscope as ls
from layerscope.errors import InputError, ModelError
from layerscope.models.wrap import wrap
from tests.helpers.data import some_examples
from tests.helpers.models import Convolutional, Plain, Recurrent, by_words, with_lengths


def recurrent(**changes):
    options = {"layers": ["lstms.*"], "embedding": "embed", "output": "packed", "encode": with_lengths}
    return wrap(Recurrent(), **options | changes)


def convolutional(network=None, **changes):
    layouts = {"layout": "batch width time"}
    options = {"layers": ["convolutions.*"], "embedding": "embed", "encode": by_words}
    return wrap(network or Convolutional(), **options | layouts | changes)


def test_a_model_is_what_was_wrapped():
    model = recurrent(name="bilstm")
    assert (model.name, model.depth, model.widths, model.width) == ("bilstm", 2, (6, 10, 10), 10)
    assert isinstance(model.module, Recurrent)
    assert model.head == "none"
    assert ls.load(model) is model
    assert "layers 0..2" in repr(model)


def test_a_tokenizer_of_transformers_reads_for_a_network_that_takes_its_ids():
    tokenizer = ls.load("garden:bert-s0").tokenizer
    model = wrap(Plain(8000), layers=["blocks.*"], embedding="embed", encode=tokenizer, summary="first")
    reps = ls.extract(model, some_examples(6), pool="cls", max_length=12, store=False)
    ids = tokenizer("x")["input_ids"]
    np.testing.assert_allclose(reps[0], model.module.embed(torch.tensor(ids))[:1].detach().expand(6, -1))
    words = ls.extract(model, some_examples(6), pool="words", max_length=12, store=False)
    assert words[3].shape[1] == 4


def test_a_network_that_sees_padding_is_refused_unless_texts_are_of_one_length():
    with pytest.raises(ModelError, match=r"padding, change the states of layer 1 \(convolutions.0\).*unpadded=True"):
        convolutional(Convolutional(masked=False))
    model = convolutional(Convolutional(masked=False), unpadded=True)
    assert model.architecture.unpadded
    assert convolutional().widths == (6, 6, 6)


class Dropping(Plain):
    def forward(self, ids):
        return self.blocks[0](nn.functional.dropout(self.embed(ids), 0.5, training=True))


class Skipping(Plain):
    def forward(self, ids):
        return self.blocks[0](self.embed(ids))


class Broken(Plain):
    def forward(self, ids):
        return self.blocks[0](self.embed(ids) / 0)


@pytest.mark.parametrize(
    ("network", "layers", "sentence"),
    [
        (Dropping(), ["blocks.0"], "Two forwards over the same texts give different states"),
        (Skipping(), ["blocks.*"], r"layer 2 \(blocks.1\) of Skipping does not run"),
        (Broken(), ["blocks.0"], "not finite"),
        (Recurrent(), ["lstms.*"], "cannot be run on what encode gives"),
    ],
)
def test_what_cannot_be_read_is_said(network, layers, sentence):
    with pytest.raises(ModelError, match=sentence):
        wrap(network, layers=layers, encode=by_words)


@pytest.mark.parametrize(
    ("changes", "sentence"),
    [
        ({"encode": 3}, "a tokenizer or a function of texts is needed"),
        ({"layers": ["none"]}, "has no module 'none'"),
        ({"embedding": "none"}, "has no module 'none'"),
        ({"texts": ["a"]}, "at least two different ones"),
        ({"output": "tensor"}, "not a tensor"),
    ],
)
def test_wrong_options_are_said(changes, sentence):
    with pytest.raises((InputError, ModelError), match=sentence):
        recurrent(**changes)


def test_a_wrong_layout_is_found_by_its_shape():
    with pytest.raises(ModelError, match="say how its dimensions lie"):
        convolutional(layout="batch time width")


def test_a_tokenizer_needs_a_network_that_takes_its_ids():
    with pytest.raises(InputError, match="no argument input_ids"):
        recurrent(encode=ls.load("garden:bert-s0").tokenizer)


def test_only_modules_are_wrapped():
    with pytest.raises(InputError, match="a dict was given"):
        wrap({}, layers=["a"], encode=by_words)


def test_a_mask_that_counts_padding_is_found():
    def padded(texts, max_length=100):
        batch = by_words(texts, max_length)
        return {"inputs": batch["inputs"], "mask": torch.ones_like(batch["mask"])}

    with pytest.raises(ModelError, match="the mask must be 1 for a text's own places"):
        convolutional(encode=padded)


def test_a_network_that_trains_is_left_training():
    network = Convolutional().train()
    convolutional(network)
    assert network.training
