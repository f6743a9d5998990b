"""Moments and compare on a GPU give what they give on a CPU."""

import numpy as np
import pytest
import torch

import layerscope as ls
from layerscope.similarity.moments import Moments
from tests.helpers.models import random_network, word_tokenizer

pytestmark = pytest.mark.gpu


def test_moments_and_their_merge():
    generator = torch.Generator().manual_seed(0)
    views = [torch.randn(500, w, generator=generator) * 5 + 3000 for w in (6, 4)]
    cpu, gpu = (Moments([6, 4], exact=True, debiased=True, device=d, block=128) for d in ("cpu", "cuda"))
    for moments in (cpu, gpu):
        for part in zip(*(v.split(70) for v in views), strict=True):
            moments.update(list(part))
    torch.testing.assert_close(gpu.scatter(0, 1).cpu(), cpu.scatter(0, 1))
    assert gpu.hsic(0, 1) == pytest.approx(cpu.hsic(0, 1), rel=1e-9)
    assert cpu.merge(gpu).n == 1000


def test_models_on_a_gpu_compare_as_on_a_cpu(tmp_path):
    path = tmp_path / "c.txt"
    path.write_text("\n".join(f"the file {i} is a list of {i % 7} value s" for i in range(120)) + "\n")
    names = ["cka", "cka_debiased", "svcca", "pwcca", "neuron", "mixed", "procrustes"]
    found = []
    for device in ("cpu", "cuda"):
        models = [
            ls.load(random_network(f, "encoder").to(device), tokenizer=word_tokenizer(f)) for f in ("bert", "roberta")
        ]
        found.append(ls.compare(*models, task=path, pool="words", measure=names))
    for name in names:
        np.testing.assert_allclose(found[0][name].values, found[1][name].values, atol=2e-3)


def test_measures_of_gpu_tensors():
    generator = torch.Generator().manual_seed(0)
    x = torch.randn(200, 6, generator=generator)
    y = x @ torch.randn(6, 6, generator=generator) + torch.randn(200, 6, generator=generator)
    table = ls.measures()
    for name in table["name"][table["needs"] != "attention"]:
        assert ls.measure(name)(x.cuda(), y.cuda()) == pytest.approx(ls.measure(name)(x, y), abs=1e-6)
