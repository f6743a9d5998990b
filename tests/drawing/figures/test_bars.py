"""Bars: they survive their columns, with and without intervals, and are drawn from the top down."""

import pytest
from matplotlib.figure import Figure as Canvas

from layerscope.drawing.figures.bars import BarsFigure
from layerscope.errors import InputError
from tests.helpers.figures import assert_same_figure

WORDS = {"title": "t", "shows": "", "reading": "", "y_name": "accuracy"}


@pytest.mark.parametrize("extra", [{}, {"low": (0.2, float("nan")), "high": (0.4, 0.7)}, {"references": (("m", 0.5),)}])
def test_bars_survive_their_columns(extra):
    figure = BarsFigure(**WORDS, names=("a", "b"), values=(0.3, 0.6), n=50, **extra)
    assert_same_figure(figure, BarsFigure.restored(figure.words(), figure.settings(), figure.data()))


def test_values_that_do_not_fit_their_names_are_refused():
    with pytest.raises(InputError, match=r"'t' have shape \(1,\); its names ask for \(2,\)"):
        BarsFigure(**WORDS, names=("a", "b"), values=(0.3,))
    with pytest.raises(InputError, match="shape"):
        BarsFigure(**WORDS, names=("a", "b"), values=(0.3, 0.6), low=(0.1,), high=(0.2, 0.3))


def test_the_first_name_is_on_top_and_names_are_text():
    ax = Canvas().add_subplot()
    BarsFigure(**WORDS, names=("$a", "b"), values=(0.3, 0.6), references=(("m", 0.5),)).draw(ax)
    assert [label.get_text() for label in ax.get_yticklabels()] == [r"\$a", "b"]
    assert ax.get_ylim() == (1.5, -0.5)
    assert [patch.get_width() for patch in ax.patches] == [0.3, 0.6]
    assert [text.get_text() for text in ax.get_legend().get_texts()] == ["m"]


def test_more_names_are_a_taller_figure():
    one, ten = (BarsFigure(**WORDS, names=("a",) * k, values=(1.0,) * k) for k in (1, 10))
    assert one.size()[1] < ten.size()[1]
    assert ten.size(3.0)[0] == 3.0
