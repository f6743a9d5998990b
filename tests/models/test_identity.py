"""What a model and a tokenizer are: what changes an answer changes the fingerprint, and nothing else does."""

import copy
import dataclasses
import functools
import inspect
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
import torch
import zoo
from peft import LoraConfig
from tokenizers import AddedToken, normalizers
from torch import nn
from torch.nn.modules.module import register_module_forward_hook
from transformers import AutoTokenizer, BertweetTokenizer, ByT5Tokenizer, CanineTokenizer

import layerscope as ls
from layerscope.models import load
from layerscope.models.identity import fingerprint, tokenizer_fingerprint, tokenizer_identity
from layerscope.store import NoKey, Store, keys_of

ADAPTED_IMPORTS = "import torch, zoo, layerscope as ls\nfrom peft import LoraConfig"


SMALL = {"num_hidden_layers": 2, "hidden_size": 16, "num_attention_heads": 2, "intermediate_size": 16}


TEXTS = {"text": ["a file", "the list of an object", "not this value", "return"] * 4, "label": [0, 1] * 8}


def model(family="bert", tokenizer=None, **options):
    network = zoo.network(family, "encoder", **{**SMALL, **options})
    return ls.load(network, tokenizer=tokenizer or zoo.tokenizer(family))


def table():
    import pandas

    return ls.task(pandas.DataFrame(TEXTS))


def key(opened):
    return keys_of(lambda: ls.extract(opened, table()))


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
    opened = model("llama", num_key_value_heads=2) if edit is edit_buffer else model()
    before = key(opened)
    assert key(opened) == before != []
    edit(opened.network)
    assert key(opened) != before


def test_an_edited_network_is_computed_anew():
    opened = model()
    first = ls.extract(opened, table())[2]
    replace_activation(opened.network)
    second = ls.extract(opened, table())[2]
    assert not torch.allclose(first, second)
    assert torch.equal(second, ls.extract(opened, table(), store=False)[2])
    assert len(Store().entries()) == 2


def test_the_anatomy_is_part_of_a_model():
    opened = model()
    last = dataclasses.replace(opened, anatomy=dataclasses.replace(opened.anatomy, summary="last"))
    assert key(last) != key(opened)


def test_each_adapter_and_none_is_a_model_of_its_own():
    opened = model()
    network, keys, states = opened.network, {}, {}

    def note(name):
        keys[name] = tuple(key(opened))
        states[name] = ls.extract(opened, table(), store=False)[2]

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
    stored = ls.extract(opened, table())[2]
    network.set_adapter("two")
    assert not torch.allclose(ls.extract(opened, table())[2], stored)


def test_the_strength_of_an_adapter_is_part_of_a_model():
    opened = model()
    opened.network.add_adapter(LoraConfig(target_modules=["query"], r=2, init_lora_weights=False), "one")
    before = key(opened)
    opened.network.encoder.layer[0].attention.self.query.scaling["one"] *= 2
    assert key(opened) != before


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


def own_forward(network):
    dense = network.encoder.layer[0].output.dense
    dense.forward = lambda x: 2 * nn.Linear.forward(dense, x)


def disguised_forward(network):
    dense = network.encoder.layer[0].output.dense
    dense.forward = functools.wraps(dense.forward)(lambda x: 2 * nn.Linear.forward(dense, x))


def wrapped_function(network):
    put_function(network, torch.no_grad()(own))


EDITS = [hook, hook_before, own_activation, own_function, nameless_function]


EDITS += [own_forward, disguised_forward, wrapped_function]


@pytest.mark.parametrize("edit", EDITS)
def test_what_cannot_be_fingerprinted_is_computed_without_the_store(edit):
    opened = model()
    before = ls.extract(opened, table(), store=False)[2]
    edit(opened.network)
    expected = ls.extract(opened, table(), store=False)[2]
    assert not torch.allclose(expected, before)
    with pytest.raises(NoKey, match="which cannot be fingerprinted"):
        opened.spec()
    for _ in range(2):
        assert torch.equal(ls.extract(opened, table())[2], expected)
    assert not Store().entries()


def test_a_hook_for_all_modules_is_seen():
    opened = model()
    handle = register_module_forward_hook(lambda module, inputs, output: output)
    try:
        with pytest.raises(NoKey, match="a forward hook for all modules"):
            opened.spec()
    finally:
        handle.remove()
    assert opened.spec()


