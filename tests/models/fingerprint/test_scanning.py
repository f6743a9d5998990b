"""A network is all that its answers depend on: tensors, settings, functions, hooks, adapters; or it has no key."""

import copy
import dataclasses
import functools
import inspect
import os
import shutil
import subprocess
import sys
from importlib import import_module
from pathlib import Path

import pytest
import torch
from peft import LoraConfig
from torch import nn
from torch.nn.modules.module import register_module_forward_hook

import layerscope as ls
from layerscope.models.fingerprint import _NAMES_IN_KEYS, Scan
from layerscope.store import NoKey, Store, keys_of
from tests.helpers.data import extraction_key, labelled_task
from tests.helpers.models import (
    DECODERS,
    FAMILIES,
    TWO_BLOCKS,
    random_network,
    save_random,
    token_batch,
    two_block_encoder,
    word_tokenizer,
)

ADAPTED_IMPORTS = """
import torch
import layerscope as ls
from peft import LoraConfig
from tests.helpers.models import TWO_BLOCKS, random_network, word_tokenizer
"""


def edit_weight(network):
    with torch.no_grad():
        network.encoder.layer[1].output.dense.weight[0, 0] += 1e-3


def edit_buffer(network):
    network.rotary_emb.inv_freq.mul_(2)


def replace_activation(network):
    network.encoder.layer[0].intermediate.intermediate_act_fn = nn.ReLU()


def put_function(network, function):
    intermediate = network.encoder.layer[0].intermediate
    del intermediate.intermediate_act_fn  # it is a module, whose place takes nothing but modules
    intermediate.intermediate_act_fn = function


def replace_function(network):
    put_function(network, torch.tanh)


def edit_setting(network):
    network.encoder.layer[0].output.LayerNorm.eps = 0.5


def edit_config(network):
    network.config.hidden_act = "relu"


def to_half(network):
    network.to(torch.bfloat16)


@pytest.mark.parametrize(
    "edit", [edit_weight, edit_buffer, replace_activation, replace_function, edit_setting, edit_config, to_half]
)
def test_an_edited_network_is_another_model(edit):
    opened = two_block_encoder("llama", num_key_value_heads=2) if edit is edit_buffer else two_block_encoder()
    before = extraction_key(opened)
    assert extraction_key(opened) == before != []
    edit(opened.network)
    assert extraction_key(opened) != before


def test_an_edited_network_is_computed_anew():
    opened = two_block_encoder()
    first = ls.extract(opened, labelled_task())[2]
    replace_activation(opened.network)
    second = ls.extract(opened, labelled_task())[2]
    assert not torch.allclose(first, second)
    assert torch.equal(second, ls.extract(opened, labelled_task(), store=False)[2])
    assert len(Store().entries()) == 2


def test_the_anatomy_is_part_of_a_model():
    opened = two_block_encoder()
    last = dataclasses.replace(opened, architecture=dataclasses.replace(opened.architecture, summary="last"))
    assert extraction_key(last) != extraction_key(opened)


def test_each_adapter_and_none_is_a_model_of_its_own():
    opened = two_block_encoder()
    network, keys, states = opened.network, {}, {}

    def note(name):
        keys[name] = tuple(extraction_key(opened))
        states[name] = ls.extract(opened, labelled_task(), store=False)[2]

    note("bare")
    for k, name in enumerate(("one", "two")):
        torch.manual_seed(k)
        network.add_adapter(LoraConfig(target_modules=["query", "value"], r=2, init_lora_weights=False), name)
        note(name)
    network.set_adapter("one")
    note("one again")
    network.disable_adapters()
    note("off")
    network.enable_adapters()
    note("on")
    assert len({keys[name] for name in ("bare", "one", "two", "off")}) == 4
    assert not torch.allclose(states["one"], states["two"])
    assert torch.equal(states["one again"], states["on"])
    assert keys["one again"] == keys["on"] != keys["two"]
    stored = ls.extract(opened, labelled_task())[2]
    network.set_adapter("two")
    assert not torch.allclose(ls.extract(opened, labelled_task())[2], stored)


def test_the_strength_of_an_adapter_is_part_of_a_model():
    opened = two_block_encoder()
    opened.network.add_adapter(LoraConfig(target_modules=["query"], r=2, init_lora_weights=False), "one")
    before = extraction_key(opened)
    opened.network.encoder.layer[0].attention.self.query.scaling["one"] *= 2
    assert extraction_key(opened) != before


class Own(nn.Module):
    """An activation whose code is nowhere but here."""

    def forward(self, x):
        return x * x


def own(x):
    return x * x


def hook(network):
    network.encoder.layer[0].register_forward_hook(lambda module, inputs, output: output * 2)


def hook_before(network):
    network.encoder.layer[0].register_forward_pre_hook(lambda module, inputs: (inputs[0] * 2, *inputs[1:]))


