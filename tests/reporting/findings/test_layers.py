"""Findings of comparisons, from real similarities of arrays."""

import numpy as np
import pandas
import pytest

import layerscope as ls
from layerscope.reporting.findings.layers import blocks, curve, similarity

DRAW = np.random.default_rng(0).normal


def layers(steps, n=400, d=4, seed=0):
    """Layers that change by a little, and by much where `steps` says so."""
    draw = np.random.default_rng(seed).normal
    states = [draw(size=(n, d))]
    for step in steps:
        states.append(states[-1] + step * draw(size=(n, d)))
    return states


@pytest.fixture(scope="module")
def stepped():
    """Layers 0..5 with one large step from layer 2 to layer 3, measured with intervals."""
    return ls.compare(layers([0.1, 0.1, 2.0, 0.1, 0.1]), measure="cka_debiased", ci=0.95)


def record(result):
    return ls.Record.of("compare", "Layers", {"it": result})


def test_a_large_step_is_found_and_sure(stepped):
    told = similarity(stepped.frame, record(stepped))
    assert "from layer 2 to layer 3" in told[0].text
    assert f"{stepped.values[2, 3]:.3f}" in told[0].text
    assert told[0].sure is True
    assert "n = 400" in told[0].evidence


def test_equal_steps_are_not_sure():
    even = ls.compare(layers([0.5] * 5, n=60), measure="cka_debiased", ci=0.95)
    assert similarity(even.frame, record(even))[0].sure is False


def test_without_intervals_nothing_is_sure():
    plain = ls.compare(layers([0.1, 2.0, 0.1]))
    assert similarity(plain.frame, record(plain))[0].sure is None


def test_a_distance_is_read_the_other_way(stepped):
    far = ls.compare(layers([0.1, 2.0, 0.1]), measure="angular", ci=0.95)
    assert "from layer 1 to layer 2" in similarity(far.frame, record(far))[0].text


def test_two_models_are_set_beside_one_another_layer_by_layer():
    one, base = layers([0.1, 0.1]), np.random.default_rng(5).normal(size=(400, 4))
    both = ls.compare(one, [one[0], one[1], base], measure="cka_debiased", ci=0.95, baseline=40)
    told = similarity(both.frame, record(both))
    assert "least alike in layer 2" in told[0].text
    assert told[0].sure is True
    assert "not shown to share more than chance" in told[1].text
    assert told[1].sure is False


def test_blocks_are_sure_by_their_p_value(stepped):
    split = ls.blocks(stepped, k=2)
    told = blocks(split.frame, record(split))[0]
    assert "2 groups: 0 to 2, 3 to 5" in told.text
    assert told.sure is (None if np.isnan(split.p_value) else bool(split.p_value < 0.05))
    gradual = split.frame.assign(p_value=0.4)
    assert blocks(gradual, record(split))[0].sure is False
    assert "gradual change" in blocks(gradual, record(split))[0].text


def test_a_curve_tells_its_ends():
    frame = pandas.DataFrame({"model": ["m"] * 3, "layer": [1, 2, 3], "influence": [0.3, 0.01, 0.2]})
    made = ls.Record(kind="influence", title="x", figures=[], data={"n": 9})
    told = curve(frame, made)[0]
    assert "lowest in block 2 (0.010) and highest in block 1 (0.300)" in told.text
    assert told.sure is None
    bounded = frame.assign(low=frame["influence"] - 0.001, high=frame["influence"] + 0.001)
    assert curve(bounded, made)[0].sure is True
