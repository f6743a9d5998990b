"""Aligners against their textbook forms, on data where the right map is known, and at the edges."""

import math

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.linalg import orthogonal_procrustes
from sklearn import cross_decomposition
from sklearn.linear_model import LinearRegression, Ridge

import layerscope as ls
from layerscope.alignment import METHODS, align_all
from layerscope.alignment.networks import random_couplings
from layerscope.errors import InputError

ALL = tuple(METHODS)
QUICK = {"inn": {"steps": 60}, "mlp": {"steps": 60}}
D, N = 16, 4000


def rows(n=300, d=6, seed=0):
    return np.random.default_rng(seed).normal(size=(n, d)) @ np.diag(np.linspace(0.5, 3, d)) + np.arange(d)


def noisy_pair(n=300, d=6, e=6, noise=0.3):
    x = rows(n, d)
    generator = np.random.default_rng(1)
    return x, x @ generator.normal(size=(d, e)) + noise * generator.normal(size=(n, e)) - 2


@pytest.mark.parametrize("e", [6, 4, 9])
def test_least_squares_is_that_of_scikit_learn(e):
    x, y = noisy_pair(e=e)
    new = rows(seed=5)
    plain = LinearRegression().fit(x, y)
    np.testing.assert_allclose(ls.align(x, y, strength=0)(new), plain.predict(new), rtol=1e-8)
    # Our strength is a share of the mean variance of X; scikit-learn's is added to X'X.
    centred = x - x.mean(axis=0)
    ridge = Ridge(alpha=0.3 * (centred**2).sum() / x.shape[1]).fit(x, y)
    np.testing.assert_allclose(ls.align(x, y, strength=0.3)(new), ridge.predict(new), rtol=1e-8)


def test_cross_validation_chooses_a_strength_that_helps():
    generator = np.random.default_rng(0)
    x, w = generator.normal(size=(60, 50)), generator.normal(size=(50, 5))
    y, test = x @ w + 3 * generator.normal(size=(60, 5)), generator.normal(size=(500, 50))
    chosen, plain = ls.align(x, y), ls.align(x, y, strength=0)
    assert chosen.report_["strength"] > 1e-3
    assert chosen.error(test, test @ w)["relative"] < 0.7 * plain.error(test, test @ w)["relative"]


@pytest.mark.parametrize("scale", [True, False])
def test_procrustes_is_that_of_scipy(scale):
    x, y = noisy_pair()
    centred = x - x.mean(axis=0), y - y.mean(axis=0)
    rotation, size = orthogonal_procrustes(*centred)
    factor = size / (centred[0] ** 2).sum() if scale else 1.0
    expected = factor * (rows(seed=4) - x.mean(axis=0)) @ rotation + y.mean(axis=0)
    found = ls.align(x, y, method="procrustes", scale=scale)
    np.testing.assert_allclose(found(rows(seed=4)), expected, rtol=1e-7)
    assert found.report_["factor"] == pytest.approx(factor)


def test_canonical_coordinates_are_those_of_scikit_learn():
    """In canonical coordinates the mapped rows are the rows of X themselves: correlations are those of CCA."""
    x, y = noisy_pair(n=400, d=5, e=5, noise=1.5)
    aligner = ls.align(x, y, method="cca")
    plain = cross_decomposition.CCA(5, max_iter=10000, tol=1e-12, scale=False).fit(x, y)
    u, v = plain.transform(x, y)
    expected = [np.corrcoef(u[:, k], v[:, k])[0, 1] for k in range(5)]
    assert aligner.report_["correlation"] == pytest.approx(np.mean(expected), abs=1e-6)
    mapped = plain.transform(x, aligner(x))[1]
    for k in range(5):
        assert abs(np.corrcoef(u[:, k], mapped[:, k])[0, 1]) == pytest.approx(1.0, abs=1e-5)
    # W_X W_Y^-1 keeps the covariance of Y, which least squares shrinks.
    np.testing.assert_allclose(np.cov(aligner(x).T), np.cov(y.T), rtol=1e-6)


