"""A curve: a table, a figure, and which layer it points to."""

import numpy as np

from layerscope.results import Curve, Result


def curve(**options):
    return Curve("nu", ["a"] * 3 + ["b"] * 2, [0, 1, 2, 0, 1], np.array([3.0, 1.0, np.nan, 4.0, 2.0]), **options)


def test_the_table_has_the_value_under_its_name():
    frame = curve().frame
    assert list(frame) == ["model", "layer", "nu"]
    assert frame["layer"].tolist() == [0, 1, 2, 0, 1]
    assert np.isnan(frame["nu"][2])


def test_intervals_and_wins_are_columns_where_they_are_known():
    ones = np.ones(5)
    assert list(curve(low=ones, high=ones + 1, wins=ones / 5).frame) == ["model", "layer", "nu", "low", "high", "wins"]


def test_every_model_is_a_series_and_the_best_layer_is_marked():
    (figure,) = curve(best=1, low=np.zeros(5), high=np.full(5, 9.0)).figures()
    assert [series.name for series in figure.series] == ["a", "b"]
    assert figure.series[1].x == (0.0, 1.0)
    assert figure.series[1].low == (0.0, 0.0)
    assert figure.marks == (("layer 1", 1.0),)
    (figure,) = curve().figures()
    assert figure.marks == ()
    assert figure.series[0].low is None


def test_words_are_those_given():
    (figure,) = curve(words={"title": "Specialty", "caveat": "few rows"}).figures()
    assert (figure.title, figure.caveat, figure.shows) == ("Specialty", "few rows", "nu of every layer.")


def test_a_curve_is_a_result(tmp_path):
    assert isinstance(curve(), Result)
    assert repr(curve(best=1)) == "Curve(nu of layers 0..1, best 1)"
    assert "best" not in repr(curve())
    curve().plot(tmp_path / "nu.png")
    assert (tmp_path / "nu.png").stat().st_size > 1000


def test_a_curve_says_why_layers_have_no_value():
    curve = Curve("nu", ["m"] * 3, [0, 1, 2], np.array([np.nan, 1.0, np.nan]), words={"caveat": "Few rows."})
    curve.explain_gaps("nothing varies there")
    assert curve.provenance["undefined"] == "nu has no value in layers 0, 2: nothing varies there."
    assert curve.figures()[0].caveat == "nu has no value in layers 0, 2: nothing varies there. Few rows."
    whole = Curve("nu", ["m"], [1], np.array([1.0]))
    whole.explain_gaps("nothing varies there")
    assert "undefined" not in whole.provenance


def test_a_curve_tells_its_ends():
    values = np.array([0.3, 0.01, 0.2])
    words = {"words": {"x_name": "block"}, "provenance": {"data": {"n": 9}}}
    (told,) = Curve("influence", ["m"] * 3, [1, 2, 3], values, **words).findings()
    assert "lowest in block 2 (0.010) and highest in block 1 (0.300)" in told.text
    assert told.sure is None
    assert told.evidence == "no interval was measured, n = 9"
    bounds = {"low": values - 0.001, "high": values + 0.001}
    assert Curve("influence", ["m"] * 3, [1, 2, 3], values, **bounds).findings()[0].sure is None
    noise = np.random.default_rng(0).normal(size=(20, 3))
    measured = [{"draws": values + 0.01 * noise}, {"left_out": values + 0.01 / 19 * noise}]
    for each in measured:
        assert Curve("influence", ["m"] * 3, [1, 2, 3], values, **bounds, **each).findings()[0].sure is True
    far = {"draws": values + 0.1 * noise}  # block 3 may be the highest too
    assert Curve("influence", ["m"] * 3, [1, 2, 3], values, **bounds, **far).findings()[0].sure is False
    assert Curve("nu", ["m"], [1], np.array([np.nan])).findings() == []
