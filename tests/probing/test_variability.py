"""nu against the plain formula with numpy's pseudo-inverse, streaming against one shot, and its invariances."""

import math

import numpy as np
import pandas
import pytest
import zoo

import layerscope as ls
from layerscope.errors import InputError


def plain(x, labels, weighting="class"):
    """Equation 3 as it stands."""
    classes = np.unique(labels)
    groups = [x[labels == c] for c in classes]
    means = np.stack([g.mean(axis=0) for g in groups])
    if weighting == "class":
        within = np.mean([np.cov(g.T, bias=True) for g in groups], axis=0)
        centre = means.mean(axis=0)
    else:
        within = sum(len(g) * np.cov(g.T, bias=True) for g in groups) / len(x)
        centre = x.mean(axis=0)
    between = (means - centre).T @ (means - centre) / len(classes)
    return np.trace(within @ np.linalg.pinv(between, rcond=1e-10, hermitian=True)) / len(classes)


def data(n, d, sizes, seed=0):
    generator = np.random.default_rng(seed)
    labels = generator.permutation(np.repeat(np.arange(len(sizes)), [int(n * s) for s in sizes]))
    centres = generator.normal(size=(len(sizes), d))
    return centres[labels] + generator.normal(size=(len(labels), d)) * np.linspace(0.5, 3, d) + 2, labels


@pytest.mark.parametrize("weighting", ["class", "rows"])
@pytest.mark.parametrize(
    ("n", "d", "sizes"),
    [
        (300, 10, (0.5, 0.5)),
        (300, 10, (0.9, 0.1)),
        (400, 40, (0.7, 0.2, 0.1)),
        (500, 30, (0.4, 0.3, 0.1, 0.1, 0.1)),
        (60, 100, (0.6, 0.4)),
        (2000, 768, (0.5, 0.3, 0.2)),
        (200, 768, (0.5, 0.3, 0.2)),
    ],
)
def test_the_plain_formula(n, d, sizes, weighting):
    x, labels = data(n, d, sizes)
    reps = ls.Representations.from_arrays([x], labels)
    assert ls.specialty(reps, weighting=weighting).values[0] == pytest.approx(
        plain(reps[0].double().numpy(), labels, weighting), rel=1e-5
    )


def test_invariances():
    x, labels = data(300, 12, (0.6, 0.3, 0.1))
    generator = np.random.default_rng(1)
    rotation = np.linalg.qr(generator.normal(size=(12, 12)))[0]
    before = ls.specialty(ls.Representations.from_arrays([x], labels)).values[0]
    for other, others in ((x @ rotation, labels), (7 * x, labels), (x + 100, labels), (x, (labels + 1) % 3)):
        assert ls.specialty(ls.Representations.from_arrays([other], others)).values[0] == pytest.approx(
            before, rel=1e-4
        )


def test_the_best_layer_is_the_least_above_layer_0():
    x, labels = data(200, 6, (0.5, 0.5))
    noise = np.random.default_rng(0).normal(size=x.shape)
    reps = ls.Representations.from_arrays([x, x + 3 * noise, x + noise, x + 2 * noise], labels)
    curve = ls.specialty(reps)
    assert curve.layers == [0, 1, 2, 3]
    assert curve.best == 2
    assert np.argmin(curve.values) == 0
    assert list(curve.frame["nu"]) == list(curve.values)


@pytest.mark.parametrize("family", ["bert", "gpt2"])
def test_streaming_is_one_shot(family, tmp_path):
    words = ["file", "list", "value", "return", "object", "string", "and", "the", "of", "in"]
    generator = np.random.default_rng(0)
    texts = [" ".join(generator.choice(words, size=generator.integers(2, 12))) for _ in range(90)]
    frame = pandas.DataFrame({"text": texts, "label": np.repeat([0, 1, 2], [60, 20, 10])})
    model = ls.load(zoo.network(family, "encoder"), tokenizer=zoo.tokenizer(family))
    streamed = ls.specialty(model, frame)
    stored = ls.specialty(ls.extract(model, frame, pool="mean"))
    np.testing.assert_allclose(streamed.values, stored.values, rtol=1e-3)
    assert streamed.best == stored.best


