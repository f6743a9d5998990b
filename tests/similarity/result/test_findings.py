"""Findings of comparisons, from real similarities of arrays."""

import numpy as np
import pytest

import layerscope as ls


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


def test_a_large_step_is_found_and_sure(stepped):
    told = stepped.findings()
    assert "from layer 2 to layer 3" in told[0].text
    assert f"{stepped.values[2, 3]:.3f}" in told[0].text
    assert told[0].sure is True
    assert "n = 400" in told[0].evidence


def test_equal_steps_are_not_sure():
    even = ls.compare(layers([0.5] * 5, n=60), measure="cka_debiased", ci=0.95)
    assert even.findings()[0].sure is False


def test_without_intervals_nothing_is_sure():
    plain = ls.compare(layers([0.1, 2.0, 0.1]))
    assert plain.findings()[0].sure is None


def test_a_distance_is_read_the_other_way(stepped):
    far = ls.compare(layers([0.1, 2.0, 0.1]), measure="angular", ci=0.95)
    assert "from layer 1 to layer 2" in far.findings()[0].text


def test_two_models_are_set_beside_one_another_layer_by_layer():
    one, base = layers([0.1, 0.1]), np.random.default_rng(5).normal(size=(400, 4))
    both = ls.compare(one, [one[0], one[1], base], measure="cka_debiased", ci=0.95, baseline=40)
    above, *told = both.findings()
    assert "is left above chance" in above.text
    assert above.sure is (both.best.p_value < 0.05)
    assert "less alike in layer 2" in told[0].text
    assert told[0].sure is True
    assert "not shown to share more than chance" in told[1].text
    assert told[1].sure is False


def test_a_comparison_gets_intervals_first_and_then_goes_on(stepped):
    step = stepped.next_step()
    assert (step.command, step.again) == ("compare", ("--baseline", "200"))
    known = ls.compare(layers([0.1, 0.1]), baseline=20)
    assert known.next_step().command == "specialty"
    described = [{"name": name, "class": name} for name in ("BertModel", "BertForSequenceClassification")]
    known.provenance = {**known.provenance, "models": described}
    assert known.next_step().command == "truncate"
    assert known.next_step().models == ("BertForSequenceClassification",)


def test_steps_of_layers_that_are_copies_up_to_noise_are_not_sure():
    for seed in range(5):
        draw = np.random.default_rng(seed).normal
        base = draw(size=(300, 4))
        copies = [base + 0.5 * draw(size=base.shape) for _ in range(4)]
        assert ls.compare(copies, measure="cka_debiased", ci=0.95).findings()[0].sure is False
