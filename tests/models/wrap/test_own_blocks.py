"""Layers that pass the self-check are replayed and injected into; the reason is said where they do not."""

import numpy as np
import pytest
import torch
from torch import nn

import layerscope as ls
from layerscope.errors import ModelError
from layerscope.models.wrap import replay_fault
from tests.helpers.models import Plain, Recurrent, by_words, with_lengths


def plain(network=None, **changes):
    options = {"layers": ["blocks.*"], "embedding": "embed", "encode": by_words}
    return ls.wrap(network or Plain(), **options | changes)


class Residual(Plain):
    """What a block gives is not what the next one receives."""

    def forward(self, input_ids):
        x = self.embed(input_ids)
        for block in self.blocks:
            x = x + block(x)
        return x


class Reader(nn.Module):
    def __init__(self, block):
        super().__init__()
        self.block = block

    def forward(self, x, ids):
        return self.block(x) + ids.unsqueeze(-1)


class Peeking(Plain):
    """Every block reads the text again."""

    def __init__(self):
        super().__init__()
        self.blocks = nn.ModuleList(map(Reader, self.blocks))

    def forward(self, input_ids):
        x = self.embed(input_ids)
        for block in self.blocks:
            x = block(x, input_ids)
        return x


class Shifted(Plain):
    def forward(self, input_ids):
        x = self.embed(input_ids) + 1
        for block in self.blocks:
            x = block(x)
        return x


@pytest.mark.parametrize(
    ("model", "reason"),
    [
        (lambda: plain(Residual()), "the output of layer 1 is not what layer 2 receives"),
        (lambda: plain(Peeking()), "layer 1 is called with something that depends on the tokens"),
        (lambda: plain(Shifted()), "layer 0 is not what layer 1 receives"),
        (
            lambda: ls.wrap(Recurrent(), layers=["lstms.*"], embedding="embed", output="packed", encode=with_lengths),
            "do not hand on plain states",
        ),
    ],
)
def test_what_cannot_be_replayed_is_said(model, reason):
    model = model()
    assert reason in replay_fault(model)
    with pytest.raises(ModelError, match=reason):
        ls.Replay(model, {})


def test_sound_layers_are_replayed():
    model = plain()
    assert replay_fault(model) is None
    with torch.inference_mode():
        ids = torch.tensor([[3, 5, 8]])
        replay = ls.Replay(model, {"input_ids": ids})
        assert torch.equal(replay.states[0], model.module.embed(ids))
        state = torch.randn(1, 3, 4)
        expected = model.module.blocks[2](model.module.blocks[1](state))
        torch.testing.assert_close(replay.finish(replay.run(state, 2, 3)), expected)


def test_a_sound_network_is_injected_into():
    source, target = plain(), plain()
    with torch.no_grad():
        for parameter in source.module.blocks.parameters():
            parameter.add_(0.1)
    rows = np.random.default_rng(0).normal(size=(20, 4))
    target.tokenizer = source.tokenizer
    injection = ls.inject(source, target, ls.align(rows, rows, method="identity"), layer=1)
    ids = torch.tensor([[3, 5, 8]])
    with torch.inference_mode():
        state = source.module.blocks[0](source.module.embed(ids))
        expected = target.module.blocks[2](target.module.blocks[1](state))
    torch.testing.assert_close(injection(input_ids=ids), expected)
