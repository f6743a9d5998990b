"""What every aligner does: kinds, files, inverses, widths, degenerate rows, errors; for each method that there is."""

import math

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

import layerscope as ls
from layerscope.alignment.aligner import of_any_widths, options_of
from layerscope.drawing.captions import listed
from layerscope.errors import InputError
from layerscope.extraction.row_store import Rows
from layerscope.registry import ALIGNERS
from tests.helpers.data import noisy_pair, quick_options, uneven_rows


@pytest.mark.parametrize("wrong", ["a text", b"x", [None], ["x"], {"a": 1}, [[1, 2], [3]], 1j, object(), ls.LayerPlan])
def test_what_is_no_array_is_refused_by_its_side(wrong):
    x = np.random.default_rng(0).normal(size=(20, 3))
    for call in (lambda: ls.align(wrong, x), lambda: ls.align(x, wrong), lambda: ls.align(x, x)(wrong)):
        with pytest.raises(InputError, match=r"^[XY] (holds|is not an array of numbers|must be rows)"):
            call()
    for texts in ([[0]] * 19 + [[1, 2]], [None, 1, "a"] * 6 + [0, 0]):
        with pytest.raises(InputError, match=r"^texts does not name the text of each row"):
            ls.align(x, x, texts=texts)


@pytest.mark.parametrize("method", ALIGNERS)
def test_kinds_files_and_inverses(method, tmp_path):
    x, y = noisy_pair(n=80)
    aligner = ls.align(x, y, method=method, **quick_options(method))
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
        cut = "keep" in aligner.options  # what it cuts away does not come back
        np.testing.assert_allclose(aligner.inverse(aligner(x)), x, atol=2.0 if cut else 2e-3)
        assert aligner.report_["round_trip"] < (0.1 if cut else 1e-5)
    second = ls.align(x, y, method=method, **quick_options(method))
    np.testing.assert_array_equal(second(x), aligner(x))  # seeded


@pytest.mark.parametrize("method", ALIGNERS)
@pytest.mark.parametrize(("d", "e"), [(5, 8), (8, 5)])
def test_different_widths(method, d, e):
    x, y = noisy_pair(n=90, d=d, e=e)
    options = quick_options(method)
    if ALIGNERS[method].same_width:
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


@pytest.mark.parametrize("method", ALIGNERS)
@pytest.mark.parametrize("case", CASES)
def test_degenerate_rows_give_finite_maps(method, case):
    n, d, change = CASES[case]
    x = change(uneven_rows(n, d))
    y = uneven_rows(n, x.shape[1], seed=2)
    for source, target in ((x, y), (y, x)):
        aligner = ls.align(source, target, method=method, **quick_options(method))
        assert np.isfinite(aligner(source)).all()
        error = aligner.error(source, target)
        assert error["mse"] >= 0
        assert math.isnan(error["relative"]) == (np.ptp(target, axis=0).max() == 0)


def test_errors_are_the_plain_formula_and_their_intervals_cover():
    x, y = noisy_pair(n=400)
    aligner = ls.align(x, y)
    new = uneven_rows(20000, seed=9)
    generator = np.random.default_rng(1)
    weights = generator.normal(size=(6, 6))
    truth = new @ weights - 2 + 0.3 * generator.normal(size=(20000, 6))
    error = aligner.error(new, truth)
    misses = truth - aligner(new)
    assert error["mse"] == pytest.approx((misses**2).mean())
    assert error["relative"] == pytest.approx((misses**2).sum() / ((truth - truth.mean(axis=0)) ** 2).sum())
    hits = {"mse": 0, "relative": 0}
    for k in range(100):
        part = slice(200 * k, 200 * (k + 1))
        some = aligner.error(new[part], truth[part])
        for name in hits:
            hits[name] += some[f"{name}_low"] <= error[name] <= some[f"{name}_high"]
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


@pytest.mark.gpu
@pytest.mark.parametrize("method", ALIGNERS)
def test_on_a_gpu(method):
    x, y = noisy_pair(n=200)
    plain = ls.align(x, y, method=method, **quick_options(method))
    on_gpu = ls.align(torch.from_numpy(x).cuda(), torch.from_numpy(y).cuda(), method=method, **quick_options(method))
    found = on_gpu(torch.from_numpy(x).cuda())
    assert found.device.type == "cuda"
    np.testing.assert_allclose(found.cpu().numpy(), plain(x), rtol=1e-2, atol=2e-2)


@pytest.mark.parametrize("method", ALIGNERS)
def test_a_class_says_what_it_is(method):
    kind = ALIGNERS[method]
    assert kind.method == method
    assert isinstance(kind.place, int)
    assert kind.__doc__
    assert ("pad" in options_of(method)) == bool(kind.same_width)  # an option without effect is none


def test_wider_intervals_cover_more():
    x, y = noisy_pair(n=200)
    wide, narrow = (ls.align(x, y).error(x, y, ci=ci) for ci in (0.99, 0.5))
    assert wide["mse"] == narrow["mse"]
    assert wide["mse_low"] < narrow["mse_low"] < narrow["mse"] < narrow["mse_high"] < wide["mse_high"]


def test_a_refusal_of_widths_names_what_takes_them():
    x, y = noisy_pair(n=50, e=4)
    with pytest.raises(InputError, match=f"{listed(of_any_widths())} take both"):
        ls.align(x, y, method="procrustes")


@pytest.mark.parametrize(("value", "word"), [(np.nan, "a NaN"), (np.inf, "an infinity")])
def test_what_is_not_finite_is_named_by_layer_and_row(value, word):
    x, y = noisy_pair(n=50)
    y[17, 2] = value
    with pytest.raises(InputError, match=f"Y has {word} in row 17;"):
        ls.align(x, y)
    with pytest.raises(InputError, match=f"X has {word} in row 17;"):
        ls.align(x, x)(y)
    with pytest.raises(InputError, match=f"Layer 0 has {word} in row 17;"):
        ls.align(x, ls.Representations.from_arrays([y]))


def test_representations_of_one_layer_tell_their_texts():
    x, y = noisy_pair(n=90)
    rows = Rows("sst2", "train", "", np.repeat(np.arange(30), 3), unit=np.arange(90) % 3, units="word")
    source, target = (ls.Representations.from_arrays([side, side], rows=rows) for side in (x, y))
    told = ls.align(source.select([1]), target.select([1]))
    given = ls.align(source[1], target[1], texts=source)
    assert isinstance(told(source.select([1])), torch.Tensor)
    torch.testing.assert_close(told(source[1]), given(source[1]))
    error = given.error(source[1], target[1], texts=rows.row)
    assert told.error(source.select([1]), target.select([1])) == pytest.approx(error)
    assert error["mse_low"] != given.error(source[1], target[1])["mse_low"]
    with pytest.raises(InputError, match=r"X has layers 0..1, and an aligner maps one layer"):
        ls.align(source, target)
    other = target.select([1], rows=np.arange(89, -1, -1))
    with pytest.raises(InputError, match="The rows of X and Y are not the same"):
        ls.align(source.select([1]), other)


def test_what_is_mapped_is_finite_or_a_sentence():
    rows = np.random.default_rng(0).normal(size=(50, 3)).astype(np.float32)
    aligner = ls.align(rows, 1e30 * rows)
    assert np.isfinite(aligner(rows)).all()
    with pytest.raises(InputError, match="does not map row 0 of X to finite numbers"):
        aligner(1e20 * rows)
