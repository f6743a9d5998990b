"""Least squares from moments, against plain least squares on the rows themselves."""

import pytest
import torch

from layerscope.cutting.least_squares import ElementMoments, solve, solve_elements
from layerscope.similarity.moments import Moments


def rows(n=60, p=7, q=4, seed=0):
    generator = torch.Generator().manual_seed(seed)
    draw = lambda *shape: torch.randn(*shape, generator=generator, dtype=torch.float64)  # noqa: E731
    x = draw(n, p) + 3
    return x, x @ draw(p, q) + 2 + 0.1 * draw(n, q), draw(q, p), draw(n).abs() + 0.1


def moments_of(x, y, weights=None, batch=13):
    moments = Moments([x.shape[1], y.shape[1]], pairs=[(0, 1)], exact=True)
    for start in range(0, len(x), batch):
        part = slice(start, start + batch)
        moments.update([x[part], y[part]], None if weights is None else weights[part])
    return moments


def direct(x, y, old, strength, constant, weights):
    """The same by numpy's least squares: the ridge is `p` rows more, and nothing draws the constant."""
    root = weights.sqrt()[:, None]
    wide = torch.cat([x, torch.ones(len(x), 1)], dim=1) if constant else x
    drawn = strength**0.5 * torch.eye(x.shape[1], wide.shape[1], dtype=torch.float64)
    left = torch.cat([root * wide, drawn])
    right = torch.cat([root * y, strength**0.5 * old.T])
    found = torch.linalg.lstsq(left, right, driver="gelsd").solution
    return (found[:-1].T, found[-1]) if constant else (found.T, None)


@pytest.mark.parametrize("constant", [True, False])
@pytest.mark.parametrize("ridge", [1e-6, 0.1, 10.0])
@pytest.mark.parametrize("weighted", [True, False])
def test_the_solution_is_that_of_plain_least_squares(constant, ridge, weighted):
    x, y, old, weights = rows()
    w = weights if weighted else torch.ones(len(x), dtype=torch.float64)
    centred = x - (w @ x) / w.sum() if constant else x
    strength = ridge * float((w[:, None] * centred.square()).sum()) / x.shape[1]
    weight, bias = solve(moments_of(x, y, weights if weighted else None), old, ridge, constant=constant)
    expected, shift = direct(x, y, old, strength, constant, w)
    torch.testing.assert_close(weight, expected, rtol=1e-7, atol=1e-9)
    assert (bias is None) == (not constant)
    if constant:
        torch.testing.assert_close(bias, shift, rtol=1e-7, atol=1e-9)


def test_a_strong_ridge_leaves_the_old_weight_and_a_weak_one_forgets_it():
    x, y, old, _ = rows()
    torch.testing.assert_close(solve(moments_of(x, y), old, 1e9, constant=False)[0], old, rtol=1e-6, atol=1e-6)
    weak = [solve(moments_of(x, y), start, 1e-12, constant=True)[0] for start in (old, -old)]
    torch.testing.assert_close(*weak, rtol=1e-6, atol=1e-6)


def test_batches_order_and_turned_outputs_change_nothing():
    x, y, old, weights = rows()
    weight, bias = solve(moments_of(x, y, weights), old, 0.1, constant=True)
    order = torch.randperm(len(x), generator=torch.Generator().manual_seed(1))
    others = moments_of(x[order], y[order], weights[order], batch=60)
    torch.testing.assert_close(solve(others, old, 0.1, constant=True)[0], weight)
    turn = torch.linalg.qr(torch.randn(4, 4, dtype=torch.float64, generator=torch.Generator().manual_seed(2))).Q
    turned, shift = solve(moments_of(x, y @ turn.T, weights), turn @ old, 0.1, constant=True)
    torch.testing.assert_close(turned, turn @ weight)
    torch.testing.assert_close(shift, turn @ bias)


@pytest.mark.parametrize("constant", [True, False])
def test_a_scale_is_solved_as_a_matrix_of_one_column_is(constant):
    x, _, _, weights = rows(q=7)
    y, old = 0.5 * x + 1 + x.flip(0), torch.linspace(-1, 1, 7, dtype=torch.float64)
    moments = ElementMoments(7)
    for start in range(0, len(x), 11):
        part = slice(start, start + 11)
        moments.update([x[part], y[part]], weights[part])
    scale, shift = solve_elements(moments, old, 0.2, constant=constant)
    centred = x - (weights @ x) / weights.sum() if constant else x
    strength = 0.2 * float((weights[:, None] * centred.square()).sum()) / 7
    for k in range(7):
        expected, bias = direct(x[:, k : k + 1], y[:, k : k + 1], old[k].reshape(1, 1), strength, constant, weights)
        assert float(scale[k]) == pytest.approx(float(expected), rel=1e-7)
        if constant:
            assert float(shift[k]) == pytest.approx(float(bias), rel=1e-7)


def test_rows_that_are_all_the_same_leave_the_old_weight_and_move_the_constant():
    _, y, old, _ = rows()
    x = torch.full((len(y), 7), 1 / 3, dtype=torch.float64)
    weight, bias = solve(moments_of(x, y), old, 1e-4, constant=True)
    torch.testing.assert_close(weight, old)
    torch.testing.assert_close(weight @ x[0] + bias, y.mean(0))
    weight, bias = solve(moments_of(0 * x, y), old, 1e-4, constant=False)
    assert torch.equal(weight, old)
