"""The n x n form of CKA against the d x d form."""

import sys

import numpy as np
import pytest

import layerscope as ls


def wide(n=30, d=80, layers=4):
    generator = np.random.default_rng(0)
    found = [generator.normal(size=(n, d)) * np.logspace(0, -2, d) + 5]
    for _ in range(layers - 1):
        found.append(found[-1] + 0.5 * generator.normal(size=(n, d)))
    return ls.Representations.from_arrays([np.full((n, d), 3.0), *found])


def test_primal_and_dual_agree(monkeypatch):
    reps = wide()
    matrix = sys.modules["layerscope.measures.matrix"]
    calls = []
    original = matrix.gram_products
    monkeypatch.setattr(matrix, "gram_products", lambda work: calls.append(1) or original(work))
    dual = ls.compare(reps, measure="cka")
    assert calls == [1]
    monkeypatch.setattr(matrix, "dual_is_cheaper", lambda work: False)
    primal = ls.compare(reps, measure="cka")
    assert calls == [1]
    np.testing.assert_allclose(dual.values, primal.values, atol=1e-6)
    assert np.isnan(dual.values[0]).all()
    assert dual.reasons == primal.reasons
    for i in range(1, 5):
        assert dual.values[1, i] == pytest.approx(ls.measure("cka")(reps[1], reps[i]), abs=1e-6)


def test_the_cheaper_side_is_taken():
    from layerscope.measures.dual import dual_is_cheaper
    from layerscope.measures.work import Groups, Stored

    few, many = (ls.Representations.from_arrays([np.zeros((n, 20))] * 3) for n in (10, 400))
    assert dual_is_cheaper(Stored(Groups(few, None), None))
    assert not dual_is_cheaper(Stored(Groups(many, None), None))
