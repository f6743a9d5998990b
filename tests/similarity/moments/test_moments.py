import itertools

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from layerscope.errors import InputError
from layerscope.similarity.moments import Moments
from layerscope.similarity.unbiased_hsic import u_centred
from tests.similarity.views import WIDTHS, fed, rows


def scatter(a, b, weights=None):
    """The plain definition in float64."""
    a, b = a.double().numpy(), b.double().numpy()
    w = np.ones(len(a)) if weights is None else weights
    a = a - np.average(a, axis=0, weights=w)
    b = b - np.average(b, axis=0, weights=w)
    return (a * w[:, None]).T @ b


def assert_scatter(moments, views, tolerance=1e-5, weights=None):
    for i in range(3):
        for j in range(3):
            expected = scatter(views[i], views[j], weights)
            scale = np.sqrt(
                np.outer(np.diag(scatter(views[i], views[i], weights)), np.diag(scatter(views[j], views[j], weights)))
            )
            assert (np.abs(moments.scatter(i, j).numpy() - expected) <= tolerance * scale).all()
        assert moments.cov(i, i).shape == (WIDTHS[i], WIDTHS[i])


@pytest.mark.parametrize("how", [{}, {"exact": True}, {"split": True}])
@pytest.mark.parametrize("block", [7, 64, 4096])
def test_features_of_very_different_scale_and_offset(how, block):
    views = rows(wild=True)
    moments = fed(views, [50, 1, 80], block=block, **how)
    assert_scatter(moments, views)
    np.testing.assert_allclose(moments.mean(1).numpy(), views[1].double().mean(0).numpy(), rtol=1e-6)


@settings(max_examples=25, deadline=None)
@given(sizes=st.lists(st.integers(0, 40), max_size=6), block=st.integers(1, 90), seed=st.integers(0, 5))
def test_any_split_into_batches_gives_the_same(sizes, block, seed):
    views = rows(seed=seed)
    assert_scatter(fed(views, sizes, block=block, exact=True), views, 1e-12)


@settings(max_examples=25, deadline=None)
@given(cuts=st.lists(st.integers(1, 199), min_size=1, max_size=4, unique=True), order=st.randoms(use_true_random=False))
def test_any_merge_tree_with_different_shifts_gives_the_same(cuts, order):
    views = rows(wild=True)
    whole = fed(views, [], exact=True, debiased=True)
    edges = [0, *sorted(cuts), 200]
    parts = [fed([v[a:b] for v in views], [], exact=True, debiased=True) for a, b in itertools.pairwise(edges)]
    while len(parts) > 1:
        a, b = (parts.pop(order.randrange(len(parts))) for _ in range(2))
        parts.append(a.merge(b))
    merged = parts[0]
    assert merged.n == 200
    assert_scatter(merged, views, 1e-10)
    for i, j in ((0, 0), (0, 1), (2, 1)):
        assert merged.hsic(i, j) == pytest.approx(whole.hsic(i, j), rel=1e-8)


def test_taking_rows_out_again():
    views = rows(wild=True)
    whole, part = (
        fed(views, [50], exact=True, debiased=True),
        fed([v[:50] for v in views], [7], exact=True, debiased=True),
    )
    rest = fed([v[50:] for v in views], [], exact=True, debiased=True)
    left = whole.without(part)
    assert (left.n, whole.n) == (150, 200)
    for i, j in ((0, 0), (0, 1), (1, 2)):
        torch.testing.assert_close(left.scatter(i, j), rest.scatter(i, j), rtol=1e-6, atol=1e-9)
        assert left.hsic(i, j) == pytest.approx(rest.hsic(i, j), rel=1e-6)


def test_merging_into_an_empty_one():
    views = rows()
    assert_scatter(Moments(WIDTHS, exact=True).merge(fed(views, [], exact=True)), views, 1e-12)
    full = fed(views, [], exact=True)
    assert_scatter(full.merge(Moments(WIDTHS, exact=True)), views, 1e-12)


def test_weighted_rows():
    views = rows()
    weights = np.random.default_rng(3).uniform(0, 2, size=200)
    moments = Moments(WIDTHS, exact=True, block=64)
    for start in range(0, 200, 30):
        part = slice(start, start + 30)
        moments.update([v[part] for v in views], torch.from_numpy(weights[part]))
    assert_scatter(moments, views, 1e-10, weights)
    assert moments.weight == pytest.approx(weights.sum())


def test_the_extra_sums_give_unbiased_hsic():
    views = rows(wild=True)
    moments = fed(views, [33, 1], exact=True, debiased=True, block=50)
    for i, j in ((0, 0), (0, 1), (2, 0)):
        a, b = (views[k].double() - views[k].double().mean(0) for k in (i, j))
        expected = float((u_centred(a @ a.T) * u_centred(b @ b.T)).sum()) * 200 * 197
        assert moments.hsic(i, j) == pytest.approx(expected, rel=1e-6)


def test_only_the_wanted_blocks_are_kept():
    moments = fed(rows(), [], pairs=[(2, 0)])
    assert moments.pairs == [(0, 0), (0, 2), (1, 1), (2, 2)]
    assert moments.scatter(2, 0).shape == (4, 5)
    with pytest.raises(InputError, match="views 0 and 1 was not asked for"):
        moments.scatter(0, 1)


def test_mistakes_are_sentences():
    moments = Moments(WIDTHS)
    with pytest.raises(InputError, match="no rows yet"):
        moments.mean(0)
    with pytest.raises(InputError, match="3 views are needed and 1"):
        moments.update([torch.zeros(2, 5)])
    with pytest.raises(InputError, match=r"View 1 has shape \(2, 4\) where \(2, 3\)"):
        moments.update([torch.zeros(2, 5), torch.zeros(2, 4), torch.zeros(2, 4)])
    with pytest.raises(InputError, match="2 weights"):
        moments.update([torch.zeros(2, w) for w in WIDTHS], torch.tensor([-1.0, 1.0]))
    with pytest.raises(InputError, match="different views"):
        moments.merge(Moments((1, 2)))
    moments.update([torch.zeros(2, w) for w in WIDTHS])
    with pytest.raises(InputError, match="debiased=True"):
        moments.hsic(0, 1)
