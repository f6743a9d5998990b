"""Grids of panels: what is drawn where, one legend, one colour bar, and reasons in empty panels."""

from dataclasses import replace

import numpy as np
import pytest
from matplotlib.figure import Figure as Canvas

from layerscope.drawing.figures.grid import GridFigure
from layerscope.drawing.render import draw
from layerscope.errors import InputError
from tests.helpers.figures import assert_same_figure, panels


@pytest.fixture(scope="module")
def drawn(tmp_path_factory):
    """The axes of all panels, in rows, and the whole picture."""
    ax = draw(panels("base"), tmp_path_factory.mktemp("grid") / "grid.pdf")
    axes = [part for part in ax.figure.axes if part is not ax]
    return axes[:6], ax.figure


def test_every_panel_has_its_items(drawn):
    (heat, lines, empty, points, boxes, _), canvas = drawn
    image = np.ma.filled(heat.images[0].get_array(), np.nan)
    assert image.shape == (3, 3)
    assert image[1, 2] == 0.5
    assert np.isnan(image[2, 0])
    assert len([patch for patch in heat.patches if patch.get_hatch()]) == 1
    assert [t.get_text() for t in heat.get_yticklabels()] == ["base", "other"]  # two models: names, not layers
    assert list(lines.lines[0].get_ydata()) == [0, 0.5, 1, 1.5]
    twin = next(part for part in canvas.axes if part.get_ylabel() == "probe")
    assert list(twin.lines[0].get_ydata()) == [1, 0.75, 0.5, 0.25]
    assert "rte: it is not" in " ".join(text.get_text() for text in empty.texts)
    assert {t.get_text() for t in points.texts} == {"rho = 1", "(0, 4, 4)", "(1, 4, 4)", "(2, 4, 4)"}
    assert [label.get_text() for label in boxes.get_xticklabels()] == ["1", "2"]


def test_there_is_one_legend_for_all_panels(drawn):
    _, canvas = drawn
    names = [text.get_text() for text in canvas.legends[0].get_texts()]
    assert sorted(names) == ["base", "inn", "most frequent class", "nu", "probe", "strategy"]


def test_a_grid_survives_its_settings():
    figure = panels()
    assert_same_figure(GridFigure.restored(figure.words(), figure.settings(), figure.data()), figure)


def test_a_grid_needs_axes_that_can_be_divided():
    with pytest.raises(InputError, match="needs axes of its own"):
        panels().draw(Canvas().add_axes((0, 0, 1, 1)))


def test_columns_that_show_different_things_have_names_of_their_own():
    names = {"x_names": ("layer", "share", "step"), "y_names": ("nu", "zeta", "score")}
    grid = replace(panels(), **names)
    assert_same_figure(GridFigure.restored(grid.words(), grid.settings(), grid.data()), grid)
    canvas = Canvas()
    grid.draw(canvas.add_subplot())
    lowest = [ax for ax in canvas.axes if ax.get_xlabel()]
    assert [ax.get_xlabel() for ax in lowest] == ["layer", "share", "step"]
    assert [ax.get_ylabel() for ax in lowest] == ["b\nnu", "zeta", "score"]
    assert "x_names" not in panels().settings()
    with pytest.raises(ValueError, match="1 names of axes for 3 columns"):
        replace(panels(), x_names=("layer",))
