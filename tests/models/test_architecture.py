"""Facts about families: what is known, what is refused by name."""

import pytest
import torch
from transformers import AutoConfig, AutoModel

from layerscope.errors import ModelError
from layerscope.models import load
from layerscope.models.architecture import block_modules, head_modules
from tests.helpers.models import FAMILIES, random_model, random_network


def test_a_convolution_after_block_1_is_refused_by_name():
    net = random_network("deberta-v2", conv_kernel_size=3)
    with pytest.raises(ModelError, match=r"deberta-v2 with conv_kernel_size=3 .* convolution follows block 1"):
        load(net)


@pytest.mark.parametrize("family", ["t5", "bart"])
def test_encoder_decoders_and_shared_biases_are_refused_by_name(family):
    small = {"d_model": 16, "d_kv": 4, "d_ff": 16, "num_layers": 2, "num_heads": 2, "vocab_size": 40}
    if family == "bart":
        small = {"d_model": 16, "encoder_layers": 2, "decoder_layers": 2, "vocab_size": 40}
    net = AutoModel.from_config(AutoConfig.for_model(family, **small))
    with pytest.raises(ModelError, match=f"{family} is not supported"):
        load(net)


@pytest.mark.parametrize("family", FAMILIES)
def test_the_head_of_the_record_is_what_stands_beside_the_base_model(family):
    model = random_model(family, "classifier")
    base = model.network.base_model_prefix
    expected = {f"{base}.{name}" for name in model.architecture.base_head} | set(model.architecture.head)
    with_parameters = {p for p in expected if list(_module(model.network, p).parameters())}
    assert set(head_modules(model.network, model.architecture)) == with_parameters
    body = {id(p) for block in block_modules(model.network.base_model, model.architecture) for p in block.parameters()}
    head = {id(p) for path in with_parameters for p in model.network.get_submodule(path).parameters()}
    assert head
    assert not head & body


def _module(network, path):
    """RoBERTa's and ELECTRA's classifiers are built without the pooler that their encoders may have."""
    try:
        found = network.get_submodule(path)
    except AttributeError:
        found = None
    return found if found is not None else torch.nn.Module()
