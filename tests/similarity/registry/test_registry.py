"""Every measure against an independent implementation, for its invariances, its range and its edges."""

import math

import numpy as np
import pandas
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

import layerscope as ls
from layerscope.errors import InputError, LayerscopeWarning, UnknownNameError
from layerscope.registry import MEASURES
from tests.similarity import reference
from tests.similarity.pairs import ATTENTION, NAMES, ROWWISE, data

EXPECTED = {
    *("cka", "cka_debiased", "cca", "cca_squared", "svcca", "pwcca", "neuron", "mixed", "procrustes"),
    *("linear_regression", "cka_minibatch", "cka_rbf", "rsa", "mutual_knn", "cknna", "jaccard_knn"),
    *("distance_correlation", "rsm_norm_difference", "rank_similarity", "second_order_cosine", "eigenspace_overlap"),
    *("hard_correlation_match", "soft_correlation_match", "gulp", "aligned_cosine", "permutation_procrustes"),
    *("procrustes_angular", "procrustes_size_and_shape"),
    *("concentricity_difference", "magnitude_difference", "uniformity_difference", "imd"),
}


def test_the_registry_is_whole():
    assert set(MEASURES) == EXPECTED | ATTENTION | ROWWISE
    table = ls.measures()
    columns = ["name", "family", "symmetric", "metric", "low", "high", "invariances", "needs", "source"]
    assert list(table.columns) == columns
    assert all(m.doc for m in MEASURES.values())
    with pytest.raises(UnknownNameError, match="Did you mean 'svcca'"):
        ls.measure("svca")


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize("name", NAMES)
def test_agreement_with_an_independent_implementation(name, seed):
    x, y = data(seed=seed)
    got = ls.measure(name)(x, y)
    assert isinstance(got, float)
    assert got == pytest.approx(getattr(reference, name)(x, y), rel=1e-5, abs=1e-7)


@pytest.mark.parametrize(
    ("name", "options"),
    [
        ("svcca", {"keep": 0.8}),
        ("pwcca", {"keep": 1.0}),
        ("pwcca", {"weights": "y"}),
        ("neuron", {"top_k": 3}),
        ("cka_rbf", {"bandwidth": 0.5}),
        ("rsa", {"distance": "euclidean", "correlation": "pearson"}),
        ("rsa", {"distance": "cosine"}),
        ("mutual_knn", {"k": 5}),
        ("cknna", {"k": 5}),
        ("cka_minibatch", {"batch": 50}),
        ("rank_similarity", {"k": 5}),
        ("second_order_cosine", {"k": 5}),
        ("second_order_cosine", {"distances": True}),
        ("rsm_norm_difference", {"norm": "spectral"}),
        ("gulp", {"ridge": 0.1}),
        ("uniformity_difference", {"t": 0.5}),
        ("imd", {"k": 8}),
    ],
)
def test_options_against_an_independent_implementation(name, options):
    x, y = data(seed=4)
    assert ls.measure(name)(x, y, **options) == pytest.approx(getattr(reference, name)(x, y, **options), rel=1e-5)


def transformed(x, kind, generator):
    d = x.shape[1]
    if kind == "orthogonal":
        return x @ np.linalg.qr(generator.normal(size=(d, d)))[0]
    if kind == "scaling":
        return x * 7.3
    if kind == "translation":
        return x + generator.normal(size=d) * 5
    return x @ (generator.normal(size=(d, d)) + 3 * np.eye(d))


@settings(max_examples=10, deadline=None)
@given(seed=st.integers(0, 10**6))
@pytest.mark.parametrize(("name", "kind"), [(n, k) for n in NAMES for k in MEASURES[n].invariances])
def test_declared_invariances(name, kind, seed):
    generator = np.random.default_rng(seed)
    x, y = data(n=60, seed=seed)
    measure = ls.measure(name)
    before = measure(x, y)
    assert measure(transformed(x, kind, generator), y) == pytest.approx(before, abs=1e-6)
    assert measure(x, transformed(y, kind, generator)) == pytest.approx(before, abs=1e-6)


@settings(max_examples=15, deadline=None)
@given(seed=st.integers(0, 10**6), n=st.integers(20, 60))
@pytest.mark.parametrize("name", NAMES)
def test_range_symmetry_and_identity(name, seed, n):
    measure = ls.measure(name)
    x, y = data(n=n, seed=seed)
    value = measure(x, y)
    assert measure.low - 1e-9 <= value <= measure.high + 1e-9
    if measure.symmetric:
        assert measure(y, x) == pytest.approx(value, abs=1e-9)
    # The root of a difference that rounding leaves is far larger than rounding.
    assert measure(x, x) == pytest.approx(0.0 if measure.distance else 1.0, abs=1e-4 if measure.distance else 1e-6)


