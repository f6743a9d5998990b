"""Probes of every layer."""

import math

import numpy as np
import pytest
from sklearn.linear_model import LogisticRegression

import layerscope as ls
from layerscope.errors import InputError, LayerscopeWarning
from layerscope.extraction.row_store import Rows
from layerscope.probing import probes
from layerscope.probing.probes import _parts
from layerscope.results import Curve
from tests.helpers.models import random_network, word_tokenizer


def test_probes_have_intervals_and_wins(planted):
    train, validation = halves(planted)
    curve = ls.probe(train, validation, ci=0.95, subsamples=6)
    assert curve.wins[2] == 1.0
    assert (curve.low <= curve.values).all()
    assert curve.high[1] > curve.low[1]


def test_intervals_are_over_the_scored_texts(planted):
    """By default nothing is trained again: the bounds of an accuracy are those of a share of so many texts."""
    train, validation = halves(planted)
    curve = ls.probe(train, validation)
    share, n = curve.values[1], len(validation)
    assert (curve.high - curve.low)[1] / 2 == pytest.approx(1.96 * math.sqrt(share * (1 - share) / n), rel=0.3)
    assert curve.wins.sum() == pytest.approx(1.0)
    assert curve.wins[2] > 0.9
    assert ls.probe(train, validation, ci=None).low is None
    repeated = validation.select(rows=np.repeat(np.arange(n), 5))  # the same texts, five rows of each
    assert (ls.probe(train, repeated).high - ls.probe(train, repeated).low)[1] == pytest.approx(
        (curve.high - curve.low)[1], rel=0.25
    )


def test_layers_tie_that_the_difference_on_the_same_texts_does_not_tell_apart():
    values = np.asarray([0.99, 0.7, 0.9, 0.86])
    curve = Curve("accuracy", ["m"] * 4, [0, 1, 2, 3], values, best=2)
    assert curve.ties is None
    noise = np.random.default_rng(0).normal(size=(20, 4))
    curve.left_out = values + 0.1 / 19 * noise
    assert curve.ties == [2, 3]
    curve.left_out = values + 0.1 / 19 * noise[:, :1]  # texts that are hard are hard for all of them
    assert curve.ties == [2]


def test_strengths_are_chosen_over_whole_texts(planted):
    words = ls.Representations.from_arrays(
        [planted[2]], planted.labels, rows=Rows("t", "train", "", np.repeat(np.arange(60), 5))
    )
    parts = _parts(words, numbers=False, seed=0)
    assert sorted(np.concatenate([scored for _, scored in parts])) == list(range(300))
    for learned, scored in parts:
        assert not set(words.rows.row[learned]) & set(words.rows.row[scored])


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
    base = ls.load(random_network("bert", "encoder"), tokenizer=word_tokenizer())
    curve = ls.probe(train, validation, kind="head", model=base, epochs=10, learning_rate=1e-2)
    assert curve.best == 2
    assert curve.values[2] > 0.9 > curve.values[0]
    with pytest.raises(InputError, match="say which model"):
        ls.probe(train, validation, kind="head")


@pytest.mark.filterwarnings("error")
def test_a_rare_class_is_no_reason_to_warn(planted):
    train, validation = halves(planted)
    labels = np.array(train.labels)
    labels[0] = labels.max() + 1
    assert np.isfinite(ls.probe(train.with_labels(labels), validation).values).all()


def test_mistakes_are_sentences(planted):
    train, validation = halves(planted)
    with pytest.raises(InputError, match="no kind of probe 'tree'"):
        ls.probe(train, validation, kind="tree")
    with pytest.raises(InputError, match="no metric 'auc'"):
        ls.probe(train, validation, metric="auc")
    with pytest.raises(InputError, match="perplexity was asked for, and the labels of"):
        ls.probe(train, validation, metric="perplexity")
    with pytest.raises(InputError, match="1 class only"):
        ls.probe(train.with_labels(np.zeros(200, int)), validation)
    with pytest.raises(InputError, match=r"no class has 3 rows; give more of them, or leave probes out"):
        ls.probe(train.with_labels(np.arange(200)), validation)
    with pytest.raises(InputError, match="the other numbers"):
        ls.probe(train, validation.with_labels(np.linspace(0, 1, 100)))
    with pytest.raises(InputError, match="layers differ"):
        ls.probe(train, validation.select(layers=[1, 2]))
    with pytest.raises(InputError, match="has none"):
        ls.probe(train, ls.Representations.from_arrays([np.ones((5, 8))] * 4))