def test_svcca_keeps_the_fewest_directions_and_reports_both_errors():
    generator = np.random.default_rng(0)
    x = generator.normal(size=(500, 8)) * np.asarray([10, 8, 6, 5, 0.1, 0.1, 0.1, 0.1])
    y = x @ np.linalg.qr(generator.normal(size=(8, 8)))[0]
    aligner = ls.align(x, y, method="svcca")
    assert aligner.report_["directions"] == 4
    error = aligner.error(x, y)
    assert error["relative_reduced"] < 1e-10 < error["relative"] < 0.01


@pytest.fixture(scope="module")
def spaces():
    """X, and Y of an orthogonal map, of any linear map, of a random invertible network."""
    generator = torch.Generator().manual_seed(0)
    x = torch.randn(N + 1000, D, generator=generator)
    matrix = torch.randn(D, D, generator=generator)
    turn = torch.linalg.qr(matrix)[0]
    with torch.no_grad():
        return x, {"orthogonal": x @ turn, "linear": x @ matrix, "inn": random_couplings(D, 64, 3)(x)}


def relative(spaces, truth, method, **options):
    x, y = spaces[0], spaces[1][truth]
    aligner = ls.align(x[:N], y[:N], method=method, **options)
    return aligner.error(x[N:], y[N:])["relative"], aligner


# Relative error on held-out rows, below which a map counts as found.
EXACT, LEARNED = 1e-10, 0.01


@pytest.mark.parametrize("truth", ["orthogonal", "linear"])
@pytest.mark.parametrize(
    ("method", "options", "limit"),
    [("linear", {}, EXACT), ("cca", {}, EXACT), ("svcca", {"keep": 1.0}, EXACT), ("procrustes", {}, EXACT)],
)
def test_exact_maps_are_found(truth, method, options, limit, spaces):
    error, _ = relative(spaces, truth, method, **options)
    if truth == "linear" and method == "procrustes":
        assert error > 0.05
    else:
        assert error < limit


@pytest.mark.parametrize("truth", ["orthogonal", "linear"])
@pytest.mark.parametrize("method", ["inn", "mlp"])
def test_networks_find_linear_maps(truth, method, spaces):
    error, aligner = relative(spaces, truth, method)
    assert error < LEARNED
    if method == "inn":
        assert aligner.report_["round_trip"] < 1e-4


def test_the_invertible_network_finds_its_like(spaces):
    errors = {m: relative(spaces, "inn", m)[0] for m in ("procrustes", "linear", "cca", "svcca", "mlp", "inn")}
    inn = errors.pop("inn")
    assert inn < 0.02
    assert min(errors.values()) > 3 * inn
    x = spaces[0][N:]
    _, aligner = relative(spaces, "inn", "inn", steps=200)
    np.testing.assert_allclose(aligner.inverse(aligner(x)), x, atol=1e-4)


def test_a_linear_start_is_the_linear_solution_before_training(spaces):
    for method in ("inn", "mlp"):
        error, aligner = relative(spaces, "linear", method, start="linear", steps=1, learning_rate=1e-12)
        assert error < 1e-4
        assert aligner.report_["start"] == "linear"
    assert relative(spaces, "linear", "inn", start="linear", steps=50)[1].report_["round_trip"] < 1e-4


@pytest.mark.parametrize("method", ["inn", "mlp"])
def test_a_linear_start_does_not_overfit_what_stops_it(method):
    """Rows of noise, hardly more than features: the start has learned nothing, and no held-out row says otherwise."""
    generator = np.random.default_rng(0)
    x, y = generator.normal(size=(100, 80)), generator.normal(size=(100, 80))
    new = generator.normal(size=(300, 80)), generator.normal(size=(300, 80))
    aligner = ls.align(x, y, method=method, start="linear", steps=100)
    assert aligner.error(*new)["relative"] < 1.2
    assert aligner.report_["held_out"] > 0.7


def test_a_network_that_does_not_learn_says_so():
    x, y = noisy_pair(n=60)
    with pytest.raises(InputError, match="lower the learning rate"):
        ls.align(x, y, method="mlp", learning_rate=1e30, steps=30)
    again = ls.align(x, y, method="inn", steps=5).fit(x[:, :4], y[:, :4])  # another width, the same aligner
    assert again(x[:, :4]).shape == (60, 4)


