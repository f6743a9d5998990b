"""One forward that shows attention weights, from models that have them."""

import pytest
import torch

import layerscope as ls
from layerscope.errors import ModelError
from layerscope.extraction.attention import attention_heads, eager, forward
from layerscope.extraction.encoding import encode
from layerscope.extraction.forward import Runner
from layerscope.extraction.pooling import Reading
from tests.helpers.models import FAMILIES, random_model, random_network, word_tokenizer


def test_a_model_that_gives_none_is_refused_by_name(task, monkeypatch):
    model = ls.load(random_network("bert", "encoder"), tokenizer=word_tokenizer())
    monkeypatch.setattr(type(model.network), "set_attn_implementation", lambda *_: None)
    with pytest.raises(ModelError, match=r"\(bert\) cannot be switched to one that shows its weights"):
        ls.attentions(model, task)


def test_plain_attention_until_the_block_ends():
    model = random_model("bert")
    before = model.network.config._attn_implementation
    assert before != "eager"
    seen = []

    def fail():
        seen.append(model.network.config._attn_implementation)
        raise RuntimeError("boom")

    with pytest.raises(RuntimeError, match="boom"), eager(model):
        fail()
    assert seen == ["eager"]
    assert model.network.config._attn_implementation == before


@pytest.mark.parametrize("family", FAMILIES)
def test_every_block_shows_its_weights_and_padding_gets_none(family, task):
    model = random_model(family)
    runner = Runner(model, None, Reading())
    items = encode(model, task.split(), Reading())[:3]
    with eager(model):
        weights = forward(runner, items)
    longest = max(map(len, items))
    assert [tuple(w.shape) for w in weights] == [(3, attention_heads(model), longest, longest)] * 4
    for k, item in enumerate(items):
        seen = weights[2][k, :, : len(item)]
        assert seen[..., len(item) :].abs().max() < 1e-6 if len(item) < longest else True
        assert torch.allclose(seen.sum(dim=-1), torch.ones(()), atol=1e-5)