@settings(max_examples=15, deadline=None)
@given(seed=st.integers(0, 10**6), between=st.floats(-0.5, 1.5))
@pytest.mark.parametrize("name", sorted(name for name, m in MEASURES.items() if m.metric))
def test_metrics_keep_the_triangle_inequality(name, seed, between):
    """Of layers of one width, some of them nearly on a line from one to the other."""
    generator = np.random.default_rng(seed)
    measure = ls.measure(name)
    x, y = generator.normal(size=(2, 40, 5)) * [[[1.0]], [[generator.uniform(0.2, 3)]]]
    z = (1 - between) * x + between * y + generator.normal(size=(40, 5)) * generator.choice([0.0, 0.1, 1.0])
    sides = measure(x, y), measure(y, z), measure(x, z)
    assert all(value >= 0 for value in sides)
    assert 2 * max(sides) <= sum(sides) + 1e-6
    assert measure.distance
    assert measure.symmetric
    assert measure(x, y) > 1e-3


@pytest.mark.parametrize("name", [n for n in NAMES if "translation" in MEASURES[n].invariances])
def test_a_large_offset_of_one_float32_feature_changes_nothing(name):
    x, y = (m.astype(np.float32) for m in data(n=300))
    moved = x.copy()
    moved[:, 2] += 3000
    assert ls.measure(name)(moved, y) == pytest.approx(ls.measure(name)(x, y), abs=1e-4, rel=1e-4)


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float32, torch.float64])
@pytest.mark.parametrize("name", NAMES)
def test_any_float_type_and_kind_of_array(name, dtype):
    x, y = data()
    got = ls.measure(name)(torch.from_numpy(x).to(dtype), torch.from_numpy(y).to(dtype))
    # Neighbours change where rows are rounded to eight bits, and with them the graph that imd looks at.
    relative = 0.3 if name == "imd" and dtype is torch.bfloat16 else 0.01
    assert got == pytest.approx(ls.measure(name)(x, y), abs=0.1, rel=relative)


@pytest.mark.parametrize("name", NAMES)
def test_inputs_that_cannot_be_measured_are_sentences(name):
    x, y = data()
    broken = x.copy()
    broken[3, 1] = np.nan
    measure = ls.measure(name)
    with pytest.raises(InputError, match="first argument has a NaN or an infinity in row 3"):
        measure(broken, y)
    broken[3, 1] = np.inf
    with pytest.raises(InputError, match="second argument has a NaN"):
        measure(y, broken)
    with pytest.raises(InputError, match="120 and 119 rows"):
        measure(x, y[1:])
    with pytest.raises(InputError, match=r"shape \(120,\); a matrix"):
        measure(x[:, 0], y)
    with pytest.raises(InputError, match="no rows"):
        measure(x[:0], y[:0])
    with pytest.raises(InputError, match="second argument holds <U1; real numbers are needed"):
        measure(x, np.full((len(x), 2), "a"))
    with pytest.raises(InputError, match="The first argument is not an array of numbers"):
        measure([[1.0], [2.0, 3.0]], y)
    with pytest.raises(InputError, match="has no option 'kepe'"):
        measure(x, y, kepe=1)


@pytest.mark.parametrize("name", NAMES)
def test_what_is_undefined_is_nan_with_a_reason(name):
    x, y = data()
    measure = ls.measure(name)
    with pytest.warns(LayerscopeWarning, match="one row has no variation"):
        assert math.isnan(measure(x[:1], y[:1]))
    with pytest.warns(LayerscopeWarning, match="whatever the data|two rows lie on a line"):
        assert math.isnan(measure(x[:2], y[:2]))
    for value in (2.5, 0.1, 0.0):  # 0.1 is not exact in binary: its mean differs from it by rounding
        with pytest.warns(LayerscopeWarning, match="undefined"):
            assert math.isnan(measure(np.full_like(x, value) * np.arange(1, 8), y))


@pytest.mark.parametrize("name", [n for n in NAMES if "translation" in MEASURES[n].invariances])
def test_constant_features_count_for_nothing(name):
    x, y = data()
    wide = np.column_stack([x, np.full(len(x), 4.0)])
    assert ls.measure(name)(wide, y) == pytest.approx(ls.measure(name)(x, y), abs=1e-9)


@pytest.mark.filterwarnings("ignore::layerscope.errors.LayerscopeWarning")
@pytest.mark.parametrize("name", NAMES)
def test_fewer_rows_than_features_and_duplicate_rows(name):
    generator = np.random.default_rng(1)
    x = generator.normal(size=(30, 40))
    y = x[:, :8] + 0.1 * generator.normal(size=(30, 8))
    measure = ls.measure(name)
    value = measure(np.repeat(x, 2, axis=0), np.repeat(y, 2, axis=0))
    assert math.isnan(value) or measure.low <= value <= measure.high + 1e-9


def test_tables_are_matrices():
    x, y = data()
    tables = [pandas.DataFrame(side, columns=[f"c{k}" for k in range(side.shape[1])]) for side in (x, y)]
    assert ls.measure("cka")(*tables) == pytest.approx(ls.measure("cka")(x, y), rel=1e-12)
    assert ls.compare(*tables).values == pytest.approx(ls.compare(x, y).values)
    assert ls.compare(tables).values.shape == (2, 2)
