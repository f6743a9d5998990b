"""Networks spread over devices, and those whose weights wait on the host or the disk, give what whole ones give."""

import copy

import numpy as np
import pytest
import torch
from accelerate import dispatch_model

import layerscope as ls
from layerscope.errors import InputError
from layerscope.models.devices import input_device, is_offloaded, weight
from layerscope.store import NoKey
from tests.helpers.data import three_class_frame
from tests.helpers.models import (
    BLOCK_LISTS,
    WAYS_TO_OFFLOAD,
    half_on_the_disk,
    on_the_disk,
    on_the_host,
    random_network,
    save_random,
    token_batch,
    word_tokenizer,
)


@pytest.fixture
def task():
    return ls.task(three_class_frame(30, 1))


def two(family, way, folder):
    """The same model whole and spread."""
    network = random_network(family, "classifier")
    whole = ls.load(copy.deepcopy(network), tokenizer=word_tokenizer(family))
    return whole, ls.load(way(network, folder / "offload"), tokenizer=word_tokenizer(family))


@pytest.mark.parametrize("way", WAYS_TO_OFFLOAD)
def test_weights_that_wait_elsewhere_are_found(way, tmp_path):
    whole, spread = two("bert", way, tmp_path)
    assert is_offloaded(spread.network)
    assert not is_offloaded(whole.network)
    assert spread.device == torch.device("cpu") == input_device(spread.network)
    expected = dict(whole.network.named_parameters())
    for name, parameter in spread.network.named_parameters():
        assert torch.equal(weight(spread.network, name, parameter), expected[name])


@pytest.mark.parametrize("way", WAYS_TO_OFFLOAD)
def test_other_weights_are_another_model(way, tmp_path):
    whole, first = two("bert", way, tmp_path)
    assert first.spec() == whole.spec()
    network = random_network("bert", "classifier")
    with torch.no_grad():
        network.bert.encoder.layer[3].output.dense.weight[0, 0] += 1
    second = ls.load(way(network, tmp_path / "second"), tokenizer=word_tokenizer("bert"))
    assert first.spec() != second.spec()


def test_weights_that_are_nowhere_have_no_key():
    with torch.device("meta"):
        network = type(random_network("bert"))(random_network("bert").config)
    with pytest.raises(NoKey, match="no numbers for"):
        ls.load(network, tokenizer=word_tokenizer("bert")).spec()
    assert weight(network, "bert.pooler.dense.bias", network.bert.pooler.dense.bias) is None


@pytest.mark.parametrize(("family", "way"), [("bert", on_the_host), ("bert", half_on_the_disk), ("llama", on_the_disk)])
def test_everything_runs_on_a_spread_network(family, way, task, tmp_path, monkeypatch):
    whole, spread = two(family, way, tmp_path)

    def numbers(model):
        monkeypatch.setenv("LAYERSCOPE_HOME", str(tmp_path / str(id(model))))  # each finds its own, and nothing else
        reps = ls.extract(model, task, pool="mean")
        yield from (reps[layer] for layer in reps.layers)
        yield ls.compare(model, task=task, pool="mean").values
        yield ls.compare(model, task=task, pool="mean", memory=1e-4, measure="svcca", allow_trivial=True).values
        yield [ls.evaluate(model, task)]
        yield ls.specialty(model, task, null=2).values
        yield ls.truncation_curve(model, task).frame["score"]
        yield ls.skip_map(model, task, max_span=2).frame["score"]

    for found, expected in zip(list(numbers(spread)), list(numbers(whole)), strict=True):
        np.testing.assert_allclose(found, expected, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("way", WAYS_TO_OFFLOAD)
def test_blocks_are_replayed_where_their_weights_are(way, tmp_path):
    whole, spread = two("bert", way, tmp_path)
    inputs = token_batch()
    with torch.no_grad():
        replays = [ls.Replay(model, inputs) for model in (whole, spread)]
        states = [replay.without(2, 3) for replay in replays]
        torch.testing.assert_close(*states)
        torch.testing.assert_close(*(r.finish(s).logits for r, s in zip(replays, states, strict=True)))


def test_cutting_names_the_way_out(tmp_path):
    _, spread = two("bert", on_the_host, tmp_path)
    with pytest.raises(InputError, match=r"stay on the host or the disk .* ls.cut_folder\(folder, plan, path\)"):
        ls.truncate(spread, 2)


@pytest.mark.gpu(count=2)
def test_two_gpus_give_what_one_gives(task, tmp_path):
    folder = save_random(tmp_path / "model", "bert")
    one, both = ls.load(folder, device="cuda:0"), ls.load(folder, device="auto")
    blocks = {f"{BLOCK_LISTS['bert']}.{k}": k // 2 for k in range(4)}
    rest = dict.fromkeys(("bert.embeddings", "bert.pooler", "dropout", "classifier"), 0)
    dispatch_model(both.network, blocks | rest)
    assert len({p.device for p in both.network.parameters()}) == 2
    for found, expected in (
        (ls.compare(model, task=task, pool="mean").values for model in (both, one)),
        (ls.truncation_curve(model, task).frame["score"] for model in (both, one)),
        (ls.skip_map(model, task).frame["score"] for model in (both, one)),
    ):
        np.testing.assert_allclose(found, expected, rtol=1e-4, atol=1e-5)
