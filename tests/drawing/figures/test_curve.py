"""Curves: any of them survives its columns, and lines to compare with can be told apart."""

from hypothesis import given
from hypothesis import strategies as st
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure as Canvas

from layerscope.drawing.figures.curve import CurveFigure, Series
from tests.helpers.figures import assert_same_figure

values = st.floats(allow_infinity=False, width=64)


@given(st.lists(st.tuples(st.text(max_size=8), st.lists(values, min_size=1, max_size=5)), min_size=1, max_size=4))
def test_any_curves_survive_their_columns(parts):
    series = tuple(
        Series(f"{k} {name}", tuple(map(float, range(len(y)))), tuple(y)) for k, (name, y) in enumerate(parts)
    )
    figure = CurveFigure(title="t", shows="", reading="", series=series, x_name="x", y_name="y")
    again = CurveFigure.restored(figure.words(), figure.settings(), figure.data())
    assert_same_figure(figure, again)
    assert [one.name for one in again.series] == [one.name for one in series]


def test_empty_points_survive_and_are_explained_in_the_legend():
    part = Series("a", (0.0, 1.0, 2.0), (0.4, 0.5, 0.5), hollow=(False, True, False))
    words = {"title": "t", "shows": "", "reading": "", "x_name": "layer", "y_name": "y"}
    figure = CurveFigure(series=(part,), hollow="cannot be told", **words)
    again = CurveFigure.restored(figure.words(), figure.settings(), figure.data())
    assert_same_figure(figure, again)
    assert again.series[0].hollow == (False, True, False)
    ax = drawn(figure)
    (empty,) = [line for line in ax.lines if line.get_label() == "_empty"]
    assert empty.get_xydata().tolist() == [[1.0, 0.5]]
    assert empty.get_markerfacecolor() == "white"
    assert [text.get_text() for text in ax.get_legend().get_texts()] == ["cannot be told"]
    earlier = {name: column for name, column in figure.data().items() if name != "hollow"}  # as 0.1 wrote it
    assert CurveFigure.restored(figure.words(), CurveFigure(series=(part,), **words).settings(), earlier).hollow == ""


def test_lines_to_compare_with_can_be_told_apart():
    lines = (("source alone", 0.5), ("target alone", 0.6), ("most frequent class", 0.3))
    series = (Series("a", (0.0, 1.0), (0.4, 0.5)),)
    curve = CurveFigure(title="", shows="", reading="", series=series, x_name="", y_name="", references=lines)
    ax = Canvas().add_subplot()
    curve.draw(ax)
    drawn = {line.get_label(): line for line in ax.lines}
    assert len({drawn[name].get_linestyle() for name, _ in lines}) == 3


def curves(count, **more):
    series = tuple(Series(f"line {k}", (0.0, 1.0, 2.0), (1.0 + k, 2.0 + k, 3.0 + k)) for k in range(count))
    return CurveFigure(title="t", shows="", reading="", series=series, x_name="layer", y_name="y", **more)


def drawn(figure):
    canvas = Canvas(figsize=(5.6, 3.4), layout="constrained")
    FigureCanvasAgg(canvas)
    ax = canvas.add_subplot()
    figure.draw(ax)
    canvas.draw_without_rendering()
    return ax


def test_lines_are_named_in_the_picture_and_many_in_a_legend():
    few = drawn(curves(3))
    assert {text.get_text() for text in few.texts} == {"line 0", "line 1", "line 2"}
    assert few.get_legend() is None
    many = drawn(curves(9))
    assert many.get_legend() is not None
    assert not many.texts


def test_names_of_lines_and_levels_cover_no_point_and_no_other_name():
    figure = curves(3, references=(("the whole model", 3.0),), marks=(("layer 1", 1.0),))
    ax = drawn(figure)
    boxes = [text.get_window_extent() for text in ax.texts]
    assert len(boxes) == 5
    points = [(x, y) for series in figure.series for x, y in zip(series.x, series.y, strict=True)]
    for x, y in ax.transData.transform(points):
        assert not any(box.contains(x, y) for box in boxes)
    assert not any(a.overlaps(b) for k, a in enumerate(boxes) for b in boxes[:k])


def test_layers_have_whole_numbers():
    ticks = drawn(curves(1)).get_xticks()
    assert all(tick == int(tick) for tick in ticks)


def test_an_axis_of_powers_of_ten_survives_its_settings():
    figure = curves(2, log=True)
    assert CurveFigure.restored(figure.words(), figure.settings(), figure.data()).log
    assert "log" not in curves(2).settings()  # as it was before there was such an axis
    assert drawn(figure).get_yscale() == "log"
