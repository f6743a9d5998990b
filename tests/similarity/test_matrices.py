"""How values come out: the n x n form of CKA against the d x d form, and measures that bring their own factor."""

import numpy as np
import pytest

import layerscope as ls
from layerscope.registry import MEASURES
from layerscope.similarity import execution_plan, matrices
from layerscope.similarity.registry import register


def wide(n=30, d=80, layers=4):
    generator = np.random.default_rng(0)
    found = [generator.normal(size=(n, d)) * np.logspace(0, -2, d) + 5]
    for _ in range(layers - 1):
        found.append(found[-1] + 0.5 * generator.normal(size=(n, d)))
    return ls.Representations.from_arrays([np.full((n, d), 3.0), *found])


def test_primal_and_dual_agree(monkeypatch):
    reps = wide()
    calls = []
    original = matrices.gram_matrices
    monkeypatch.setattr(matrices, "gram_matrices", lambda *given: calls.append(1) or original(*given))
    dual = ls.compare(reps, measure="cka")
    assert calls == [1]
    monkeypatch.setattr(execution_plan, "grams_are_cheaper", lambda *_: False)
    primal = ls.compare(reps, measure="cka")
    assert calls == [1]
    np.testing.assert_allclose(dual.values, primal.values, atol=1e-6)
    assert np.isnan(dual.values[0]).all()
    assert dual.reasons == primal.reasons
    for i in range(1, 5):
        assert dual.values[1, i] == pytest.approx(ls.measure("cka")(reps[1], reps[i]), abs=1e-6)


@pytest.fixture
def spectral():
    """A measure of moments with a factor of its own: what a pair needs of a side is made once per layer."""
    made = []

    def factor(side, *, power: float = 1.0):
        made.append(side)
        return side.eigen[0].pow(power / 2)

    def compute(a, b, cross):
        """The cosine of two layers' spectra."""
        assert cross.shape == (len(a), len(b))
        return float(a @ b / (a.norm() * b.norm()))

    entry = {"bounds": (0.0, 1.0), "invariances": ("orthogonal",), "needs": "moments", "source": "a test"}
    register("spectral", family="representation", symmetric=True, factor=factor, **entry)(compute)
    yield made
    del MEASURES["spectral"]


def test_a_new_measure_of_moments_with_a_factor_works_beside_debiased_cka(spectral):
    draw = np.random.default_rng(0).normal
    layers = [draw(size=(60, 5)) * np.logspace(0, -k, 5) for k in range(4)]
    reps = ls.Representations.from_arrays(layers)
    both = ls.compare(reps, measure=["spectral", "cka_debiased", "cka"], power=2.0)
    assert len(spectral) == len(layers)  # once per layer, not once per pair
    spectra = [np.linalg.eigvalsh(np.cov(x.T))[::-1] for x in layers]
    for i, a in enumerate(spectra):
        for j, b in enumerate(spectra):
            expected = a @ b / np.linalg.norm(a) / np.linalg.norm(b)
            assert both["spectral"].values[i, j] == pytest.approx(expected, rel=1e-4)
            assert both["cka_debiased"].values[i, j] == pytest.approx(
                ls.measure("cka_debiased")(layers[i], layers[j]), abs=1e-5
            )
    assert ls.measure("spectral")(layers[0], layers[1], power=2.0) == pytest.approx(both["spectral"].values[0, 1])
