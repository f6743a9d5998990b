"""Debiased CKA with labels is that of `ls.measure` with their indicators."""

import numpy as np
import pytest
import torch

import layerscope as ls
from layerscope.probing.layer_score import LayerRows
from layerscope.probing.scores.cka_debiased import CkaDebiased


@pytest.mark.parametrize("size", [1, 4])
def test_the_value_is_that_of_the_measure(size):
    generator = np.random.default_rng(0)
    texts = np.repeat(np.arange(80 // size), size)
    labels = texts % 2
    x = generator.normal(size=(80, 7)) + labels[:, None]
    labellings = np.stack([labels, np.random.default_rng(1).permutation(labels)])
    values = CkaDebiased().values(LayerRows(torch.from_numpy(x), texts), labellings)
    wanted = [ls.measure("cka_debiased")(x, np.eye(2)[each], texts=texts) for each in labellings]
    np.testing.assert_allclose(values, wanted, rtol=1e-6)
    numbers = generator.normal(size=80) + x[:, 0]
    value = CkaDebiased().values(LayerRows(torch.from_numpy(x), texts), numbers[None])[0]
    assert value == pytest.approx(ls.measure("cka_debiased")(x, numbers[:, None], texts=texts), rel=1e-6)


def test_too_few_texts_have_no_value():
    layer = LayerRows(torch.from_numpy(np.random.default_rng(0).normal(size=(6, 3))), np.asarray([0, 0, 1, 1, 2, 2]))
    assert np.isnan(CkaDebiased().values(layer, np.asarray([[0, 1, 0, 1, 0, 1]]))).all()
