"""Jensen-Shannon divergences: the sums against their definition, however many threads share them."""

import pytest
import torch

from layerscope.similarity.attention import jensen_shannon


@pytest.mark.parametrize("columns", [1, 7, 5000])
@pytest.mark.parametrize("same", [False, True])
def test_mixture_sums(columns, same):
    generator = torch.Generator().manual_seed(columns)
    a, b = (torch.rand(n, columns, generator=generator, dtype=torch.float64) for n in (5, 4))
    a[0, 0] = b[1, 0] = 0.0
    b = a if same else b
    middle = (a[:, None] + b[None]) / 2
    expected = torch.special.xlogy(middle, middle).sum(dim=-1)
    for dtype, tolerance in ((torch.float64, 1e-12), (torch.float32, 2e-6)):
        half_a = jensen_shannon.halved(a.to(dtype))
        half_b = half_a if same else jensen_shannon.halved(b.to(dtype))
        found = jensen_shannon.mixture_sums(half_a, half_b)
        torch.testing.assert_close(found, expected, rtol=tolerance, atol=tolerance * columns)
        plain = jensen_shannon.plain_mixture_sums(half_a, half_b)
        torch.testing.assert_close(plain, expected, rtol=tolerance, atol=tolerance * columns)
        own = torch.special.xlogy(a, a).sum(dim=-1)
        torch.testing.assert_close(jensen_shannon.entropies(half_a), own, rtol=tolerance, atol=tolerance * columns)


def test_threads_share_the_entries():
    generator = torch.Generator().manual_seed(0)
    half = jensen_shannon.halved(torch.rand(5, 9000, generator=generator))
    one = jensen_shannon.mixture_sums(half, half)
    try:
        torch.set_num_threads(3)
        for _ in range(2):  # the threads and their buffers are kept
            torch.testing.assert_close(jensen_shannon.mixture_sums(half, half), one, rtol=1e-13, atol=0)
    finally:
        torch.set_num_threads(1)
