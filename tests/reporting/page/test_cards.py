"""Cards: which figures share a place, and how much of the page they take."""

from layerscope.drawing.figures.table import TableFigure
from layerscope.reporting.page import Card, cards
from tests.helpers.figures import record_of_every_kind


def table(rows, columns):
    records = [{f"c{k}": k + row for k in range(columns)} for row in range(rows)]
    return Card("t", [TableFigure.from_records(records, title="t", shows="", reading="")])


def test_a_table_of_one_row_and_many_columns_stands_upright():
    assert table(1, 20).upright
    assert not table(1, 20).wide
    assert not table(1, 3).upright
    assert table(2, 20).wide
    assert not table(2, 20).upright


def test_a_group_has_its_own_title_and_a_figure_its_own():
    group, alone, *_ = cards(record_of_every_kind().figures)
    assert group.title == "Similarity of layers"
    assert alone.title == "Curve of base"
    assert not alone.upright