@pytest.mark.parametrize("method", ["inn", "mlp"])
def test_side_by_side_is_one_after_another(method):
    x, y = noisy_pair(n=120)
    sides = [(x, y), (x + 1, 2 * y[:, ::-1].copy()), (x**2, y)]
    together = align_all(sides, method=method, seed=3, steps=75)
    for aligner, (one, two) in zip(together, sides, strict=True):
        alone = ls.align(one, two, method=method, seed=3, steps=75)
        np.testing.assert_allclose(aligner(one), alone(one), rtol=1e-3, atol=2e-3)
        assert aligner.report_["steps"] == alone.report_["steps"]


@pytest.mark.parametrize("method", ALL)
def test_kinds_files_and_inverses(method, tmp_path):
    x, y = noisy_pair(n=80)
    aligner = ls.align(x, y, method=method, **QUICK.get(method, {}))
    assert isinstance(aligner(x), np.ndarray)
    assert isinstance(aligner(torch.from_numpy(x).float()), torch.Tensor)
    assert aligner(torch.from_numpy(x).float()).dtype == torch.float32
    np.testing.assert_allclose(aligner(torch.from_numpy(x)).numpy(), aligner(x), rtol=1e-6)
    again = ls.load_aligner(aligner.save(tmp_path / "a.safetensors"))
    np.testing.assert_array_equal(again(x), aligner(x))
    assert again.report_ == pytest.approx(aligner.report_, nan_ok=True)
    assert again.options == aligner.options
    if aligner.no_inverse:
        assert math.isnan(aligner.report_["round_trip"])
        with pytest.raises(InputError, match="has no inverse"):
            aligner.inverse(y)
    else:
        cut = method == "svcca"  # what it cuts away does not come back
        np.testing.assert_allclose(aligner.inverse(aligner(x)), x, atol=2.0 if cut else 2e-3)
        assert aligner.report_["round_trip"] < (0.1 if cut else 1e-5)
    second = ls.align(x, y, method=method, **QUICK.get(method, {}))
    np.testing.assert_array_equal(second(x), aligner(x))  # seeded


@pytest.mark.parametrize("method", ALL)
@pytest.mark.parametrize(("d", "e"), [(5, 8), (8, 5)])
def test_different_widths(method, d, e):
    x, y = noisy_pair(n=90, d=d, e=e)
    options = QUICK.get(method, {})
    if METHODS[method].same_width:
        with pytest.raises(InputError, match=rf"{method} needs one width on both sides.*these have {d} and {e}"):
            ls.align(x, y, method=method, **options)
        options = {**options, "pad": True}
    aligner = ls.align(x, y, method=method, **options)
    assert aligner(x).shape == (90, e)
    if not aligner.no_inverse:
        assert aligner.inverse(y).shape == (90, d)


CASES = {
    "fewer rows than features": (20, 40, lambda x: x),
    "collinear": (100, 8, lambda x: np.hstack([x[:, :4], x[:, :4]])),
    "a constant feature": (100, 6, lambda x: np.hstack([x[:, :5], np.ones((len(x), 1))])),
    "all constant": (30, 4, np.ones_like),
    "two rows": (2, 3, lambda x: x),
}


@pytest.mark.parametrize("method", ALL)
@pytest.mark.parametrize("case", CASES)
def test_degenerate_rows_give_finite_maps(method, case):
    n, d, change = CASES[case]
    x = change(rows(n, d))
    y = rows(n, x.shape[1], seed=2)
    for one, two in ((x, y), (y, x)):
        aligner = ls.align(one, two, method=method, **QUICK.get(method, {}))
        assert np.isfinite(aligner(one)).all()
        error = aligner.error(one, two)
        assert error["mse"] >= 0
        assert math.isnan(error["relative"]) == (np.ptp(two, axis=0).max() == 0)


