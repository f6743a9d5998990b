import pytest
import torch

import layerscope as ls
from layerscope.errors import InputError, ModelError
from layerscope.models.replay import caches_off
from tests.helpers.models import CONFIGS, FAMILIES, VOCABULARY, random_network, word_tokenizer


@pytest.mark.parametrize("family", FAMILIES)
def test_attention_weights_of_every_family(family, task):
    model = ls.load(random_network(family, "encoder"), tokenizer=word_tokenizer(family))
    before = model.network.config._attn_implementation
    found = ls.attentions(model, task)
    assert model.network.config._attn_implementation == before
    assert found.layers == [1, 2, 3, 4]
    plain = random_network(family, "encoder")
    if before != "eager":
        plain.set_attn_implementation("eager")
    for i, text in enumerate(task.split().texts):
        batch = model.tokenizer(text, return_tensors="pt")
        if family == "distilbert":
            batch.pop("token_type_ids")
        with torch.inference_mode(), caches_off(plain):
            expected = plain(**batch, output_attentions=True).attentions
        for layer in found.layers:
            torch.testing.assert_close(found[layer][i], expected[layer - 1][0], rtol=1e-4, atol=1e-5)
            assert torch.allclose(found[layer][i].sum(-1), torch.ones(()), atol=1e-5)


def test_some_layers_and_the_limit(task):
    model = ls.load(random_network("bert", "encoder"), tokenizer=word_tokenizer())
    found = ls.attentions(model, task, layers=[2], limit=3)
    assert len(found) == 3
    with pytest.raises(InputError, match=r"no attention weights of layer 1"):
        found[1]
    with pytest.raises(InputError, match=r"layers 1\.\.4, not of \[0\]"):
        ls.attentions(model, task, layers=[0])


def unrecorded(family, **changes):
    from transformers import AutoConfig, AutoModel

    sizes = {**CONFIGS["llama"], "vocab_size": len(VOCABULARY), "pad_token_id": 0, **changes}
    torch.manual_seed(0)
    return AutoModel.from_config(AutoConfig.for_model(family, **sizes)).eval()


def test_attention_that_cannot_be_switched_is_refused_with_the_way_out(task):
    with pytest.raises(ModelError, match=r'falcon.* cannot be switched .* attn_implementation="eager"'):
        ls.attentions(ls.load(unrecorded("falcon"), tokenizer=word_tokenizer()), task)
    eager = ls.load(unrecorded("falcon", attn_implementation="eager"), tokenizer=word_tokenizer())
    for weights in ls.attentions(eager, task)[1]:
        assert not weights.triu(1).any()
        torch.testing.assert_close(weights.sum(-1), torch.ones(weights.shape[:2]))


@pytest.mark.parametrize(("family", "changes"), [("mamba", {}), ("rwkv", {"attention_hidden_size": 32})])
def test_families_without_attention_are_a_sentence(family, changes, task):
    net = unrecorded(family, **changes)
    del net.config.num_attention_heads  # such configs have none
    model = ls.load(net, tokenizer=word_tokenizer())
    with pytest.raises(ModelError, match="does not give attention weights"):
        ls.attentions(model, task)


@pytest.mark.parametrize(
    ("change", "sentence"),
    [
        (lambda w: w * 0.5, "do not sum to one"),
        (lambda w: w.flip(-1), "attends to padding|looks ahead"),
        (lambda w: torch.ones_like(w[..., :5]).mul(0.2).repeat(1, 1, 1, 2)[..., : w.shape[-1]], "sum|padding"),
    ],
)
def test_weights_that_cannot_be_those_in_use_are_refused(change, sentence, task, monkeypatch):
    model = ls.load(random_network("llama", "encoder"), tokenizer=word_tokenizer("llama"))
    inner = model.network.forward

    def forward(**inputs):
        result = inner(**inputs)
        if inputs.get("output_attentions"):
            result.attentions = tuple(change(weights) for weights in result.attentions)
        return result

    monkeypatch.setattr(model.network, "forward", forward)
    with pytest.raises(ModelError, match=sentence):
        ls.attentions(model, task)
    assert model.network.config._attn_implementation == "sdpa"
