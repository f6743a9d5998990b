"""LogME against the greatest evidence that an optimiser finds in the plain formula."""

import numpy as np
import pytest
import torch
from scipy.optimize import minimize
from scipy.stats import multivariate_normal

from layerscope.probing.layer_score import LayerRows
from layerscope.probing.scores.logme import LogME


def plain_logme(x, y):
    """The density of each column of y, without its mean, under noise and weights of the best variances.

    It is taken in an orthonormal basis of the n - 1 dimensions that are left where the mean is gone.
    """
    z = (x - x.mean(axis=0)) / x.std(axis=0)
    basis = np.linalg.svd(np.ones((1, len(z))))[2][1:]
    z, y = basis @ z, basis @ y
    n, found = len(z), []
    for column in y.T:

        def loss(logs, column=column):
            covariance = np.exp(logs[0]) * np.eye(n) + np.exp(logs[1]) * z @ z.T
            return -multivariate_normal.logpdf(column, np.zeros(n), covariance) / n

        low = [-20.0] if z.shape[1] >= n else []  # the noise may vanish there
        starts = [(a, b) for a in (*low, -4.0, -1.0) for b in (-8.0, -3.0)]
        options = {"xatol": 1e-9, "fatol": 1e-14, "maxiter": 4000}
        found.append(-min(minimize(loss, s, method="Nelder-Mead", options=options).fun for s in starts))
    return np.mean(found)


@pytest.mark.parametrize(
    ("width", "numbers"), [(4, False), (50, False), (90, False), (4, True), (30, True), (60, True)]
)
def test_the_evidence_is_the_greatest(width, numbers):
    generator = np.random.default_rng(0)
    labels = np.arange(40) % 3
    x = generator.normal(size=(40, width)) * generator.uniform(0.1, 9, width) + 5
    x[:, :3] += np.eye(3)[labels] * 2 * x[:, :3].std(axis=0)
    y = x[:, 0] + 0.5 * generator.normal(size=40) * x[:, 0].std() if numbers else labels
    wanted = (y[:, None] - y.mean()) / y.std() if numbers else np.eye(3)[labels]
    value = LogME().values(LayerRows(torch.from_numpy(x), np.arange(40)), y[None])[0]
    assert value == pytest.approx(plain_logme(x, wanted), abs=1e-9)


def test_nothing_to_tell_is_the_density_of_the_labels_alone():
    labels = np.arange(400) % 2
    x = np.random.default_rng(3).normal(size=(400, 2))
    x -= 0.5 * (np.linalg.lstsq(x, labels - 0.5, rcond=None)[0] @ x.T)[:, None]
    values = LogME().values(LayerRows(torch.from_numpy(x), np.arange(400)), labels[None])
    alone = -0.5 * (np.log(2 * np.pi * labels.var(ddof=1)) + 1)
    assert alone - 1e-9 <= values[0] < alone + 0.01


def test_more_columns_of_noise_than_rows_are_no_evidence():
    """With n dimensions in place of n - 1 the evidence had no end there, and noise beat every layer."""
    labels, generator = np.arange(40) % 2, np.random.default_rng(5)
    alone = -0.5 * (np.log(2 * np.pi * labels.var(ddof=1)) + 1)
    for width in (39, 40, 70, 384):
        found = [
            LogME().values(
                LayerRows(torch.from_numpy(generator.normal(size=(40, width))), np.arange(40)), labels[None]
            )[0]
            for _ in range(5)
        ]
        assert alone - 1e-9 <= np.median(found) < alone + 0.03
