"""Tokens of a batch, from what a token costs."""

from types import SimpleNamespace

import pytest
import torch

from layerscope.extraction import loop
from layerscope.extraction.loop import block_parameters, default_tokens, growing_windows
from tests.helpers.models import random_model


def test_parameters_are_those_of_blocks():
    one = random_model("bert")
    assert block_parameters(one) == sum(p.numel() for p in one.network.base_model.encoder.layer.parameters())
    shared = random_model("albert")  # whose one block runs several times
    block = shared.network.base_model.encoder.albert_layer_groups[0].albert_layers[0]
    assert block_parameters(shared) == shared.depth * sum(p.numel() for p in block.parameters())


@pytest.mark.parametrize(
    ("parameters", "dtype", "device", "tokens"),
    [
        (85_000_000, torch.float32, "cuda", 16384),  # BERT-base
        (85_000_000, torch.bfloat16, "cuda", 32768),
        (303_000_000, torch.float32, "cuda", 4096),  # BERT-large
        (150_000_000, torch.float32, "cuda", 8192),
        (303_000_000, torch.bfloat16, "cuda", 32768),
        (6_500_000_000, torch.bfloat16, "cuda", 4096),  # Llama, 32 blocks of 4,096
        (0, torch.float32, "cuda", 32768),
        (10**12, torch.float32, "cuda", 4096),
        (303_000_000, torch.float32, "mps", 16384),
        (303_000_000, torch.float32, "cpu", 1024),
    ],
)
def test_batches_are_as_large_as_they_need_to_be(parameters, dtype, device, tokens, monkeypatch):
    monkeypatch.setattr(loop, "block_parameters", lambda _: parameters)
    one = SimpleNamespace(device=torch.device(device), network=SimpleNamespace(dtype=dtype))
    assert default_tokens(one) == tokens


@pytest.mark.parametrize(
    ("tokens", "sizes"),
    [
        (32768, [2048, 4096, 8192, 16384, 32768, 65536, 65536]),
        (16384, [1536, 7680, 38400, 65536, 65536]),
        (8192, [1536, 7680, 38400, 65536, 65536]),
        (4096, [1024, 16384, 65536, 65536]),
        (1024, [1024, 16384, 65536, 65536]),  # one model on a CPU beside others on a GPU
    ],
)
def test_windows_grow_faster_where_a_token_costs_more(tokens, sizes):
    windows = growing_windows(tokens)
    assert [next(windows) for _ in sizes] == sizes
    few = growing_windows(tokens, 600)
    assert [next(few) for _ in range(3)] == [600, 600, 600]
