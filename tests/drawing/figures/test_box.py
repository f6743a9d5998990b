"""Boxes: every number is a point; a box is drawn where there are enough of them."""

import math

from matplotlib.figure import Figure as Canvas

from layerscope.drawing.figures.box import BoxFigure
from tests.helpers.figures import assert_same_figure

WORDS = {"title": "t", "shows": "", "reading": "", "y_name": "accuracy"}


def test_boxes_survive_their_columns():
    figure = BoxFigure(**WORDS, boxes={"b": (0.8, 0.9), "a": (0.7, float("nan"))}, references=(("m", 0.5),), n=3)
    again = BoxFigure.restored(figure.words(), figure.settings(), figure.data())
    assert_same_figure(figure, again)
    assert list(again.boxes) == ["b", "a"]


def test_a_name_without_numbers_keeps_its_place():
    figure = BoxFigure(**WORDS, boxes={"b": (), "a": (0.7,)})
    again = BoxFigure.restored(figure.words(), figure.settings(), figure.data())
    assert list(again.boxes) == ["b", "a"]


def test_two_numbers_are_points_and_three_have_a_box():
    nan = float("nan")
    for values, boxes in (((0.1, 0.2), 0), ((0.1, 0.2, nan), 0), ((0.1, 0.2, 0.4), 1)):
        ax = Canvas().add_subplot()
        BoxFigure(**WORDS, boxes={"a": values}).draw(ax)
        points = [line for line in ax.lines if line.get_marker() == "o"]
        assert points[-1].get_xdata().tolist() == [v for v in values if not math.isnan(v)]
        assert (len(ax.lines) > 1) == bool(boxes)


def test_nothing_is_drawn_without_a_fault():
    for boxes in ({}, {"a": (float("nan"),)}):
        ax = Canvas().add_subplot()
        BoxFigure(**WORDS, boxes=boxes).draw(ax)
        assert sum(len(line.get_xdata()) for line in ax.lines) == 0
        assert [label.get_text() for label in ax.get_yticklabels()] == list(boxes)
