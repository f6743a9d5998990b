"""Other measures of a layer against labels, probes and agreement: against independent forms, and planted cases."""

import numpy as np
import pytest
import torch
from sklearn.cross_decomposition import CCA

import layerscope as ls
from layerscope.errors import InputError
from layerscope.extraction.row_store import Rows
from layerscope.probing.label_measures import RidgeCCA
from layerscope.resampling import folds


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


def test_mutual_information_is_the_plain_formula():
    """Clusters so far apart that any k-means finds them, and labels that follow them in part."""
    generator = np.random.default_rng(1)
    clusters = generator.integers(0, 3, 200)
    labels = np.where(generator.random(200) < 0.6, clusters, generator.integers(0, 3, 200))
    x = np.eye(3)[clusters] * 50 + generator.normal(size=(200, 3))
    reps = ls.Representations.from_arrays([x], labels)
    plain, normalized = (ls.mutual_information(reps, normalized=each, balance=False) for each in (False, True))
    assert (plain.name, normalized.name) == ("mutual_information", "normalized_mutual_information")
    nats, scores = [], []
    fold = folds(np.arange(200), 10, seed=0, labels=labels)
    for part in (np.flatnonzero(fold == k) for k in range(10)):
        joint = np.zeros((3, 3))
        np.add.at(joint, (clusters[part], labels[part]), 1 / len(part))
        one, two = joint.sum(axis=1), joint.sum(axis=0)
        shared = sum(p * np.log(p / one[i] / two[j]) for (i, j), p in np.ndenumerate(joint) if p)
        entropy = [-sum(p * np.log(p) for p in side if p) for side in (one, two)]
        nats.append(shared)
        scores.append(shared / np.mean(entropy))
    assert plain.values[0] == pytest.approx(np.mean(nats), rel=1e-6)
    assert normalized.values[0] == pytest.approx(np.mean(scores), rel=1e-6)


def of_words(seed, texts=100, words=10):
    """Words that share what their text is like, with labels of texts that have nothing to do with it."""
    generator = np.random.default_rng(seed)
    text = np.repeat(np.arange(texts), words)
    states = generator.normal(size=(texts, 40))[text] + 0.2 * generator.normal(size=(texts * words, 40))
    labels = generator.permutation(np.arange(texts) % 2)[text]
    return ls.Representations.from_arrays([states], labels, rows=Rows("t", "train", "", text))


def test_words_of_one_text_are_on_one_side_of_a_split():
    """Words dealt out one by one give .80 to .90 where there is nothing."""
    many = [of_words(seed) for seed in range(6)]
    assert abs(np.mean([ls.label_cca(reps).values[0] for reps in many])) < 0.12
    assert abs(np.mean([ls.mutual_information(reps).values[0] for reps in many])) < 0.12
    with pytest.raises(InputError, match="needs at least 50 texts for 10 folds; there are 20"):
        ls.label_cca(of_words(0, texts=20))


def test_alternatives_balance_classes_as_the_paper_does(planted):
    rare = planted.select(rows=np.flatnonzero((planted.labels != 0) | (np.arange(300) < 60)))
    least = np.bincount(rare.labels).min()
    for measure in (ls.label_cca, ls.mutual_information):
        curve = measure(rare)
        assert curve.provenance["data"]["n"] == 3 * least
        assert measure(rare, balance=False).provenance["data"]["n"] == len(rare)
        assert curve.best == 2


def test_nuclear_norm(planted):
    expected = [np.linalg.norm(planted[layer].double().numpy(), "nuc") for layer in planted.layers]
    np.testing.assert_allclose(ls.nuclear_norm(planted).values, expected, rtol=1e-5)


def test_directions_are_those_of_an_independent_cca(planted):

    x = planted[2].double()
    y = torch.from_numpy(np.eye(3)[planted.labels][:, :2])
    cca = RidgeCCA(x, y)
    a, b = cca.directions(1e-9, 1e-9)
    u, v = ((x - cca.means[0]) @ a).numpy(), ((y - cca.means[1]) @ b).numpy()
    other = CCA(2, max_iter=5000, tol=1e-12).fit_transform(x.numpy(), y.numpy())
    for k in range(2):
        expected = abs(np.corrcoef(other[0][:, k], other[1][:, k])[0, 1])
        assert abs(np.corrcoef(u[:, k], v[:, k])[0, 1]) == pytest.approx(expected, abs=1e-3)


def test_label_cca_takes_numbers(planted):
    numbers = planted.with_labels(planted[2][:, 0].double().numpy() + 0.25)
    assert ls.label_cca(numbers).best == 2
    assert ls.label_cca(numbers).values[2] == pytest.approx(1.0, abs=0.01)
    with pytest.raises(InputError, match="labels are numbers"):
        ls.numerical_rank(numbers)
    with pytest.raises(InputError, match="at least 50 rows"):
        ls.label_cca(planted.select(rows=slice(30)))


