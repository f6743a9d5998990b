"""PRESS against solving the map again without every text, the grouped form against solving it without every group."""

import numpy as np
import pytest
import torch
from sklearn.linear_model import Ridge

from layerscope.probing.layer_score import LayerRows, targets
from layerscope.probing.scores.press import GRID, Press, left_out_squares, of_groups
from layerscope.similarity.moments import Moments


def drawn(n=60, width=5, seed=0, signal=1.0):
    generator = np.random.default_rng(seed)
    labels = np.arange(n) % 3
    x = generator.normal(size=(n, width)) * np.arange(1, width + 1) + 7
    x[:, 0] += 2 * signal * labels
    return x, labels


def plain_squares(x, y, texts):
    """(strengths, texts) the squared errors, every text left out in turn and the map solved again."""
    z = (x - x.mean(axis=0)) / x.std(axis=0)
    found = np.zeros((len(GRID) + 1, len(np.unique(texts))))
    for k, text in enumerate(np.unique(texts)):
        out = texts == text
        for g, strength in enumerate(len(x) * GRID):
            guess = Ridge(alpha=strength, solver="svd").fit(z[~out], y[~out]).predict(z[out])
            found[g, k] = ((y[out] - guess.reshape(y[out].shape)) ** 2).sum()
        found[-1, k] = ((y[out] - y[~out].mean(axis=0)) ** 2).sum()
    return found


def sorted_texts(sizes):
    return np.repeat(np.arange(len(sizes)), sizes)


@pytest.mark.parametrize("width", [5, 90])  # fewer columns than rows, and more
@pytest.mark.parametrize("sizes", [[1] * 60, [1] * 9 + [2] * 5 + [4] * 8 + [9]])
def test_every_text_is_left_out_exactly(width, sizes):
    x, labels = drawn(width=width)
    texts = sorted_texts(sizes)
    squares = plain_squares(x, np.eye(3)[labels], texts)
    totals, of_texts = left_out_squares(LayerRows(torch.from_numpy(x), texts), labels[None])
    np.testing.assert_allclose(of_texts.numpy(), squares, rtol=1e-9)
    np.testing.assert_allclose(totals[:, 0].numpy(), squares.sum(axis=1), rtol=1e-9)
    value = Press().values(LayerRows(torch.from_numpy(x), texts), labels[None])
    assert value == pytest.approx(1 - squares.sum(axis=1).min() / squares.sum(axis=1)[-1])


def test_numbers_and_many_labellings():
    x, labels = drawn()
    y = labels + np.random.default_rng(1).normal(size=len(labels))
    layer, texts = LayerRows(torch.from_numpy(x), np.arange(60)), np.arange(60)
    squares = plain_squares(x, y[:, None], texts).sum(axis=1)
    assert Press().values(layer, y[None])[0] == pytest.approx(1 - squares.min() / squares[-1])
    labellings = np.stack([np.random.default_rng(k).permutation(labels) for k in range(300)])
    together = Press().values(layer, labellings)  # more columns than are looked at together
    alone = np.concatenate([Press().values(layer, each[None]) for each in labellings[::50]])
    np.testing.assert_allclose(together[::50], alone, rtol=1e-9)
    assert (together >= 0).all()
    assert np.median(together) < 0.02


def test_rows_may_come_in_any_number_of_pieces(monkeypatch):
    x, labels = drawn()
    texts = sorted_texts([1] * 9 + [2] * 5 + [4] * 8 + [9])
    whole = left_out_squares(LayerRows(torch.from_numpy(x), texts), labels[None])
    monkeypatch.setattr(LayerRows.whole_texts, "__defaults__", (10,))
    pieces = left_out_squares(LayerRows(torch.from_numpy(x), texts), labels[None])
    for one, other in zip(whole, pieces, strict=True):
        torch.testing.assert_close(one, other)


def test_labels_that_say_nothing_have_nought_and_noise_does_not_help():
    """Over 200 draws noise columns do not raise the mean, beside columns that tell something and by themselves."""
    generator = np.random.default_rng(0)
    plain, wider, noise = [], [], []
    for _ in range(200):
        labels = generator.permutation(np.arange(80) % 2)
        x = generator.normal(size=(80, 12))
        x[:, 0] += labels
        more = generator.normal(size=(80, 60))
        for rows, values in ((x, plain), (np.c_[x, more], wider), (more, noise)):
            values.append(Press().values(LayerRows(torch.from_numpy(rows), np.arange(80)), labels[None])[0])
    assert min(noise) == 0
    assert np.mean(noise) < 0.015  # what is left of the choice among ridge strengths
    assert np.mean(wider) < np.mean(plain) - 0.02
    assert np.median(noise) < 0.001


def test_halves_are_as_wide_as_the_value_varies():
    """The spread over halves of the texts beside that over samples of their own."""
    values, spreads = [], []
    masks = np.stack([np.random.default_rng(k).permutation(np.arange(300) % 2) == 0 for k in range(100)])
    for seed in range(60):
        generator = np.random.default_rng(seed)
        labels = np.arange(300) % 2
        x = generator.normal(size=(300, 10)) + 0.5 * labels[:, None]
        layer = LayerRows(torch.from_numpy(x), np.arange(300))
        values.append(Press().values(layer, labels[None])[0])
        spreads.append(Press().of_halves(layer, labels, masks).std(ddof=1))
    assert 0.8 < np.mean(spreads) / np.std(values, ddof=1) < 1.25


@pytest.mark.parametrize("numbers", [False, True])
def test_the_grouped_form_leaves_out_each_group_exactly(numbers):
    x, labels = drawn(n=100)
    x = np.c_[x, np.full(100, 3.0)]  # a constant column says nothing
    group = np.random.default_rng(0).permutation(np.arange(100) % 10)
    y = labels + x[:, 1] if numbers else labels
    labellings = np.stack([y, np.random.default_rng(1).permutation(y)])
    columns = targets(labellings).reshape(100, -1)
    parts = []
    for g in range(10):
        moments = Moments([6, 6, columns.shape[1]], pairs=[(0, 2), (1, 2)], exact=True)
        at = torch.from_numpy(group == g)
        rows = torch.from_numpy(x)[at]
        moments.update([rows, torch.full_like(rows, 2.0), columns[at]])
        parts.append(moments)
    values, without = of_groups(parts, 2, 1 if numbers else 3)
    of_first = targets(labellings)[:, 0].numpy()
    squares = plain_squares(x[:, :5], of_first, group)
    assert values.shape == (2, 2)
    assert values[0, 0] == pytest.approx(1 - squares.sum(axis=1).min() / squares[-1].sum())
    best = squares.sum(axis=1).argmin()
    left = squares.sum(axis=1)[:, None] - squares
    np.testing.assert_allclose(without[:, 0], 1 - left[best] / left[-1])
    assert np.isnan(values[:, 1]).all()
    assert np.isnan(without[:, 1]).all()
    assert values[1, 0] < 0.1
