"""Nearest neighbours against a plain search, with rows of one text apart."""

import numpy as np
import pytest
import torch

from layerscope.probing.layer_score import LayerRows
from layerscope.probing.scores import knn
from layerscope.probing.scores.knn import Knn


def plain_knn(x, labels, texts, k=10):
    z = x - x.mean(axis=0)
    z /= np.linalg.norm(z, axis=1, keepdims=True)
    y = np.eye(labels.max() + 1)[labels]
    own, mean = 0.0, 0.0
    for i in range(len(x)):
        others = np.flatnonzero(texts != texts[i])
        near = others[np.argsort(-(z[others] @ z[i]))[:k]]
        own += ((y[i] - y[near].mean(axis=0)) ** 2).sum()
        mean += ((y[i] - y[others].mean(axis=0)) ** 2).sum()
    return 1 - own / mean


@pytest.mark.parametrize("size", [1, 3])
@pytest.mark.parametrize("cells", [1 << 24, 500])
def test_neighbours_are_those_of_a_plain_search(size, cells, monkeypatch):
    monkeypatch.setattr(knn, "_CELLS", cells)
    generator = np.random.default_rng(0)
    texts = np.repeat(np.arange(90 // size), size)
    labels = texts % 3
    x = generator.normal(size=(90, 5)) + np.eye(3, 5)[labels] * 2
    value = Knn().values(LayerRows(torch.from_numpy(x), texts), labels[None])[0]
    assert value == pytest.approx(plain_knn(x, labels, texts))


def test_labels_at_random_give_what_is_said():
    generator, values = np.random.default_rng(0), []
    for _ in range(40):
        layer = LayerRows(torch.from_numpy(generator.normal(size=(200, 8))), np.arange(200))
        values.append(Knn().values(layer, generator.permutation(np.arange(200) % 2)[None])[0])
    assert np.mean(values) == pytest.approx(Knn.zero, abs=0.02)


def test_few_rows_have_fewer_neighbours():
    layer = LayerRows(torch.from_numpy(np.random.default_rng(0).normal(size=(6, 3))), np.asarray([0, 0, 0, 1, 1, 2]))
    assert knn.neighbours(layer).shape == (6, 3)
    assert np.isfinite(Knn().values(layer, np.asarray([[0, 1, 0, 1, 0, 1]]))).all()
