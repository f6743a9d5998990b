"""Other measures of a layer against labels, probes and agreement: against independent forms, and planted cases."""

import math

import numpy as np
import pytest
import zoo
from scipy.stats import linregress, pearsonr, spearmanr
from sklearn.cross_decomposition import CCA
from sklearn.linear_model import LogisticRegression

import layerscope as ls
from layerscope.analysis.curves import Curve
from layerscope.analysis.label_measures import ridge_cca
from layerscope.errors import InputError


@pytest.fixture(scope="module")
def planted():
    """Layer 2 of four shows the classes best, layer 0 and 1 hardly, layer 3 less well."""
    generator = np.random.default_rng(0)
    labels = generator.integers(0, 3, 300)
    centres = generator.normal(size=(3, 8)) * 4
    layers = [centres[labels] * share + generator.normal(size=(300, 8)) for share in (0.02, 0.1, 1.0, 0.35)]
    return ls.Representations.from_arrays(layers, labels)


@pytest.mark.parametrize("name", ["specialty", "label_cca", "mutual_information"])
def test_every_measure_finds_the_planted_layer(name, planted):
    curve = getattr(ls, name)(planted)
    assert curve.best == 2
    assert len(curve.values) == 4


def test_numerical_rank_is_the_plain_formula(planted):
    curve = ls.numerical_rank(planted)
    for layer in planted.layers:
        x, ranks = planted[layer].double().numpy(), []
        for label in range(3):
            s = np.linalg.svd(x[planted.labels == label], compute_uv=False)
            ranks.append(np.linalg.norm(s, 1) ** 2 / np.linalg.norm(s) ** 2)
        assert curve.values[layer] == pytest.approx(np.mean(ranks), rel=1e-5)
    assert curve.best == 2  # tight classes keep to few directions


def test_nuclear_norm(planted):
    expected = [np.linalg.norm(planted[layer].double().numpy(), "nuc") for layer in planted.layers]
    np.testing.assert_allclose(ls.nuclear_norm(planted).values, expected, rtol=1e-5)


def test_directions_are_those_of_an_independent_cca(planted):
    import torch

    x = planted[2].double()
    y = torch.from_numpy(np.eye(3)[planted.labels][:, :2])
    a, b, mean_x, mean_y = ridge_cca(x, y, 1e-9, 1e-9)
    u, v = ((x - mean_x) @ a).numpy(), ((y - mean_y) @ b).numpy()
    other = CCA(2, max_iter=5000, tol=1e-12).fit_transform(x.numpy(), y.numpy())
    for k in range(2):
        expected = abs(np.corrcoef(other[0][:, k], other[1][:, k])[0, 1])
        assert abs(np.corrcoef(u[:, k], v[:, k])[0, 1]) == pytest.approx(expected, abs=1e-3)


def test_label_cca_takes_numbers(planted):
    numbers = planted.with_labels(planted[2][:, 0].double().numpy() + 0.25)
    assert ls.label_cca(numbers).best == 2
    assert ls.label_cca(numbers).values[2] == pytest.approx(1.0, abs=0.01)
    with pytest.raises(InputError, match="numbers as labels"):
        ls.numerical_rank(numbers)
    with pytest.raises(InputError, match="at least 50 rows"):
        ls.label_cca(planted.select(rows=slice(30)))


def halves(reps):
    return reps.select(rows=slice(200)), reps.select(rows=slice(200, None))


def test_linear_probes(planted):
    train, validation = halves(planted)
    curve = ls.probe(train, validation)
    assert curve.best == 2
    x, y = train[2].numpy(), validation[2].numpy()
    plain = LogisticRegression(max_iter=500).fit(x, train.labels).score(y, validation.labels)
    assert curve.values[2] == pytest.approx(plain, abs=0.03)
    numbers = planted.with_labels(planted[1][:, 0].double().numpy())
    assert ls.probe(*halves(numbers)).values[1] == pytest.approx(1.0, abs=0.01)
    constant = ls.Representations.from_arrays([np.ones((300, 4)), planted[2]], planted.labels)
    assert math.isnan(ls.probe(*halves(constant)).values[0])


def test_head_probes():
    generator = np.random.default_rng(0)
    labels = generator.integers(0, 3, 120)
    centres = generator.normal(size=(3, 32)) * 2
    layers = [centres[labels] * share + generator.normal(size=(120, 32)) for share in (0.0, 0.05, 1.0, 0.3, 0.1)]
    reps = ls.Representations.from_arrays(layers, [["c", "a", "b"][k] for k in labels])
    train, validation = reps.select(rows=slice(80)), reps.select(rows=slice(80, None))
    base = ls.load(zoo.network("bert", "encoder"), tokenizer=zoo.tokenizer())
    curve = ls.probe(train, validation, kind="head", model=base, epochs=10, learning_rate=1e-2)
    assert curve.best == 2
    assert curve.values[2] > 0.9 > curve.values[0]
    with pytest.raises(InputError, match="say which model"):
        ls.probe(train, validation, kind="head")


def test_agreement_is_that_of_scipy():
    generator = np.random.default_rng(0)
    x = generator.normal(size=13)
    y = -2 * x + generator.normal(size=13)
    one, two = (Curve(name, ["m"] * 13, list(range(13)), values) for name, values in (("nu", x), ("score", y)))
    found = ls.agreement(one, two)
    assert found["n"] == 12  # layer 0 is left out
    assert found["pearson"] == pytest.approx(pearsonr(x[1:], y[1:])[0])
    assert found["spearman"] == pytest.approx(spearmanr(x[1:], y[1:])[0])
    assert found["slope"] == pytest.approx(linregress(x[1:], y[1:]).slope)
    assert found["r2"] == pytest.approx(found["pearson"] ** 2)
    for name, (low, high) in found["intervals"].items():
        assert low <= found[name] <= high
    with pytest.raises(InputError, match="at least 3 common layers"):
        ls.agreement(one, Curve("s", ["m"], [5], np.ones(1)))


def test_mistakes_are_sentences(planted):
    train, validation = halves(planted)
    with pytest.raises(InputError, match="no kind of probe 'tree'"):
        ls.probe(train, validation, kind="tree")
    with pytest.raises(InputError, match="layers differ"):
        ls.probe(train, validation.select(layers=[1, 2]))
    with pytest.raises(InputError, match="has none"):
        ls.probe(train, ls.Representations.from_arrays([np.ones((5, 8))] * 4))