def test_a_removed_hook_leaves_no_trace():
    opened = model()
    before = key(opened)
    handle = opened.network.encoder.layer[0].register_forward_hook(lambda module, inputs, output: output)
    with pytest.raises(NoKey, match=r"a hook on encoder\.layer\.0"):
        key(opened)
    handle.remove()
    assert key(opened) == before


def test_a_training_of_a_model_without_a_key_has_none():
    opened = model()
    own_activation(opened.network)
    with pytest.raises(NoKey):
        keys_of(lambda: ls.tune(opened, table(), strategy="head-only", max_steps=1))


@pytest.mark.parametrize("family", zoo.FAMILIES)
def test_a_checkpoint_is_one_model_wherever_it_lies_and_whatever_it_has_read(family, tmp_path):
    folder = zoo.save(tmp_path / "here", family)
    shutil.copytree(folder, tmp_path / "other" / "place")
    first, second = ls.load(folder), ls.load(tmp_path / "other" / "place")
    spec = first.spec()
    assert second.spec() == spec
    first.network(**zoo.inputs(left=family in zoo.DECODERS))
    first.tokenizer(["a file", "this is the list of an object"], truncation=True, max_length=4)
    first.network.train()
    assert first.spec() == spec


def adapted():
    """A network whose adapter's config holds a set."""
    network = zoo.network("bert", "encoder", **SMALL)
    torch.manual_seed(0)
    network.add_adapter(LoraConfig(target_modules=["query", "value", "key", "dense"], r=2), "one")
    return ls.load(network, tokenizer=zoo.tokenizer())


def test_a_fingerprint_is_the_same_in_every_process():
    """Sets have another order in every process; a fingerprint has none."""
    script = f"{ADAPTED_IMPORTS}\nSMALL = {SMALL}\n{inspect.getsource(adapted)}\nprint(adapted().spec())"
    path = os.pathsep.join([str(Path(ls.__file__).parents[1]), str(Path(zoo.__file__).parent)])
    environment = {**os.environ, "PYTHONHASHSEED": "1234", "PYTHONPATH": path}
    command = [sys.executable, "-c", script]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=True)
    assert done.stdout.strip() == str(adapted().spec())


def test_a_config_of_its_own_is_part_of_a_model():
    opened = model()
    before = key(opened)
    attention = opened.network.encoder.layer[0].attention.self
    attention.config = copy.deepcopy(opened.network.config)
    assert key(opened) == before
    attention.config.attention_probs_dropout_prob = 0.9
    assert key(opened) != before


def split_special_tokens(tokenizer):
    tokenizer.split_special_tokens = True


def cls_token(tokenizer):
    tokenizer.cls_token = "[MASK]"


def truncation_side(tokenizer):
    tokenizer.truncation_side = "left"


def add_prefix_space(tokenizer):
    tokenizer.add_prefix_space = not tokenizer.add_prefix_space


def lower_case(tokenizer):
    tokenizer.backend_tokenizer.normalizer = normalizers.BertNormalizer(lowercase=False)


def added_token(tokenizer):
    tokenizer.add_tokens(["ofthe"])


def input_names(tokenizer):
    tokenizer.model_input_names = ["input_ids", "attention_mask"]


@pytest.mark.parametrize(
    "edit",
    [split_special_tokens, cls_token, truncation_side, add_prefix_space, lower_case, added_token, input_names],
)
def test_every_flag_of_a_fast_tokenizer_is_part_of_it(edit):
    tokenizer = zoo.tokenizer()
    before, opened = tokenizer_fingerprint(tokenizer), model(tokenizer=tokenizer)
    key_before = key(opened)
    edit(tokenizer)
    assert tokenizer_fingerprint(tokenizer) != before
    assert key(opened) != key_before


def test_what_does_not_change_ids_is_no_part_of_a_tokenizer():
    one, other = zoo.tokenizer(), zoo.tokenizer()
    other.padding_side, other.model_max_length, other.name_or_path = "left", 7, "elsewhere"
    other.chat_template, other.verbose = "{{ messages }}", False
    other(["a file", "this is the list of an object"], padding=True, truncation=True, max_length=4)
    assert tokenizer_fingerprint(one) == tokenizer_fingerprint(other)


