"""Modules by name, and the shapes in which their outputs may come."""

import pytest
import torch
from torch import nn
from torch.nn.utils.rnn import pack_padded_sequence

from layerscope.errors import InputError, ModelError
from layerscope.models.hooks import Taps, find_modules, watch_layers
from tests.helpers.models import Convolutional, Recurrent

STATE = torch.randn(2, 5, 3, generator=torch.Generator().manual_seed(0))


def test_names_and_globs_in_the_networks_order():
    network = Convolutional()
    assert find_modules(network, ["convolutions.*"]) == ("convolutions.0", "convolutions.1")
    assert find_modules(network, ["convolutions.1", "embed"]) == ("convolutions.1", "embed")
    assert find_modules(nn.Sequential(*(nn.Linear(1, 1) for _ in range(12))), ["*"])[-2:] == ("10", "11")


@pytest.mark.parametrize(
    ("patterns", "sentence"),
    [
        (["nothing.*"], "has no module 'nothing"),
        (["conv*"], None),
        (["*.0", "convolutions.0"], "named twice"),
        ([], "a list of names"),
        ("convolutions.*", "a list of names"),
    ],
)
def test_what_no_module_is_called(patterns, sentence):
    if sentence is None:
        assert find_modules(Convolutional(), patterns) == ("convolutions",)  # a star does not cross a dot
        return
    with pytest.raises(InputError, match=sentence):
        find_modules(Convolutional(), patterns)


@pytest.mark.parametrize(
    ("output", "layout", "given"),
    [
        ("tensor", "batch time width", STATE),
        ("tensor", "time batch width", STATE.transpose(0, 1)),
        ("tensor", "batch width time", STATE.transpose(1, 2)),
        ("first", "batch time width", (STATE, None)),
        ("first", "time batch width", [STATE.transpose(0, 1), 1, 2]),
        (lambda output: output["state"], "batch time width", {"state": STATE}),
    ],
)
def test_every_output_becomes_a_state(output, layout, given):
    taps = Taps(("a", "b"), "e", output, layout)
    assert torch.equal(taps.state(1, given, 5), STATE)


@pytest.mark.parametrize("wrapped", [False, True])
def test_packed_sequences_are_padded_to_the_batch(wrapped):
    packed = pack_padded_sequence(STATE, torch.tensor([2, 4]), batch_first=True, enforce_sorted=False)
    state = Taps(("a",), "e", "packed").state(1, (packed, None) if wrapped else packed, 5)
    assert state.shape == STATE.shape
    assert torch.equal(state[0, :2], STATE[0, :2])
    assert torch.equal(state[1, :4], STATE[1, :4])
    assert not state[0, 2:].any()


@pytest.mark.parametrize(
    ("output", "given", "sentence"),
    [
        ("tensor", (STATE, None), "is a tuple of 2, not a tensor.*output='first'"),
        ("tensor", pack_padded_sequence(STATE, torch.tensor([5, 4]), batch_first=True), "output='packed'"),
        ("first", STATE, "declared to be the first of several outputs"),
        ("packed", STATE, "declared to be packed"),
        ("tensor", STATE[0], "floats of three dimensions"),
        ("tensor", STATE.long(), "floats of three dimensions"),
    ],
)
def test_nothing_is_guessed(output, given, sentence):
    with pytest.raises(ModelError, match=sentence):
        Taps(("a",), "e", output).state(1, given, 5)


def test_unknown_options_are_refused():
    with pytest.raises(InputError, match="batch time width"):
        Taps(("a",), layout="width first")
    with pytest.raises(InputError, match="packed"):
        Taps(("a",), output="last")


def test_layer_0_is_what_enters_the_first_layer_where_no_module_is_named():
    network, seen = Convolutional(), {}
    taps = Taps(("convolutions.0", "convolutions.1"), None, layout="batch width time")
    with torch.inference_mode(), watch_layers(network, taps, 3, seen.__setitem__):
        network(torch.tensor([[3, 4, 5]]))
    assert sorted(seen) == [0, 1, 2]
    assert torch.equal(seen[0], network.embed(torch.tensor([[3, 4, 5]])))


def test_hooks_are_gone_afterwards_and_a_module_that_runs_twice_is_refused():
    shared = nn.Linear(3, 3)

    class Twice(nn.Module):
        def __init__(self):
            super().__init__()
            self.block = shared

        def forward(self, x):
            return self.block(self.block(x))

    with pytest.raises(ModelError, match="more than once"), watch_layers(Twice(), Taps(("block",)), 5, lambda *_: None):
        Twice()(STATE)
    assert not shared._forward_hooks
    assert not shared._forward_pre_hooks
    assert Recurrent().lstms[0]._forward_hooks == {}
