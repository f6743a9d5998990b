"""Every layer score: what leaves it as it is, what it says of itself, and the rows that all of them read."""

import numpy as np
import pytest
import torch
from scipy.stats import ortho_group

from layerscope.probing.layer_score import LayerRows, LayerScore, LayerScoreCurve, targets
from layerscope.registry import LAYER_SCORES


def drawn(n=120, width=8, seed=0):
    generator = np.random.default_rng(seed)
    texts = np.sort(generator.integers(0, 70, n))
    labels = generator.integers(0, 3, n)
    x = generator.normal(size=(n, width)) * generator.uniform(0.5, 4, width) + np.eye(3, width)[labels] * 3
    return x, labels, texts


CHANGES = {
    "shift": lambda x, generator: x + 3 * generator.normal(size=x.shape[1]),
    "scale": lambda x, generator: x * 0.037,
    "columns": lambda x, generator: x * generator.uniform(0.01, 50, x.shape[1]),
    "rotation": lambda x, generator: x @ ortho_group.rvs(x.shape[1], random_state=generator),
}


@pytest.mark.parametrize("name", LAYER_SCORES)
@pytest.mark.parametrize("change", CHANGES)
def test_what_is_said_to_leave_a_score_as_it_is_does_and_nothing_else(name, change):
    kind = LAYER_SCORES[name]
    for seed in range(4):
        x, labels, texts = drawn(width=[3, 8, 40, 160][seed], seed=seed)
        value, changed = (
            kind().values(LayerRows(torch.from_numpy(rows), texts), labels[None])[0]
            for rows in (x, CHANGES[change](x, np.random.default_rng(seed)))
        )
        if change in kind.unchanged_by:
            assert changed == pytest.approx(value, rel=1e-6)
        elif 8 <= x.shape[1] <= 40:
            assert changed != pytest.approx(value, rel=1e-4)


@pytest.mark.parametrize("name", LAYER_SCORES)
def test_a_score_of_labels_that_show_is_better_than_of_labels_at_random(name):
    score = LAYER_SCORES[name]()
    assert isinstance(score, LayerScore)
    assert score.title
    assert score.source
    x, labels, texts = drawn(n=300)
    random = [np.random.default_rng(k).permutation(labels) for k in range(20)]
    values = score.values(LayerRows(torch.from_numpy(x), texts), np.stack([labels, *random]))
    better = values[1:] > values[0] if score.least else values[1:] < values[0]
    assert better.all()
    assert score.within[0] <= values.min()
    assert values.max() <= score.within[1]
    if score.zero is not None:
        assert np.mean(values[1:]) == pytest.approx(score.zero, abs=0.02)
    halves = np.stack([np.random.default_rng(k).permutation(np.arange(70) % 2)[texts] == 0 for k in range(5)])
    drawn_values = score.of_halves(LayerRows(torch.from_numpy(x), texts), labels, halves)
    assert drawn_values.shape == (5,)
    assert np.ptp(drawn_values) > 0


def test_rows_are_those_of_whole_texts():
    layer = LayerRows(torch.arange(10.0)[:, None], np.asarray([4, 4, 4, 1, 1, 9, 2, 2, 2, 2]))
    assert layer.sizes.tolist() == [3, 2, 1, 4]
    assert layer.number.tolist() == [0, 0, 0, 1, 1, 2, 3, 3, 3, 3]
    pieces = [(texts.start, texts.stop, rows.start, rows.stop) for texts, rows in layer.whole_texts(3)]
    assert pieces == [(0, 1, 0, 3), (1, 3, 3, 6), (3, 4, 6, 10)]
    assert layer.select(layer.texts == 2).sizes.tolist() == [4]
    with pytest.raises(ValueError, match="follow one another"):
        LayerRows(torch.ones(3, 1), np.asarray([0, 1, 0]))


@pytest.mark.parametrize("width", [3, 20])
def test_the_spectrum_is_that_of_standardised_rows(width):
    x = np.random.default_rng(0).normal(size=(12, width)) * 100 + 1000
    x[:, 1] = 5.0  # constant
    layer = LayerRows(torch.from_numpy(x), np.arange(12))
    z = (x - x.mean(axis=0)) / np.where(np.arange(width) == 1, 1, x.std(axis=0))
    singular = np.linalg.svd(z, compute_uv=False)
    values, _ = layer.spectrum
    assert len(values) == min(11, width - 1)
    np.testing.assert_allclose(values, singular[: len(values)] ** 2, rtol=1e-9)
    along = layer.along_axes(0, 12)
    np.testing.assert_allclose(along.T @ along, np.diag(values), atol=1e-7)
    np.testing.assert_allclose(along @ along.T, z @ z.T, atol=1e-7)


def test_targets_are_indicators_or_numbers_without_a_scale():
    assert targets(np.asarray([[0, 2], [1, 0]])).tolist() == [[[1, 0, 0], [0, 1, 0]], [[0, 0, 1], [1, 0, 0]]]
    numbers = targets(np.asarray([[10.0, 30.0, 50.0]]), 1, 3)
    np.testing.assert_allclose(numbers[:, 0, 0], [0, 1.5**0.5])


def curve(values, p_best, spread):
    values = np.asarray(values, float)
    draws = values + spread * np.random.default_rng(0).normal(size=(60, len(values)))
    known = {"low": values - 0.1, "high": values + 0.1, "draws": draws, "null": np.zeros(len(values))}
    form = {"settings": {"form": "a form"}, "data": {"n": 50}}
    layers = list(range(len(values)))
    best = 1 + int(np.argmax(values[1:]))
    return LayerScoreCurve("press", ["m"] * len(values), layers, values, form, best, p_best=p_best, **known)


def test_findings_say_what_is_shown_and_what_cannot_be_told_apart():
    told = curve([0.1, 0.5, 0.51, 0.2], 0.01, 0.02).findings()
    assert told[0].text == "The labels show in layer 2: press is 0.510, and 0.000 with permuted labels."
    assert (
        told[0].evidence == "p = 0.01 after allowing for the choice among layers; 95% interval 0.410 to 0.610, n = 50"
    )
    assert told[0].sure is True
    assert told[1].text == "These layers cannot be told apart with these rows: 1 and 2."
    assert told[1].sure is False
    assert told[2].text == "press was measured with a form."
    clear = curve([0.1, 0.3, 0.51, 0.2], 0.01, 0.001).findings()
    assert (clear[1].text, clear[1].sure) == ("Layer 2 is better than every other layer.", True)
    nothing = curve([0.1, 0.0, 0.01, 0.0], 0.4, 0.02).findings()[0]
    assert nothing.text.startswith("No layer is shown to tell the labels: press is 0.010 at best, in layer 2")
    assert nothing.sure is False
    empty = LayerScoreCurve("press", ["m"], [0], np.asarray([np.nan])).findings()
    assert empty[0].text == "press has no value in any layer."
