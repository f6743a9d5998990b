"""Scatter plots: points in series, named where they are few."""

from matplotlib.figure import Figure as Canvas

from layerscope.drawing.figures.scatter import Point, ScatterFigure


def test_points_are_named_where_they_are_few():
    points = tuple(Point(k, k, f"p{k}", "s") for k in range(3))
    figure = ScatterFigure(title="t", shows="", reading="", points=points, x_name="x", y_name="y")
    ax = Canvas().add_subplot()
    figure.draw(ax)
    assert {text.get_text() for text in ax.texts} == {"p0", "p1", "p2"}
