"""Measures of attention on a GPU give what they give on a CPU; the fused kernel gives what plain torch gives."""

import numpy as np
import pytest
import torch

import layerscope as ls
from layerscope.similarity.attention import jensen_shannon
from tests.helpers.models import random_network, word_tokenizer

pytestmark = pytest.mark.gpu
NAMES = [f"attention_{name}" for name in ("norm", "pearson", "js", "cka", "svcca", "pwcca")]


@pytest.mark.parametrize(("left", "right", "entries"), [(5, 4, 1), (20, 33, 1000), (144, 144, 9001), (3, 288, 4096)])
def test_the_fused_kernel(left, right, entries):
    pytest.importorskip("triton")
    from layerscope.similarity.attention.jensen_shannon_triton import fused_mixture_sums

    generator = torch.Generator().manual_seed(entries)
    a, b = (torch.softmax(3 * torch.randn(n, entries, generator=generator), dim=-1) for n in (left, right))
    a[0, 0] = b[1, 0] = 0.0
    half_a, half_b = jensen_shannon.halved(a), jensen_shannon.halved(b)
    for one, two in ((half_a, half_b), (half_a, half_a)):
        expected = jensen_shannon.plain_mixture_sums(one.double(), two.double())
        gpu_one = one.cuda()
        gpu_two = gpu_one if two is one else two.cuda()
        found = fused_mixture_sums(gpu_one, gpu_two)
        assert found.dtype == torch.float64
        torch.testing.assert_close(found.cpu(), expected, rtol=1e-6, atol=1e-6)
        plain = jensen_shannon.plain_mixture_sums(gpu_one, gpu_two)
        torch.testing.assert_close(found, plain, rtol=1e-6, atol=1e-6)


@pytest.mark.parametrize("families", [("bert", "roberta"), ("bert", "gpt2")])
def test_models_on_a_gpu_compare_as_on_a_cpu(families, tmp_path):
    path = tmp_path / "c.txt"
    path.write_text("\n".join(f"the file {i} is a list of {'value ' * (i % 7)}" for i in range(60)) + "\n")
    found = []
    for device in ("cpu", "cuda"):
        models = [ls.load(random_network(f, "encoder").to(device), tokenizer=word_tokenizer(f)) for f in families]
        found.append(ls.compare(*models, task=path, measure=NAMES))
    for name in NAMES:
        np.testing.assert_allclose(found[0][name].values, found[1][name].values, atol=2e-3)


def test_measures_of_gpu_arrays():
    generator = torch.Generator().manual_seed(0)
    a, b = ([torch.softmax(torch.randn(h, t, t, generator=generator), -1) for t in (3, 5, 5, 8)] for h in (4, 3))
    for name in NAMES:
        gpu = ls.measure(name)([x.cuda() for x in a], [y.cuda() for y in b])
        assert gpu == pytest.approx(ls.measure(name)(a, b), abs=1e-6)