def test_a_single_scored_text_has_no_interval(planted):
    curve = ls.probe(planted.select(rows=slice(1, None)), planted.select(rows=[0]))
    assert np.isnan([curve.low, curve.high, curve.wins]).all()


def test_classes_that_were_never_seen_are_announced(planted):
    train, scored = planted.select(rows=planted.labels < 2), planted.select(rows=slice(0, 60))
    missing = int((scored.labels == 2).sum())
    with pytest.warns(LayerscopeWarning, match=f"{missing} of the 60 rows that are scored have a class that no row"):
        ls.probe(train, scored)


def test_numbers_that_are_missing_are_a_sentence(planted):
    labels = np.linspace(0, 1, len(planted))
    labels[3] = np.inf
    reps = ls.Representations.from_arrays([planted[2]], labels)
    with pytest.raises(InputError, match="A probe needs a number for every row"):
        ls.probe(reps, reps)


def test_states_that_differ_by_rounding_alone_are_not_read():
    generator = np.random.default_rng(0)
    rounding = (np.float32(3.7) * (1 + 1e-7 * generator.normal(size=(60, 5)))).astype(np.float32)
    reps = ls.Representations.from_arrays([rounding, generator.normal(size=(60, 5))], np.arange(60) % 2)
    curve = ls.probe(reps.select(rows=slice(40)), reps.select(rows=slice(40, 60)))
    assert np.isnan(curve.values).tolist() == [True, False]
    assert "every row is the same there" in curve.provenance["undefined"]


def test_classes_that_are_numbered_differently_are_refused():
    """Texts as labels are numbered in their own order: without a class the others have other numbers."""
    labels = np.array(list("abc") * 40)
    rows = np.random.default_rng(0).normal(size=(120, 3)) + 5 * (labels[:, None] == ["a", "b", "c"])
    fewer = labels != "a"
    train = ls.Representations.from_arrays([rows, rows], labels)
    held = ls.Representations.from_arrays([rows[fewer], rows[fewer]], labels[fewer])
    with pytest.raises(InputError, match=r"a, b, c where a probe learns and b, c where it is scored"):
        ls.probe(train, held)
    assert ls.probe(train, held.with_labels(labels[fewer], names=["a", "b", "c"])).values.min() > 0.9


def test_thousands_of_classes_are_read_by_discriminant_analysis(monkeypatch):
    """Beside scikit-learn's with the same shares of shrinkage."""
    from sklearn.discriminant_analysis import LinearDiscriminantAnalysis

    generator = np.random.default_rng(0)
    labels = np.arange(120) % 12
    places = 1.2 * generator.normal(size=(12, 6))
    x, y = (places[labels] + generator.normal(size=(120, 6)) for _ in range(2))
    train, validation = (ls.Representations.from_arrays([m], labels) for m in (x, y))
    logistic = ls.probe(train, validation).values[0]
    monkeypatch.setattr(probes, "_LARGEST", 0)
    found = ls.probe(train, validation).values[0]
    assert abs(found - logistic) < 0.1
    x, y = (reps[0].double().numpy() for reps in (train, validation))
    z, new = ((m - x.mean(axis=0)) / x.std(axis=0) for m in (x, y))
    right = []
    for share in (0.001, 0.01, 0.1, 0.3, 0.6, 0.9):
        fit = LinearDiscriminantAnalysis(solver="lsqr", shrinkage=share).fit(z, labels)
        right.append(float((fit.predict(new) == labels).mean()))
    assert found in right
    assert min(right) < max(right)