def own_activation(network):
    network.encoder.layer[0].intermediate.intermediate_act_fn = Own()


def own_function(network):
    put_function(network, own)


def nameless_function(network):
    put_function(network, lambda x: x * x)


def original_forward(network):
    dense = network.encoder.layer[0].output.dense
    dense.forward = lambda x: 2 * nn.Linear.forward(dense, x)


def disguised_forward(network):
    dense = network.encoder.layer[0].output.dense
    dense.forward = functools.wraps(dense.forward)(lambda x: 2 * nn.Linear.forward(dense, x))


def wrapped_function(network):
    put_function(network, torch.no_grad()(own))


EDITS = [hook, hook_before, own_activation, own_function, nameless_function]
EDITS += [original_forward, disguised_forward, wrapped_function]


@pytest.mark.parametrize("edit", EDITS)
def test_what_cannot_be_fingerprinted_is_computed_without_the_store(edit):
    opened = two_block_encoder()
    before = ls.extract(opened, labelled_task(), store=False)[2]
    edit(opened.network)
    expected = ls.extract(opened, labelled_task(), store=False)[2]
    assert not torch.allclose(expected, before)
    with pytest.raises(NoKey, match="which cannot be fingerprinted"):
        opened.spec()
    for _ in range(2):
        assert torch.equal(ls.extract(opened, labelled_task())[2], expected)
    assert not Store().entries()


def test_a_hook_for_all_modules_is_seen():
    opened = two_block_encoder()
    handle = register_module_forward_hook(lambda module, inputs, output: output)
    try:
        with pytest.raises(NoKey, match="a forward hook for all modules"):
            opened.spec()
    finally:
        handle.remove()
    assert opened.spec()


def test_a_removed_hook_leaves_no_trace():
    opened = two_block_encoder()
    before = extraction_key(opened)
    handle = opened.network.encoder.layer[0].register_forward_hook(lambda module, inputs, output: output)
    with pytest.raises(NoKey, match=r"a hook on encoder\.layer\.0"):
        extraction_key(opened)
    handle.remove()
    assert extraction_key(opened) == before


def test_a_training_of_a_model_without_a_key_has_none():
    opened = two_block_encoder()
    own_activation(opened.network)
    with pytest.raises(NoKey):
        keys_of(lambda: ls.tune(opened, labelled_task(), strategy="head-only", max_steps=1))


@pytest.mark.parametrize("family", FAMILIES)
def test_a_checkpoint_is_one_model_wherever_it_lies_and_whatever_it_has_read(family, tmp_path):
    folder = save_random(tmp_path / "here", family)
    shutil.copytree(folder, tmp_path / "other" / "place")
    first, second = ls.load(folder), ls.load(tmp_path / "other" / "place")
    spec = first.spec()
    assert second.spec() == spec
    first.network(**token_batch(left=family in DECODERS))
    first.tokenizer(["a file", "this is the list of an object"], truncation=True, max_length=4)
    first.network.train()
    assert first.spec() == spec


def adapted():
    """A network whose adapter's config holds a set."""
    network = random_network("bert", "encoder", **TWO_BLOCKS)
    torch.manual_seed(0)
    network.add_adapter(LoraConfig(target_modules=["query", "value", "key", "dense"], r=2), "one")
    return ls.load(network, tokenizer=word_tokenizer())


def test_a_fingerprint_is_the_same_in_every_process():
    """Sets have another order in every process; a fingerprint has none."""
    script = f"{ADAPTED_IMPORTS}\n{inspect.getsource(adapted)}\nprint(adapted().spec())"
    path = os.pathsep.join([str(Path(ls.__file__).parents[1]), str(Path(__file__).parents[3])])
    environment = {**os.environ, "PYTHONHASHSEED": "1234", "PYTHONPATH": path}
    command = [sys.executable, "-c", script]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=True)
    assert done.stdout.strip() == str(adapted().spec())


def test_a_config_of_its_own_is_part_of_a_model():
    opened = two_block_encoder()
    before = extraction_key(opened)
    attention = opened.network.encoder.layer[0].attention.self
    attention.config = copy.deepcopy(opened.network.config)
    assert extraction_key(opened) == before
    attention.config.attention_probs_dropout_prob = 0.9
    assert extraction_key(opened) != before


@pytest.mark.parametrize("name", _NAMES_IN_KEYS)
def test_what_was_moved_is_in_keys_under_its_former_name(name):
    module, _, attribute = name.rpartition(".")
    value = getattr(import_module(module), attribute)
    scan = Scan()
    if isinstance(value, type):
        assert scan.kind(value.__new__(value), "it") == _NAMES_IN_KEYS[name]
    else:
        assert scan.content(value) == _NAMES_IN_KEYS[name]
    assert not scan.unknown
