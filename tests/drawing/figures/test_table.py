"""Tables: columns of one type for Parquet, numpy's numbers as Python's, and no more rows than fit."""

import numpy as np
from matplotlib.figure import Figure as Canvas

from layerscope.drawing.figures.table import TableFigure
from tests.helpers.figures import assert_same_figure

WORDS = {"title": "t", "shows": "", "reading": ""}


def test_numbers_of_numpy_are_pythons():
    table = TableFigure.from_records([{"a": np.float32(0.5), "b": np.int64(3), 7: "x"}], **WORDS).table
    assert table == {"a": [0.5], "b": [3], "7": ["x"]}
    assert [type(values[0]) for values in table.values()] == [float, int, str]


def test_a_column_has_one_type():
    given = {"whole": [1, 2.5, None], "mixed": [1, "one", None], "flags": [True, False, None], "empty": [None] * 3}
    data = TableFigure(**WORDS, table=given).data()
    assert data["whole"] == [1.0, 2.5, None]
    assert data["mixed"] == ["1", "one", None]
    assert data["flags"] == [True, False, None]
    assert data["empty"] == [None] * 3


def test_a_table_survives_its_columns():
    figure = TableFigure.from_records([{"a": 1, "b": "x"}, {"a": 2, "b": None}], **WORDS)
    assert_same_figure(figure, TableFigure.restored(figure.words(), figure.settings(), figure.data()))


def test_no_records_are_an_empty_table():
    figure = TableFigure.from_records([], **WORDS)
    assert figure.data() == {}
    figure.draw(Canvas().add_subplot())


def test_a_long_table_is_drawn_in_part():
    ax = Canvas().add_subplot()
    TableFigure.from_records([{"a": k / 3} for k in range(100)], **WORDS).draw(ax)
    cells = ax.tables[0].get_celld()
    assert len(cells) == 31  # a heading and thirty rows
    assert cells[2, 0].get_text().get_text() == "0.3333"


def test_dollar_signs_in_a_table_are_no_formula(tmp_path):
    from layerscope.drawing.render import draw

    figure = TableFigure.from_records([{"$\\frac{$": "$\\frac{$"}], title="t", shows="", reading="")
    draw(figure, tmp_path / "table.png")
    assert (tmp_path / "table.png").stat().st_size > 1000
