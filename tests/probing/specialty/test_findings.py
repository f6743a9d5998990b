"""Findings of specialty."""

import numpy as np

import layerscope as ls
from layerscope.probing.specialty import SpecialtyCurve


def nu(values, wins, p=0.01, p_best=np.nan):
    values, size = np.asarray(values), len(values)
    bounds = {"low": values - 0.1, "high": values + 0.1, "wins": np.asarray(wins, float)}
    known = {**bounds, "null": np.full(size, 5.0), "p": np.full(size, p), "p_best": p_best}
    return SpecialtyCurve("nu", ["m"] * size, list(range(size)), values, **known)


def test_real_specialty_of_separated_classes_is_sure():
    draw = np.random.default_rng(0).normal
    labels = np.repeat([0, 1], 40)
    apart = draw(size=(80, 3)) + 4 * labels[:, None]
    reps = ls.Representations.from_arrays([draw(size=(80, 3)), apart, draw(size=(80, 3))], labels=labels)
    told = ls.specialty(reps, ci=0.95, null=99).findings()
    assert told[0].text.startswith("Layer 1 separates the classes best")
    assert told[0].sure is True
    assert told[1].sure is True  # no other layer wins


def test_the_p_value_is_the_one_that_allows_for_the_choice():
    values, wins = [3.0, 1.0, 2.0], [0, 1.0, 0]
    assert nu(values, wins, p=0.02).findings()[0].sure is True  # 0.04 at most, for two layers
    told = nu(values, wins, p=0.02, p_best=0.2).findings()[0]
    assert told.sure is False
    assert told.text.startswith("No layer is shown to separate the classes")
    assert told.evidence.startswith("p = 0.2 after allowing for the choice among layers")


def test_layers_that_win_too_are_not_sure():
    told = nu([3.0, 1.0, 1.1], [0, 0.6, 0.4]).findings()
    assert told[0].text.endswith(
        "layer 1 with the least nu, 1.000, and 5.000 with permuted labels; layer 2 may be as good."
    )
    assert "layer 2 may be as good as layer 1" in told[1].text
    assert told[1].sure is False


def test_without_permuted_labels_nothing_is_sure():
    plain = SpecialtyCurve("nu", ["m"] * 3, [0, 1, 2], np.array([3.0, 1.0, 2.0]))
    (told,) = plain.findings()
    assert told.sure is None
    assert told.evidence == "no labels were permuted"
    none = SpecialtyCurve("nu", ["m"] * 2, [0, 1], np.array([3.0, np.nan]))
    assert none.findings()[0].text == "nu has no value in any layer."
