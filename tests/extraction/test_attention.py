import pytest
import torch
import zoo

import layerscope as ls
from layerscope.errors import InputError
from layerscope.models.replay import caches_off


@pytest.mark.parametrize("family", zoo.FAMILIES)
def test_attention_weights_of_every_family(family, task):
    model = ls.load(zoo.network(family, "encoder"), tokenizer=zoo.tokenizer(family))
    before = model.network.config._attn_implementation
    found = ls.attentions(model, task)
    assert model.network.config._attn_implementation == before
    assert found.layers == [1, 2, 3, 4]
    plain = zoo.network(family, "encoder")
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
    model = ls.load(zoo.network("bert", "encoder"), tokenizer=zoo.tokenizer())
    found = ls.attentions(model, task, layers=[2], limit=3)
    assert len(found) == 3
    with pytest.raises(InputError, match=r"no attention weights of layer 1"):
        found[1]
    with pytest.raises(InputError, match=r"layers 1\.\.4, not of \[0\]"):
        ls.attentions(model, task, layers=[0])
