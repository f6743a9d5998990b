"""The shrunk H-score against scikit-learn's covariance."""

import numpy as np
import pytest
import torch
from sklearn.covariance import LedoitWolf

from layerscope.probing.layer_score import LayerRows
from layerscope.probing.scores.hscore import HScore, ledoit_wolf


def drawn(n, width, seed=0):
    generator = np.random.default_rng(seed)
    labels = np.arange(n) % 3
    return generator.normal(size=(n, width)) * np.linspace(0.5, 3, width) + np.eye(3, width)[labels] * 2, labels


@pytest.mark.parametrize(("n", "width"), [(200, 6), (40, 90)])
def test_the_covariance_is_shrunk_as_scikit_learn_does(n, width):
    x, labels = drawn(n, width)
    fitted = LedoitWolf().fit(x)
    centred = torch.from_numpy(x - x.mean(axis=0))
    shrinkage = ledoit_wolf(centred.pow(2).sum(dim=1), centred.T @ centred / n)
    assert shrinkage == pytest.approx(fitted.shrinkage_, rel=1e-9)
    means = np.stack([x[labels == c].mean(axis=0) for c in labels])
    value = (1 - shrinkage) * np.trace(np.linalg.inv(fitted.covariance_) @ np.cov(means.T, bias=True))
    assert HScore().values(LayerRows(torch.from_numpy(x), np.arange(n)), labels[None])[0] == pytest.approx(value)


def test_more_columns_than_rows_do_not_make_it_its_maximum():
    x, labels = drawn(40, 90)
    noise = np.random.default_rng(5).permutation(labels)
    layer = LayerRows(torch.from_numpy(x), np.arange(40))
    true, random = HScore().values(layer, np.stack([labels, noise]))
    assert random < true < 2  # two is the most for three classes
    assert random < 0.8


def test_columns_that_are_sums_of_others_and_rows_without_noise():
    x, labels = drawn(300, 4)
    doubled = LayerRows(torch.from_numpy(np.c_[x, x]), np.arange(300))
    assert np.isfinite(HScore().values(doubled, labels[None])).all()
    assert ledoit_wolf(torch.ones(5), torch.eye(3, dtype=torch.float64)) == 1.0