@pytest.mark.parametrize("family", ["bert", "xlnet", "gpt2"])
def test_a_saved_tokenizer_is_the_same(family, tmp_path):
    tokenizer = zoo.tokenizer(family)
    tokenizer.save_pretrained(tmp_path)
    again = AutoTokenizer.from_pretrained(tmp_path)
    assert tokenizer_fingerprint(again) == tokenizer_fingerprint(tokenizer)


@pytest.fixture
def bertweet(tmp_path):
    """Makes slow tokenizers from small files."""
    words = ["f@@", "i@@", "l@@", "e", "a", "file", "il@@", "@USER"]
    (tmp_path / "vocab.txt").write_text("".join(f"{word} 1\n" for word in words))
    (tmp_path / "merges.txt").write_text("i l 3\nil e</w> 2\nf ile</w> 2\n")
    return lambda **options: BertweetTokenizer(str(tmp_path / "vocab.txt"), str(tmp_path / "merges.txt"), **options)


def test_the_flags_of_a_slow_tokenizer_are_part_of_it(bertweet):
    plain, normal = bertweet(), bertweet(normalization=True)
    text = "a file @somebody"
    assert plain(text)["input_ids"] != normal(text)["input_ids"]
    assert tokenizer_fingerprint(plain) == tokenizer_fingerprint(bertweet())  # whatever it has read
    assert len({tokenizer_fingerprint(t) for t in (plain, normal)}) == 2
    assert key(model(tokenizer=plain)) != key(model(tokenizer=normal))


def test_the_files_of_a_slow_tokenizer_are_read_and_not_named(bertweet, tmp_path):
    before = tokenizer_fingerprint(bertweet())
    (tmp_path / "merges.txt").write_text("i l 3\n")
    assert tokenizer_fingerprint(bertweet()) != before


def test_a_slow_tokenizer_is_its_class_its_added_tokens_and_their_flags():
    plain, some = ByT5Tokenizer(), [ByT5Tokenizer() for _ in range(3)]
    some[0].add_tokens(["ofthe"])
    some[1].add_tokens([AddedToken("ofthe", lstrip=True)])
    some[2].cls_token = "f"
    before = tokenizer_fingerprint(plain)
    plain("of the ofthe file")
    plain.padding_side = "left"
    assert tokenizer_fingerprint(plain) == before == tokenizer_fingerprint(ByT5Tokenizer())
    assert len({before, *map(tokenizer_fingerprint, [*some, CanineTokenizer()])}) == 5


class Loud(ByT5Tokenizer):
    """A tokenizer whose code is nowhere but here."""

    def _tokenize(self, text):
        return super()._tokenize(text.upper())


def test_a_tokenizer_of_ones_own_has_no_fingerprint_and_is_only_itself():
    one, other = Loud(), Loud()
    with pytest.raises(NoKey, match=r"Loud in the tokenizer"):
        tokenizer_fingerprint(one)
    assert tokenizer_identity(one) == tokenizer_identity(one) != tokenizer_identity(other)


@pytest.mark.parametrize("pool", ["cls", "tokens"])
def test_a_tokenizer_without_a_fingerprint_works_without_the_store(pool):
    tokenizer = zoo.tokenizer()
    opened = model(tokenizer=tokenizer)
    expected = ls.extract(opened, table(), pool=pool, store=False)[2]
    tokenizer.own = lambda text: text
    reps = ls.extract(opened, table(), pool=pool)
    assert torch.equal(reps[2], expected)
    assert ls.compare(opened, opened, task=table(), pool=pool).values.shape == (3, 3)
    assert not Store().entries()


def test_weights_edited_in_place_make_another_model():
    model = load(zoo.network("bert"), tokenizer=zoo.tokenizer())
    before = fingerprint(model)
    assert fingerprint(model) == before
    with torch.no_grad():
        next(model.network.parameters())[0, 0] += 1e-3
    assert fingerprint(model) != before


def test_the_tokenizers_fingerprint_sees_what_decides_the_ids():
    one, other = zoo.tokenizer(), zoo.tokenizer()
    before = tokenizer_fingerprint(one)
    one("the file is long", truncation=True, max_length=4)
    assert tokenizer_fingerprint(one) == before == tokenizer_fingerprint(other)
    other.truncation_side = "left"
    assert tokenizer_fingerprint(other) != before
