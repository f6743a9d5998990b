"""Painting: given widths are kept, panels share one scale, names stay text, files are whole or not there."""

from dataclasses import replace

import matplotlib
import pytest
from matplotlib.figure import Figure as Canvas
from matplotlib.image import imread

from layerscope.drawing.figures.curve import CurveFigure, Series
from layerscope.drawing.render import FORMATS, draw, draw_panels, markup, plain, style, wrapped, write
from layerscope.errors import InputError
from tests.helpers.figures import SCRIPT, layer_heatmap


def curve(title="t", name="a"):
    series = (Series(name, (0.0, 1.0), (0.0, 1.0)), Series("b", (0.0, 1.0), (1.0, 0.0)))
    return CurveFigure(title=title, shows="", reading="", series=series, x_name="x", y_name="y")


@pytest.mark.parametrize("width", [2.0, 6.75])
def test_a_given_width_is_kept(width, tmp_path):
    with matplotlib.rc_context({"savefig.dpi": 100}):
        draw(curve(), tmp_path / "a.png", width=width)
    ax = draw(curve(), width=width)
    assert ax.figure.get_size_inches()[0] == pytest.approx(width)
    with style():
        dpi = matplotlib.rcParams["savefig.dpi"]
    assert imread(tmp_path / "a.png").shape[1] == pytest.approx(width * dpi, abs=1)


def test_the_title_may_be_left_out():
    assert draw(curve()).get_title() == "t"
    assert draw(curve(), title=False).get_title() == ""


def test_somebodys_axes_are_painted_into():
    ax = Canvas().add_subplot()
    assert draw(curve(), ax=ax) is ax
    assert len(ax.lines) == 2


def test_the_style_does_not_stay():
    before = dict(matplotlib.rcParams)
    draw(curve())
    markup(curve())
    assert dict(matplotlib.rcParams) == before


def test_panels_share_one_scale_and_one_bar():
    maps = [replace(layer_heatmap(), scale=scale) for scale in ((0.0, 0.5), (-1.0, 0.2))]
    panels = draw_panels([*maps, curve()])
    assert [ax.images[0].get_clim() for ax in panels[:2]] == [(-1.0, 0.5)] * 2
    assert len(panels[0].figure.axes) == 4  # three panels and a bar
    assert maps[0].scale == (0.0, 0.5)
    with pytest.raises(InputError, match="nothing to draw: no figure was given"):
        draw_panels([])


def test_no_name_becomes_markup():
    figure = curve(name=SCRIPT)
    text = markup(figure)
    assert text.startswith("<svg")
    assert "<script" not in text
    assert "<text" not in text  # letters are shapes


def test_dollars_are_no_formulas(tmp_path):
    assert plain("a $x$") == r"a \$x\$"
    draw(curve(title="$\\frac{", name="costs $5 or $x^"), tmp_path / "a.svg")
    markup(curve(title="$\\frac{", name="costs $5 or $x^"))


def test_long_names_are_wrapped_between_words():
    assert wrapped("the quick brown fox", 10) == "the quick\nbrown fox"
    assert wrapped("", 10) == ""
    assert max(map(len, wrapped("a" * 40, 1).split("\n"))) == 8


@pytest.mark.parametrize("ending", FORMATS)
def test_the_same_figure_is_the_same_file(ending, tmp_path):
    for name in ("a", "b"):
        draw(curve(), tmp_path / f"{name}.{ending}")
    one, two = ((tmp_path / f"{name}.{ending}").read_bytes() for name in ("a", "b"))
    assert len(one) > 1000
    assert one == two


def test_places_that_cannot_be_written_are_sentences(tmp_path):
    (tmp_path / "file").write_text("x")
    canvas = draw(curve()).figure
    with pytest.raises(InputError, match=r"a\.png cannot be written: .*; give another path"):
        write(canvas, tmp_path / "file" / "a.png")
    with pytest.raises(InputError, match="no figure format 'gif'; allowed: pdf, svg, png"):
        write(canvas, tmp_path / "a.gif")
    with pytest.raises(InputError, match="no figure format ''"):
        write(canvas, tmp_path / "a")
    assert [path.name for path in tmp_path.iterdir()] == ["file"]


def test_a_figure_is_no_taller_than_a_page():
    from layerscope.drawing.figures.bars import BarsFigure

    names = tuple(map(str, range(200)))
    bars = BarsFigure(title="t", shows="", reading="", names=names, values=(1.0,) * 200, y_name="y")
    assert draw(bars).figure.get_size_inches()[1] == 9.0
