"""Facts about families: what is known, what is refused by name."""

import pytest
import torch
from transformers import AutoConfig, AutoModel

from layerscope.errors import ModelError, PlanError
from layerscope.models import load
from layerscope.models.architecture import (
    block_kinds,
    block_modules,
    head_modules,
    kept_fields,
    layer_lists,
    unknown_layer_fields,
)
from layerscope.models.families import Architecture
from tests.helpers.cli import script
from tests.helpers.models import FAMILIES, random_config, random_model, random_network


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


def fields_of(family, keep, **changes):
    config = random_config(family, **changes)
    return kept_fields(config, architecture_of(config), keep)


def architecture_of(config):
    lists = layer_lists(config, config.num_hidden_layers)
    return Architecture(config.model_type, "layers", layer_lists=lists)


@pytest.mark.parametrize(
    ("family", "changes", "keep", "expected"),
    [
        ("deepseek_v3", {}, [1, 3, 5], {"first_k_dense_replace": 1}),
        ("afmoe", {}, [1, 2, 5], {"num_dense_layers": 2}),
        ("bamba", {}, [2, 3, 5, 6], {"attn_layer_indices": [0, 2]}),
        ("qwen3_moe", {}, [2, 4, 5], {"decoder_sparse_step": 1, "mlp_only_layers": [1, 2]}),
        ("qwen3_moe", {}, [1, 2, 3], {"decoder_sparse_step": 2, "mlp_only_layers": [3]}),
        (
            "ernie4_5_moe",
            {},
            [1, 2, 5],
            {"moe_layer_start_index": 1, "moe_layer_end_index": 1, "moe_layer_interval": 1},
        ),
        (
            "ernie4_5_moe",
            {"moe_layer_interval": 2, "num_hidden_layers": 6, "moe_layer_start_index": 0, "moe_layer_end_index": 5},
            [2, 3, 4],  # sparse, dense, sparse: no interval ends like that
            None,
        ),
        ("jamba", {}, [1, 3, 5], {"attn_layer_period": 4, "attn_layer_offset": 3}),  # no attention is left
        ("jamba", {}, [2, 4, 5], None),
        ("recurrent_gemma", {}, [2, 4], {"block_types": ["attention", "recurrent"]}),
    ],
    ids=str,
)
def test_what_is_said_of_blocks_is_said_of_those_that_stay(family, changes, keep, expected):
    if expected is None:
        with pytest.raises(PlanError, match="no value says that"):
            fields_of(family, keep, **changes)
        return
    found = fields_of(family, keep, **changes)
    assert found.items() >= {**expected, "num_hidden_layers": len(keep)}.items()
    before = random_config(family, **changes)
    kinds = block_kinds(before, architecture_of(before))
    after = random_config(family, **{**changes, **found})
    assert block_kinds(after, architecture_of(after)) == [kinds[block - 1] for block in keep]


def test_numbers_that_count_from_1_still_do():
    types = {"layer_types": ["linear_attention"] * 4}
    config = AutoConfig.for_model("qwen4_exp_text", num_hidden_layers=4, ple_layer_ids=[1, 4], eos_token_id=3, **types)
    assert kept_fields(config, architecture_of(config), [2, 4])["ple_layer_ids"] == [2]


def test_a_list_that_transformers_makes_of_a_number_is_one_of_blocks():
    """Longformer's window is one number in a config, and a list with one entry per block in a network's."""
    config = AutoConfig.for_model("longformer", num_hidden_layers=3, attention_window=[8, 4, 16])
    assert kept_fields(config, architecture_of(config), [1, 3])["attention_window"] == [8, 16]


def test_a_list_of_another_kind_stays_whole_where_there_are_as_many_blocks():
    assert set(fields_of("bamba", [1], num_hidden_layers=2, attn_layer_indices=[0])) == {
        "num_hidden_layers",
        "attn_layer_indices",
    }


def test_the_fields_about_single_blocks_of_all_families_are_known():
    """Those that are left are of families which are refused, or are refused by name where they are set."""
    unknown = {}
    for family in script("docs/families.py").names():
        config = AutoConfig.for_model(family)
        if found := unknown_layer_fields(config, getattr(config, "num_hidden_layers", None)):
            unknown[family] = set(found)
    assert unknown.pop("reformer", {"attn_layers"}) == {"attn_layers"}
    assert unknown.pop("funnel", {"block_sizes", "block_repeats"}) >= {"block_sizes"}
    assert set().union(*unknown.values()) <= {"num_kv_shared_layers", "per_layer_config"}
