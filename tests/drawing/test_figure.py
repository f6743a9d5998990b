"""Figures as data: kinds are found by their files, and values fit their names."""

import numpy as np
import pytest
from matplotlib.figure import Figure as Canvas

from layerscope.drawing.figure import Figure, HeatmapAxis
from layerscope.drawing.figures.curve import Series
from layerscope.drawing.figures.heatmap import HeatmapFigure
from layerscope.errors import InputError
from layerscope.registry import FIGURES
from tests.helpers.figures import record_of_every_kind


def test_every_kind_is_found_by_its_file():
    assert list(FIGURES) == ["bars", "box", "curve", "grid", "heatmap", "scatter", "table"]
    for kind in FIGURES:
        assert issubclass(FIGURES[kind], Figure)
        assert FIGURES[kind].kind == kind


@pytest.mark.parametrize("figure", record_of_every_kind().figures, ids=lambda figure: figure.kind)
def test_every_kind_draws_itself(figure):
    ax = Canvas(figsize=figure.size()).add_subplot()
    figure.draw(ax)
    assert ax.has_data() or figure.kind in ("table", "grid")


def test_values_that_do_not_fit_their_names_are_refused():
    side = HeatmapAxis("layer", ("m",) * 3, ("0", "1", "2"))
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
