"""Figures as data: they survive their columns, and values fit their names."""

import json
import math

import gallery
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from matplotlib.figure import Figure as Canvas

from layerscope.drawing.figure import KINDS, Figure, Side
from layerscope.drawing.figures.curve import CurveFigure, Series
from layerscope.drawing.figures.heatmap import HeatmapFigure
from layerscope.drawing.figures.scatter import Point, ScatterFigure
from layerscope.errors import InputError


def same(a, b):
    """Equal, NaN being equal to NaN."""
    if isinstance(a, float) and isinstance(b, float):
        return a == b or (math.isnan(a) and math.isnan(b))
    if isinstance(a, (list, tuple)) and isinstance(b, (list, tuple)):
        return len(a) == len(b) and all(map(same, a, b))
    if isinstance(a, dict):
        return list(a) == list(b) and all(same(a[k], b[k]) for k in a)
    return a == b


def assert_same(first, second):
    assert type(first) is type(second)
    assert first.words() == second.words()
    assert json.loads(json.dumps(first.settings())) == json.loads(json.dumps(second.settings()))
    assert same(first.data(), second.data())


def test_every_kind_is_found_by_its_file():
    assert list(KINDS) == ["bars", "box", "curve", "heatmap", "scatter", "table"]
    for kind in KINDS:
        assert issubclass(KINDS[kind], Figure)
        assert KINDS[kind].kind == kind


@pytest.mark.parametrize("figure", gallery.every_kind().figures, ids=lambda figure: figure.kind)
def test_every_kind_draws_itself(figure):
    ax = Canvas(figsize=figure.size()).add_subplot()
    figure.draw(ax)
    assert ax.has_data() or figure.kind == "table"


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


@given(st.integers(1, 5), st.integers(1, 5), st.data())
def test_any_heat_map_survives_its_columns(rows, columns, data):
    cells = np.asarray(data.draw(st.lists(values, min_size=rows * columns, max_size=rows * columns)))
    sides = [Side("layer", ("m",) * n, tuple(map(str, range(n)))) for n in (rows, columns)]
    reasons = {(int(i), int(j)): "why" for i, j in np.argwhere(np.isnan(cells.reshape(rows, columns)))}
    shape = {"values": cells.reshape(rows, columns), "rows": sides[0], "columns": sides[1], "reasons": reasons}
    figure = HeatmapFigure(title="t", shows="", reading="", value_name="v", scale=(0.0, 1.0), **shape)
    assert_same(figure, HeatmapFigure.restored(figure.words(), figure.settings(), figure.data()))


def test_values_that_do_not_fit_their_names_are_refused():
    side = Side("layer", ("m",) * 3, ("0", "1", "2"))
    with pytest.raises(InputError, match=r"'t' have shape \(2, 3\); its names ask for \(3, 3\)"):
        HeatmapFigure(
            title="t",
            shows="",
            reading="",
            values=np.zeros((2, 3)),
            rows=side,
            columns=side,
            value_name="v",
            scale=(0, 1),
        )
    with pytest.raises(InputError, match="shape"):
        Series("s", (0.0, 1.0), (0.0,))


def test_lines_to_compare_with_can_be_told_apart():
    lines = (("source alone", 0.5), ("target alone", 0.6), ("most frequent class", 0.3))
    series = (Series("a", (0.0, 1.0), (0.4, 0.5)),)
    curve = CurveFigure(title="", shows="", reading="", series=series, x_name="", y_name="", references=lines)
    ax = Canvas().add_subplot()
    curve.draw(ax)
    drawn = {line.get_label(): line for line in ax.lines}
    assert len({drawn[name].get_linestyle() for name, _ in lines}) == 3


def test_marked_cells_have_rings():
    side = Side("head", ("",) * 3, ("0", "1", "2"))
    words = {"title": "t", "shows": "", "reading": "", "value_name": "v", "scale": (0.0, 1.0)}
    figure = HeatmapFigure(values=np.eye(3), rows=side, columns=side, marked=((0, 0), (1, 2)), **words)
    ax = Canvas().add_subplot()
    figure.draw(ax)
    (rings,) = (c for c in ax.collections if len(c.get_offsets()) == 2)
    assert rings.get_offsets().tolist() == [[0.0, 0.0], [2.0, 1.0]]  # column, row


def test_points_are_named_where_they_are_few():
    points = tuple(Point(k, k, f"p{k}", "s") for k in range(3))
    figure = ScatterFigure(title="t", shows="", reading="", points=points, x_name="x", y_name="y")
    ax = Canvas().add_subplot()
    figure.draw(ax)
    assert {text.get_text() for text in ax.texts} == {"p0", "p1", "p2"}