def test_errors_are_the_plain_formula_and_their_intervals_cover():
    x, y = noisy_pair(n=400)
    aligner = ls.align(x, y)
    new, truth = rows(20000, seed=9), None
    generator = np.random.default_rng(1)
    weights = generator.normal(size=(6, 6))
    truth = new @ weights - 2 + 0.3 * generator.normal(size=(20000, 6))
    found = aligner.error(new, truth)
    misses = truth - aligner(new)
    assert found["mse"] == pytest.approx((misses**2).mean())
    assert found["relative"] == pytest.approx((misses**2).sum() / ((truth - truth.mean(axis=0)) ** 2).sum())
    hits = {"mse": 0, "relative": 0}
    for k in range(100):
        part = slice(200 * k, 200 * (k + 1))
        some = aligner.error(new[part], truth[part])
        for name in hits:
            hits[name] += some[f"{name}_low"] <= found[name] <= some[f"{name}_high"]
    assert 87 <= hits["mse"] <= 100
    assert 87 <= hits["relative"] <= 100


@settings(max_examples=20, deadline=None)
@given(seed=st.integers(0, 1000), shift=st.floats(-50, 50), scale=st.floats(0.1, 20))
def test_invariances(seed, shift, scale):
    """Shifting and scaling X changes no prediction of an affine method; a rotation of X changes none either."""
    generator = np.random.default_rng(seed)
    x, y = generator.normal(size=(60, 4)), generator.normal(size=(60, 4))
    turn = np.linalg.qr(generator.normal(size=(4, 4)))[0]
    for method in ("linear", "procrustes", "cca"):
        plain = ls.align(x, y, method=method)(x)
        np.testing.assert_allclose(ls.align(scale * x + shift, y, method=method)(scale * x + shift), plain, atol=1e-6)
        np.testing.assert_allclose(ls.align(x @ turn, y, method=method)(x @ turn), plain, atol=1e-6)


def test_mistakes_are_sentences(tmp_path):
    x, y = noisy_pair(n=50)
    with pytest.raises(InputError, match="no alignment method 'lin'"):
        ls.align(x, y, method="lin")
    with pytest.raises(InputError, match="linear has no option steps; it has strength, pad"):
        ls.align(x, y, steps=3)
    with pytest.raises(InputError, match="X has 50 rows and Y 49"):
        ls.align(x, y[:-1])
    with pytest.raises(InputError, match="not finite"):
        ls.align(x, y * np.nan)
    with pytest.raises(InputError, match=r"shape is \(50,\)"):
        ls.align(x, y[:, 0])
    with pytest.raises(InputError, match="at least 2 rows"):
        ls.align(x[:1], y[:1])
    with pytest.raises(InputError, match="given rows of width 5"):
        ls.align(x, y)(x[:, :5])
    with pytest.raises(InputError, match="strength is 'high'"):
        ls.align(x, y, strength="high")
    with pytest.raises(InputError, match="strength is nan"):
        ls.align(x, y, strength=math.nan)
    with pytest.raises(InputError, match="learning_rate is -1"):
        ls.align(x, y, method="inn", learning_rate=-1)
    with pytest.raises(InputError, match="start is 'cca'"):
        ls.align(x, y, method="inn", start="cca")
    with pytest.raises(InputError, match="features into two halves"):
        ls.align(x[:, :1], y[:, :1], method="inn")
    with pytest.raises(InputError, match="not fitted"):
        METHODS["linear"]()(x)
    other = tmp_path / "other.safetensors"
    other.write_bytes(b"nothing of the kind")
    with pytest.raises(InputError, match="is not an aligner"):
        ls.load_aligner(other)
    with pytest.raises(InputError, match="no file"):
        ls.load_aligner(tmp_path / "none")


@pytest.mark.skipif(not torch.cuda.is_available(), reason="no CUDA device")
@pytest.mark.parametrize("method", ALL)
def test_on_a_gpu(method):
    x, y = noisy_pair(n=200)
    plain = ls.align(x, y, method=method, **QUICK.get(method, {}))
    on_gpu = ls.align(torch.from_numpy(x).cuda(), torch.from_numpy(y).cuda(), method=method, **QUICK.get(method, {}))
    found = on_gpu(torch.from_numpy(x).cuda())
    assert found.device.type == "cuda"
    np.testing.assert_allclose(found.cpu().numpy(), plain(x), rtol=1e-2, atol=2e-2)
