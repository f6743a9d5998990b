"""Curves: any of them survives its columns, and lines to compare with can be told apart."""

from alike import assert_same
from hypothesis import given
from hypothesis import strategies as st
from matplotlib.figure import Figure as Canvas

from layerscope.drawing.figures.curve import CurveFigure, Series

values = st.floats(allow_infinity=False, width=64)


@given(st.lists(st.tuples(st.text(max_size=8), st.lists(values, min_size=1, max_size=5)), min_size=1, max_size=4))
def test_any_curves_survive_their_columns(parts):
    series = tuple(
        Series(f"{k} {name}", tuple(map(float, range(len(y)))), tuple(y)) for k, (name, y) in enumerate(parts)
    )
    figure = CurveFigure(title="t", shows="", reading="", series=series, x_name="x", y_name="y")
    again = CurveFigure.restored(figure.words(), figure.settings(), figure.data())
    assert_same(figure, again)
    assert [one.name for one in again.series] == [one.name for one in series]


def test_lines_to_compare_with_can_be_told_apart():
    lines = (("source alone", 0.5), ("target alone", 0.6), ("most frequent class", 0.3))
    series = (Series("a", (0.0, 1.0), (0.4, 0.5)),)
    curve = CurveFigure(title="", shows="", reading="", series=series, x_name="", y_name="", references=lines)
    ax = Canvas().add_subplot()
    curve.draw(ax)
    drawn = {line.get_label(): line for line in ax.lines}
    assert len({drawn[name].get_linestyle() for name, _ in lines}) == 3
