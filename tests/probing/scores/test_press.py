"""PRESS against solving the map again without every text, the grouped form against solving it without every group."""

import numpy as np
import pytest
import torch
from sklearn.linear_model import Ridge

from layerscope.probing import layer_score
from layerscope.probing.layer_score import LayerRows, targets
from layerscope.probing.scores import press
from layerscope.probing.scores.press import GRID, Press, jackknife, left_out_squares, of_groups
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


@pytest.mark.parametrize("width", [6, 30, 300])
def test_many_classes_need_no_column_each(width, monkeypatch):
    generator = np.random.default_rng(3)
    labels = np.r_[np.arange(90), generator.integers(0, 90, 160)]
    x = generator.normal(size=(250, width)) + np.outer(labels, generator.normal(size=width)) / 20
    layer = LayerRows(torch.from_numpy(x), np.arange(250))
    columns = left_out_squares(layer, labels[None])[0][:, 0]
    np.testing.assert_allclose(press.squares_of_classes(layer, labels).numpy(), columns.numpy(), rtol=1e-9)
    value = Press().values(layer, labels[None])
    monkeypatch.setattr(press, "is_sparse", lambda *_: False)
    assert Press().values(layer, labels[None]) == pytest.approx(value)


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


def value_without(x, y, texts, text, strength):
    """The value without a text, each of the others left out in turn as well; the columns keep their scales."""
    z = (x - x.mean(axis=0)) / x.std(axis=0)
    squares, y = np.zeros(2), y.reshape(len(y), -1)
    for other in set(texts) - {text}:
        out, kept = texts == other, (texts != other) & (texts != text)
        guess = Ridge(alpha=strength, solver="svd").fit(z[kept], y[kept]).predict(z[out]).reshape(y[out].shape)
        squares += ((y[out] - guess) ** 2).sum(), ((y[out] - y[kept].mean(axis=0)) ** 2).sum()
    return 1 - squares[0] / squares[1]


@pytest.mark.parametrize("width", [5, 90])
@pytest.mark.parametrize("sizes", [[1] * 60, [1] * 9 + [2] * 5 + [4] * 8 + [9]])
def test_values_without_a_text_are_those_of_solving_again_to_first_order(width, sizes):
    x, labels = drawn(width=width)
    texts = sorted_texts(sizes)
    layer = LayerRows(torch.from_numpy(x), texts)
    totals, _ = left_out_squares(layer, labels[None])
    strength = len(x) * GRID[int(totals[:-1, 0].argmin())]
    value, without = jackknife(layer, labels)
    exact = np.array([value_without(x, np.eye(3)[labels], texts, k, strength) for k in range(len(sizes))])
    assert value == pytest.approx(Press().values(layer, labels[None])[0])
    # What they differ by among themselves is what counts; a text of nine rows of sixty is not a small change.
    slope, _ = np.polyfit(exact, without, 1)
    assert slope == pytest.approx(1, abs=0.05 if max(sizes) == 1 else 0.15)
    assert np.corrcoef(exact, without)[0, 1] > (0.99 if max(sizes) == 1 else 0.95)
    if max(sizes) == 1:
        np.testing.assert_allclose(without, exact, atol=4e-3)


def test_pieces_and_products_in_parts_change_nothing(monkeypatch):
    x, labels = drawn()
    layer = LayerRows(torch.from_numpy(x), sorted_texts([1] * 9 + [2] * 5 + [4] * 8 + [9]))
    value, without = jackknife(layer, labels)
    monkeypatch.setattr(press, "_BLOCK", 10)
    monkeypatch.setattr(press, "_FEWEST", 10)
    monkeypatch.setattr(press, "_NUMBERS", 1)
    monkeypatch.setattr(layer_score, "_KEPT", 0)
    again = jackknife(LayerRows(torch.from_numpy(x), layer.texts), labels)
    assert again[0] == pytest.approx(value)
    np.testing.assert_allclose(again[1], without, rtol=1e-10)


@pytest.mark.parametrize(("n", "width", "signal"), [(200, 10, 0.5), (300, 60, 0.7), (120, 150, 1.0)])
def test_intervals_hold_what_the_value_is_in_the_mean(n, width, signal):
    """The signal is in one column, so that the map has much to learn; 60 samples of their own."""
    masks = np.stack([np.random.default_rng(k).permutation(np.arange(n) % 2) == 0 for k in range(200)])
    values, spreads = [], []
    for seed in range(60):
        generator = np.random.default_rng(seed)
        labels = np.arange(n) % 2
        x = generator.normal(size=(n, width))
        x[:, 0] += signal * (2 * labels - 1)
        layer = LayerRows(torch.from_numpy(x), np.arange(n))
        values.append(Press().values(layer, labels[None])[0])
        spreads.append(Press().of_halves(layer, labels, masks).std(ddof=1))
    held = np.abs(np.array(values) - np.mean(values)) < 1.96 * np.array(spreads)
    assert held.mean() >= 0.9
    assert 0.9 < np.mean(spreads) / np.std(values, ddof=1) < 1.7  # wide rather than narrow where columns are many


def test_a_layer_that_says_nothing_is_the_same_whichever_text_is_not_there():
    labels = np.arange(60) % 2
    x = np.random.default_rng(4).normal(size=(60, 3))
    x -= np.outer(labels - 0.5, 2 * (x[labels == 1].mean(axis=0) - x[labels == 0].mean(axis=0)) / 2)
    value, without = jackknife(LayerRows(torch.from_numpy(x), np.arange(60)), labels)
    assert value == 0
    assert (without == 0).all()


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
    again = [value_without(x[:, :5], of_first, group, g, 100 * GRID[best]) for g in range(10)]
    np.testing.assert_allclose(without[:, 0], again)
    assert np.isnan(values[:, 1]).all()
    assert np.isnan(without[:, 1]).all()
    assert values[1, 0] < 0.1