def test_edges():
    x, labels = data(100, 5, (0.5, 0.5))
    same = ls.Representations.from_arrays([np.full((100, 5), 0.1), x], labels)
    assert math.isnan(ls.specialty(same).values[0])
    assert ls.specialty(same).best == 1
    lonely = np.concatenate([np.zeros(99, int), [1]])
    assert ls.specialty(ls.Representations.from_arrays([x], lonely)).values[0] == pytest.approx(
        plain(x, lonely), rel=1e-3
    )
    gap = ls.Representations.from_arrays([x], labels * 2)  # class 1 of 0, 1, 2 has no rows
    assert ls.specialty(gap).values[0] == pytest.approx(plain(x, labels), rel=1e-4)
    with pytest.raises(InputError, match="1 class only"):
        ls.specialty(ls.Representations.from_arrays([x], np.zeros(100, int)))
    with pytest.raises(InputError, match="labels are numbers"):
        ls.specialty(ls.Representations.from_arrays([x], labels + 0.5))
    with pytest.raises(InputError, match="needs labels"):
        ls.specialty(ls.Representations.from_arrays([x]))
    with pytest.raises(InputError, match="no weighting 'classes'"):
        ls.specialty(same, weighting="classes")


def test_smoothness():
    _, labels = data(50, 3, (0.5, 0.5))
    curve = ls.specialty(ls.Representations.from_arrays([data(50, 3, (0.5, 0.5), s)[0] for s in range(5)], labels))
    values = curve.values[1:]
    scaled = (values - values.mean()) / values.std()
    expected = sum((scaled[k + 2] - 2 * scaled[k + 1] + scaled[k]) ** 2 for k in range(2))
    assert ls.smoothness(curve) == pytest.approx(expected)


def test_intervals_and_how_often_each_layer_wins():
    x, labels = data(400, 6, (0.5, 0.5))
    noise = np.random.default_rng(0).normal(size=(4, *x.shape))
    clear = ls.Representations.from_arrays([x, x + 4 * noise[0], x, x + 4 * noise[1]], labels)
    curve = ls.specialty(clear, ci=0.95)
    assert curve.wins[2] == 1.0
    assert (curve.low <= curve.values).all()
    assert (curve.values <= curve.high).all()
    flat = ls.specialty(ls.Representations.from_arrays([x, *(x + n for n in noise)], labels), ci=0.95)
    assert flat.wins[0] == 0.0
    assert flat.wins.sum() == pytest.approx(1.0)
    assert flat.wins.max() < 0.9
    assert set(flat.frame) >= {"low", "high", "wins"}


def test_intervals_cover_the_truth():
    x, labels = data(40000, 4, (0.5, 0.5), 9)
    truth = ls.specialty(ls.Representations.from_arrays([x], labels)).values[0]
    hits = 0
    for seed in range(40):
        generator = np.random.default_rng(100 + seed)
        rows = np.concatenate([generator.choice(np.flatnonzero(labels == c), 150, replace=False) for c in (0, 1)])
        curve = ls.specialty(ls.Representations.from_arrays([x[rows]], labels[rows]), ci=0.9)
        hits += curve.low[0] <= truth <= curve.high[0]
    assert 0.7 <= hits / 40 <= 1.0


@pytest.fixture
def words():
    generator = np.random.default_rng(0)
    names = ["file", "list", "value", "return", "object", "string", "and", "the", "of", "in"]
    labels = generator.integers(0, 3, 150)
    texts = [" ".join([*generator.choice(names[3:], size=generator.integers(1, 7)), names[k]]) for k in labels]
    frame = pandas.DataFrame({"text": texts, "label": labels})
    return ls.task({"train": frame[:100], "validation": frame[100:]})