def test_names_of_classes_do_not_matter(planted):
    other = planted.with_labels(np.asarray([7, 0, 3])[planted.labels])
    for name in ("label_cca", "mutual_information", "numerical_rank"):
        np.testing.assert_allclose(getattr(ls, name)(other).values, getattr(ls, name)(planted).values, atol=1e-6)


def test_what_does_not_vary_has_no_value(planted):
    constant = ls.Representations.from_arrays([planted[2], np.ones((300, 4))], planted.labels)
    one = planted.with_labels(np.zeros(300, int))
    for name in ("label_cca", "mutual_information"):
        values = getattr(ls, name)(constant).values
        assert not np.isnan(values[0])
        assert np.isnan(values[1])
        with pytest.raises(InputError, match="1 class only"):
            getattr(ls, name)(one)
        with pytest.raises(InputError, match="at least 100 rows for 10 folds and intervals"):
            getattr(ls, name)(planted.select(rows=slice(60)), ci=0.9)
        with pytest.raises(InputError, match="folds is 2"):
            getattr(ls, name)(planted, folds=2)
        with pytest.raises(InputError, match=r"folds is 3\.5; it must be a whole number"):
            getattr(ls, name)(planted, folds=3.5)
        with pytest.raises(InputError, match="subsamples is 0"):
            getattr(ls, name)(planted, ci=0.9, subsamples=0)
    with pytest.raises(InputError, match="clusters is 0; it must be a whole number of at least 1"):
        ls.mutual_information(planted, clusters=0)


def test_a_ridge_is_that_of_the_textbook(planted):

    x, y = planted[2].double(), torch.from_numpy(np.eye(3)[planted.labels])
    cca = RidgeCCA(x, y)
    a, _ = cca.directions(0.1, 0.01)
    centred = [side - side.mean(dim=0) for side in (x, y)]
    cov = [(side.T @ side / len(x)).numpy() for side in centred]
    ridged = [c + share * np.diag(c).mean() * np.eye(len(c)) for c, share in zip(cov, (0.1, 0.01), strict=True)]
    cross = (centred[0].T @ centred[1] / len(x)).numpy()
    values, vectors = np.linalg.eig(np.linalg.solve(ridged[0], cross) @ np.linalg.solve(ridged[1], cross.T))
    first = vectors[:, values.real.argmax()].real
    cosine = abs(first @ a[:, 0].numpy()) / np.linalg.norm(first) / np.linalg.norm(a[:, 0])
    assert cosine == pytest.approx(1.0, abs=1e-6)


@pytest.mark.parametrize("name", ["label_cca", "mutual_information", "numerical_rank", "nuclear_norm"])
def test_every_measure_has_intervals_and_wins(name, planted):
    curve = getattr(ls, name)(planted, ci=0.9)
    assert (curve.low <= curve.values).all()
    assert (curve.values <= curve.high).all()
    assert (curve.high > curve.low)[:2].all()
    if name == "nuclear_norm":
        assert curve.wins is None  # it points to no layer
        assert ((curve.high - curve.low) < 0.2 * curve.values).all()  # halves count for as many rows as the whole
    else:
        assert curve.wins[2] > 0.5
        assert curve.wins.sum() == pytest.approx(1.0)
    with pytest.raises(InputError, match="between 0 and 1"):
        getattr(ls, name)(planted, ci=95)


def test_label_cca_does_not_depend_on_the_scale_of_the_states():
    generator = np.random.default_rng(0)
    labels = generator.integers(0, 2, 100)
    x = generator.normal(size=(100, 5)) + 1.5 * np.eye(2, 5)[labels]
    values = ls.label_cca(ls.Representations.from_arrays([x, 1e-8 * x, 1e8 * x], labels)).values
    np.testing.assert_allclose(values, values[0], rtol=1e-5)


@pytest.mark.parametrize("name", ["label_cca", "mutual_information"])
def test_states_that_differ_by_rounding_alone_have_no_value(name):
    generator = np.random.default_rng(0)
    rounding = (np.float32(3.7) * (1 + 1e-7 * generator.normal(size=(100, 5)))).astype(np.float32)
    reps = ls.Representations.from_arrays([rounding, generator.normal(size=(100, 5))], np.arange(100) % 2)
    curve = getattr(ls, name)(reps)
    assert np.isnan(curve.values).tolist() == [True, False]
    assert (
        curve.provenance["undefined"] == f"{name} has no value in layer 0: every row is the same there up to rounding."
    )


def test_a_label_that_is_no_number_is_a_sentence():
    labels = np.linspace(0, 1, 100)
    labels[7] = np.nan
    reps = ls.Representations.from_arrays([np.random.default_rng(0).normal(size=(100, 4))], labels)
    with pytest.raises(InputError, match=r"Label CCA needs a number for every row, and 1 of 100 have none .* row 7"):
        ls.label_cca(reps)
