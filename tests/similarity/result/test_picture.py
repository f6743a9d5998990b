"""What is drawn and said of a similarity."""

import numpy as np

import layerscope as ls


def test_what_stands_beside_the_values_is_in_the_figure(reps):
    plain = ls.compare(reps)
    (figure,) = plain.figures()
    assert "--baseline 200 adds what shuffled texts give" in figure.reading
    assert figure.p_value is figure.bias is None
    assert not any("shuffled texts" in str(finding) for finding in plain.findings())
    sim = ls.compare(reps, measure="cka_debiased", ci=0.9, baseline=19)
    figure, above = sim.figures()
    np.testing.assert_array_equal(figure.p_value, sim.p_values)
    np.testing.assert_array_equal(figure.bias, sim.bias)
    assert {"bias", "p_value", "calibrated"} <= set(figure.data())
    assert above.title == "Similarity of layers above chance: cka_debiased"
    np.testing.assert_array_equal(above.values, sim.calibrated)
    restored = type(above).restored(above.words(), above.settings(), above.data())
    np.testing.assert_array_equal(restored.values, above.values)
    said, *others = map(str, sim.findings())
    assert not any("is left above chance" in other for other in others)
    assert said.startswith("The highest cka_debiased is ")
    assert "(p = 0.05)" in said


def test_only_cells_without_a_value_are_hatched(reps):
    """A reason may be of an interval: the value is drawn then."""
    sim = ls.compare(reps.select(layers=[0, 1]))
    sim.reasons[0, 1] = "the interval is undefined: a test"
    assert not sim.plot().patches
    assert "hatched" not in sim.figures()[0].reading
