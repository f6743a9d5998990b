"""Heat maps: any of them survives its columns, and marked cells have rings."""

import numpy as np
from hypothesis import given
from hypothesis import strategies as st
from matplotlib.figure import Figure as Canvas

from layerscope.drawing.figure import HeatmapAxis
from layerscope.drawing.figures.heatmap import HeatmapFigure
from tests.helpers.figures import assert_same_figure

values = st.floats(allow_infinity=False, width=64)


@given(st.integers(1, 5), st.integers(1, 5), st.data())
def test_any_heat_map_survives_its_columns(rows, columns, data):
    cells = np.asarray(data.draw(st.lists(values, min_size=rows * columns, max_size=rows * columns)))
    sides = [HeatmapAxis("layer", ("m",) * n, tuple(map(str, range(n)))) for n in (rows, columns)]
    reasons = {(int(i), int(j)): "why" for i, j in np.argwhere(np.isnan(cells.reshape(rows, columns)))}
    shape = {"values": cells.reshape(rows, columns), "rows": sides[0], "columns": sides[1], "reasons": reasons}
    figure = HeatmapFigure(title="t", shows="", reading="", value_name="v", scale=(0.0, 1.0), **shape)
    assert_same_figure(figure, HeatmapFigure.restored(figure.words(), figure.settings(), figure.data()))


def test_rings_are_explained_in_a_legend():
    side = HeatmapAxis("head", ("",) * 3, ("0", "1", "2"))
    words = {"title": "t", "shows": "", "reading": "", "value_name": "v", "scale": (0.0, 1.0)}
    figure = HeatmapFigure(values=np.eye(3), rows=side, columns=side, marked=((0, 0),), marked_name="alike", **words)
    again = HeatmapFigure.restored(figure.words(), figure.settings(), figure.data())
    assert (again.marked, again.marked_name) == (((0, 0),), "alike")
    ax = Canvas().add_subplot()
    again.draw(ax)
    assert [text.get_text() for text in ax.get_legend().get_texts()] == ["alike"]


def test_marked_cells_have_rings():
    side = HeatmapAxis("head", ("",) * 3, ("0", "1", "2"))
    words = {"title": "t", "shows": "", "reading": "", "value_name": "v", "scale": (0.0, 1.0)}
    figure = HeatmapFigure(values=np.eye(3), rows=side, columns=side, marked=((0, 0), (1, 2)), **words)
    ax = Canvas().add_subplot()
    figure.draw(ax)
    (rings,) = (c for c in ax.collections if len(c.get_offsets()) == 2)
    assert rings.get_offsets().tolist() == [[0.0, 0.0], [2.0, 1.0]]  # column, row
