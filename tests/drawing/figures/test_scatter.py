"""Scatter plots: points in series, named where they are few."""

from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure as Canvas

from layerscope.drawing.figures.scatter import Point, ScatterFigure


def test_points_are_named_where_they_are_few():
    points = tuple(Point(k, k, f"p{k}", "s") for k in range(3))
    figure = ScatterFigure(title="t", shows="", reading="", points=points, x_name="x", y_name="y")
    ax = Canvas().add_subplot()
    figure.draw(ax)
    assert {text.get_text() for text in ax.texts} == {"p0", "p1", "p2"}


def test_the_name_of_the_chosen_point_covers_no_other_and_ticks_are_whole():
    crowd = tuple(Point(x, y, "", "others") for x in range(5) for y in range(5))
    points = (*crowd, Point(2, 2, "the chosen one", "chosen"))
    figure = ScatterFigure(
        title="t", shows="", reading="", points=points, x_name="tuned layers", y_name="y", stressed=("chosen",)
    )
    canvas = Canvas(figsize=(5.6, 3.4), layout="constrained")
    FigureCanvasAgg(canvas)
    ax = canvas.add_subplot()
    figure.draw(ax)
    canvas.draw_without_rendering()
    name = next(text for text in ax.texts if text.get_text() == "the chosen one").get_window_extent()
    assert not any(name.contains(x, y) for x, y in ax.transData.transform([(p.x, p.y) for p in points]))
    assert all(tick == int(tick) for tick in ax.get_xticks())


def test_an_axis_of_powers_of_ten_survives_its_settings():
    points = tuple(Point(k, 10.0**k, f"p{k}", "s") for k in range(3))
    figure = ScatterFigure(title="t", shows="", reading="", points=points, x_name="x", y_name="y", log=True)
    assert ScatterFigure.restored(figure.words(), figure.settings(), figure.data()) == figure
    ax = Canvas().add_subplot()
    figure.draw(ax)
    assert ax.get_yscale() == "log"
