import numpy as np
import pytest

import layerscope as ls


@pytest.fixture
def reps():
    generator = np.random.default_rng(0)
    x = generator.normal(size=(300, 8))
    rotated = x @ np.linalg.qr(generator.normal(size=(8, 8)))[0]
    return ls.Representations.from_arrays([x, x + 0.1 * generator.normal(size=x.shape), rotated])


def test_it_is_the_difference_of_two_means(reps):
    curve = ls.localization(reps)
    for layer in range(3):
        others = [k for k in range(3) if k != layer]
        neuron = np.mean([ls.measure("neuron")(reps[layer], reps[k]) for k in others])
        svcca = np.mean([ls.measure("svcca")(reps[layer], reps[k]) for k in others])
        assert curve.values[layer] == pytest.approx(neuron - svcca, abs=1e-5)
    assert curve.layers == [0, 1, 2]
    # A rotation keeps what is represented and spreads it over the neurons: the rotated layer is the least localized.
    assert np.argmin(curve.values) == 2


def test_undefined_layers_are_left_out_of_the_means(reps):
    with_constant = ls.Representations.from_arrays([np.ones((300, 2)), reps[0], reps[1], reps[2]])
    curve = ls.localization(with_constant)
    assert np.isnan(curve.values[0])
    assert curve.provenance["undefined"].startswith("localization has no value in layer 0: every row is the same")
    np.testing.assert_allclose(curve.values[1:], ls.localization(reps).values, atol=1e-6)


def test_several_sets_and_the_authors_standardisation(reps, tmp_path):
    both = ls.localization([reps, reps.select(layers=[0, 2])], names=["a", "b"])
    assert both.models == ["a", "a", "a", "b", "b"]
    assert len(both.frame) == 5
    assert ls.localization(reps, standardize=True).values.mean() == pytest.approx(0, abs=1e-9)
    both.plot(tmp_path / "curve.png")
    assert (tmp_path / "curve.png").stat().st_size > 1000


def test_both_means_are_over_the_same_layers(reps):
    """A layer as wide as there are rows has neuron similarities and no SVCCA: it counts in neither mean."""
    generator = np.random.default_rng(0)
    few = ls.Representations.from_arrays([*(reps[k][:20] for k in range(3)), generator.normal(size=(20, 40))])
    found = ls.localization(few, keep=1.0)
    assert np.isnan(found.values[3])
    np.testing.assert_allclose(found.values[:3], ls.localization(few.select(layers=[0, 1, 2]), keep=1.0).values)


def test_what_it_does_not_have_is_refused(reps):
    for name, value in (("b", reps), ("ci", 0.9), ("measure", "cka")):
        with pytest.raises(TypeError, match=name):
            ls.localization(reps, **{name: value})


def test_means_that_are_the_same_cannot_be_standardised(reps):
    """Of two layers the mean SVCCA is one number: its z-scores would be those of rounding."""
    assert np.isnan(ls.localization(reps.select(layers=[0, 2]), standardize=True).values).all()
