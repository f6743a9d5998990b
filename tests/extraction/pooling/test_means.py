from itertools import pairwise

import numpy as np
import pytest
import torch

from layerscope.extraction import pooling
from layerscope.extraction.pooling import plain_segment_means, segment_means

DEVICES = ["cpu", pytest.param("cuda", marks=pytest.mark.gpu)]


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16])
@pytest.mark.parametrize("width", [3, 512, 700])
def test_means_are_numpys(device, dtype, width):
    generator = np.random.default_rng(width)
    rows = torch.from_numpy(generator.normal(size=(50, width))).to(dtype)
    counts = generator.integers(1, 9, size=20)
    offsets = np.concatenate([[0], np.cumsum(counts)])
    places = generator.integers(0, 50, size=offsets[-1])
    expected = [rows.double().numpy()[places[a:b]].mean(axis=0) for a, b in pairwise(offsets)]
    given = (rows.to(device), torch.from_numpy(places).to(device), torch.from_numpy(offsets).to(device))
    for way in (segment_means, plain_segment_means):
        result = way(*given)
        assert result.dtype == torch.float32
        np.testing.assert_allclose(result.cpu().numpy(), np.stack(expected), rtol=1e-5, atol=1e-6)
    assert torch.equal(segment_means(*given), segment_means(*given))
    assert len(segment_means(given[0], given[1][:0], given[2][:1])) == 0


def test_without_triton_torch_does_it(monkeypatch):
    monkeypatch.setitem(__import__("sys").modules, "triton", None)
    pooling.has_triton.cache_clear()
    try:
        assert not pooling.has_triton()
    finally:
        monkeypatch.undo()
        pooling.has_triton.cache_clear()
