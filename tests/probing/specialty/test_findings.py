"""Findings of specialty."""

import numpy as np

import layerscope as ls
from layerscope.probing.scores.nu import SpecialtyCurve


def nu(values, p=0.01, p_best=np.nan):
    values, size = np.asarray(values), len(values)
    draws = values + 0.1 * np.random.default_rng(0).normal(size=(40, size))
    bounds = {"low": values - 0.1, "high": values + 0.1, "draws": draws, "best": 1 + int(values[1:].argmin())}
    known = {**bounds, "null": np.full(size, 5.0), "p": np.full(size, p), "p_best": p_best}
    return SpecialtyCurve("nu", ["m"] * size, list(range(size)), values, **known)


def test_real_specialty_of_separated_classes_is_sure():
    draw = np.random.default_rng(0).normal
    labels = np.repeat([0, 1], 40)
    apart = draw(size=(80, 3)) + 4 * labels[:, None]
    reps = ls.Representations.from_arrays([draw(size=(80, 3)), apart, draw(size=(80, 3))], labels=labels)
    told = ls.specialty(reps, ci=0.95, null=99).findings()
    assert told[0].text.startswith("The classes show in layer 1, where nu is ")
    assert told[0].sure is True
    assert told[1].text == "Layer 1 separates the classes best: nu is higher in every other layer."
    assert told[1].sure is True


def test_layers_that_are_copies_up_to_noise_are_never_told_apart():
    labels = np.repeat([0, 1, 2], 40)
    for seed in range(12):
        draw = np.random.default_rng(seed).normal
        apart = draw(size=(120, 4)) + 3 * np.eye(3, 4)[labels]
        layers = [draw(size=(120, 4)), *(apart + 0.1 * draw(size=apart.shape) for _ in range(2))]
        curve = ls.specialty(ls.Representations.from_arrays(layers, labels=labels), ci=0.95, null=40)
        shown, best = curve.findings()[:2]
        assert shown.sure is True  # that the classes show
        assert best.sure is False  # and not where they show best
        assert (
            best.text == f"Layer {curve.best} has the least nu, and cannot be told apart from layer {3 - curve.best}."
        )


def test_the_p_value_is_the_one_that_allows_for_the_choice():
    values = [3.0, 1.0, 2.0]
    assert nu(values, p=0.02).findings()[0].sure is True  # 0.04 at most, for two layers
    (told,) = nu(values, p=0.02, p_best=0.2).findings()
    assert told.sure is False
    assert told.text.startswith("No layer is shown to separate the classes")
    assert told.evidence.startswith("p = 0.2 after allowing for the choice among layers")


def test_a_layer_is_best_where_all_differences_say_so():
    shown, best = nu([3.0, 1.0, 1.1, 2.0]).findings()
    assert shown.text == "The classes show in layer 1, where nu is 1.000, and 5.000 with permuted labels."
    assert best.text == "Layer 1 has the least nu, and cannot be told apart from layer 2."
    assert best.sure is False
    assert nu([3.0, 1.0, 1.9, 2.0]).findings()[1].sure is True
    assert nu([3.0, 1.0, 1.9, 2.0]).findings()[1].evidence.startswith("95% intervals of 2 ratios")


def test_without_permuted_labels_nothing_is_sure():
    plain = SpecialtyCurve("nu", ["m"] * 3, [0, 1, 2], np.array([3.0, 1.0, 2.0]))
    (told,) = plain.findings()
    assert told.sure is None
    assert told.evidence == "no labels were permuted"
    none = SpecialtyCurve("nu", ["m"] * 2, [0, 1], np.array([3.0, np.nan]))
    assert none.findings()[0].text == "nu has no value in any layer."
