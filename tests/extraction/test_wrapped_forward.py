"""States of networks of one's own are those of a plain forward over each text by itself, whatever the batches."""

import numpy as np
import pytest
import torch

import layerscope as ls
from layerscope.errors import InputError
from tests.helpers.data import some_examples
from tests.helpers.models import Convolutional, Plain, Recurrent, by_words, with_lengths

EXAMPLES = some_examples(20)


def recurrent():
    return ls.wrap(Recurrent(), layers=["lstms.*"], embedding="embed", output="packed", encode=with_lengths)


def convolutional(masked=True, **changes):
    options = {"layers": ["convolutions.*"], "layout": "batch width time", "embedding": "embed", "encode": by_words}
    return ls.wrap(Convolutional(masked), unpadded=not masked, **options | changes)


def plain_states(model, text):
    """Layers 0..2 of one text, by the network's own parts."""
    network = model.module
    ids = by_words([text])["inputs"]
    with torch.inference_mode():
        x = network.embed(ids)
        states = [x]
        if isinstance(network, Recurrent):
            for lstm in network.lstms:
                x, _ = lstm(x)
                states.append(x)
        else:
            for convolution in network.convolutions:
                y = convolution(x.transpose(1, 2)).transpose(1, 2)
                states.append(y)
                x = torch.tanh(y)
    return [state[0].numpy() for state in states]


@pytest.mark.parametrize(
    "model", [recurrent(), convolutional(), convolutional(masked=False)], ids=["lstm", "cnn", "raw"]
)
@pytest.mark.parametrize("batch_tokens", [None, 9])
def test_every_pool_gives_the_rows_of_a_plain_forward(model, batch_tokens):
    states = [plain_states(model, text) for text in EXAMPLES.texts]
    expected = {
        "mean": lambda k: np.stack([s[k].mean(axis=0) for s in states]),
        "last": lambda k: np.stack([s[k][-1] for s in states]),
        "words": lambda k: np.concatenate([s[k] for s in states]),
        "tokens": lambda k: np.concatenate([s[k] for s in states]),
    }
    for pool, rows in expected.items():
        reps = ls.extract(model, EXAMPLES, pool=pool, batch_tokens=batch_tokens, store=False)
        for layer in range(3):
            np.testing.assert_allclose(reps[layer], rows(layer), atol=1e-6)


def test_padding_on_the_left_changes_nothing():
    def left(texts, max_length=100):
        batch = by_words(texts, max_length)
        lengths = batch["mask"].sum(dim=1).tolist()
        turned = {
            name: torch.stack([torch.cat([row[n:], row[:n]]) for row, n in zip(value, lengths, strict=True)])
            for name, value in batch.items()
        }
        return turned

    model = convolutional()
    there = convolutional(encode=left)
    ours, theirs = (ls.extract(m, EXAMPLES, pool="words", store=False) for m in (there, model))
    np.testing.assert_allclose(ours[1], theirs[1], atol=1e-6)


def test_only_some_layers_and_nothing_above_runs():
    model = convolutional()
    ran = []
    hook = model.module.convolutions[1].register_forward_hook(lambda *_: ran.append(1))
    reps = ls.extract(model, EXAMPLES, pool="mean", layers=[0, 1], store=False)
    hook.remove()
    assert reps.layers == [0, 1]
    assert not ran


def test_layers_of_different_widths_go_through_every_question():
    model, bert = recurrent(), "garden:bert-s0"
    similarity = ls.compare(model, bert, task=EXAMPLES, pool="words", measure=["cka", "svcca"])
    assert similarity["cka"].values.shape == (3, 13)
    assert np.isfinite(similarity["cka"].values).all()
    assert np.isfinite(ls.specialty(model, EXAMPLES, null=0).values).all()
    assert len(ls.localization([model, recurrent()], task=EXAMPLES, pool="words").frame) > 0
    ours, theirs = (ls.extract(m, EXAMPLES, pool="words", store=False) for m in (model, bert))
    assert ls.align(ours[1], theirs[3])(ours[1]).shape == theirs[3].shape
    rows = ls.extract(model, EXAMPLES, pool="mean", store=False)
    assert ls.probe(rows, rows).layers == [0, 1, 2]


def test_the_store_is_not_used_for_code_that_nobody_knows():
    """Two networks with the same weights and other code must not find each other's rows."""

    class Doubled(Plain):
        def forward(self, input_ids):
            return super().forward(input_ids) * 2

    first, second = (
        ls.wrap(network, layers=["blocks.*"], embedding="embed", encode=encode)
        for network, encode in ((Plain(), by_words), (Doubled(), lambda texts: by_words([t[::-1] for t in texts])))
    )
    one, other = (ls.extract(model, EXAMPLES, pool="last") for model in (first, second))
    assert not torch.equal(one[3], other[3])


def test_a_final_norm_is_not_known():
    with pytest.raises(InputError, match="no final norm is known"):
        ls.extract(recurrent(), EXAMPLES, pool="mean", final_norm=True, store=False)
