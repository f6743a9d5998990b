"""From a table to examples: columns are guessed where that is safe, bad rows are counted and placed."""

import pandas
import pytest

import layerscope as ls
from layerscope.errors import DataError
from tests.helpers.data import write_table


@pytest.mark.parametrize(
    ("columns", "expected"),
    [
        ({"sentence1": ["a b"], "sentence2": ["c d"], "label": [1]}, "pair"),
        ({"premise": ["a b"], "hypothesis": ["c d"], "gold": [1]}, "pair"),
        ({"id": ["7"], "comment": ["a b"], "label": [1]}, "single"),
        ({"words": [["a", "b"]]}, "single"),
    ],
)
def test_columns_are_guessed_where_only_one_reading_is_possible(columns, expected):
    task = ls.task(pandas.DataFrame(columns))
    assert task.kind == expected
    assert task.split().texts[0] == "a b"


def test_columns_that_could_be_read_two_ways_are_asked_for():
    frame = pandas.DataFrame({"title": ["a b"], "body": ["c d"]})
    with pytest.raises(DataError, match=r"not clear; it has 'title', 'body'.*text='\.\.\.'"):
        ls.task(frame).split()
    assert ls.task(frame, text="body").split().texts == ["c d"]
    assert ls.task(frame, text="title", text_pair="body").split().pairs == ["c d"]


def test_columns_that_are_not_there_are_named_with_the_near_ones(tmp_path):
    path = write_table(tmp_path / "a.csv", header=("review", "stars"))
    with pytest.raises(
        DataError, match=r"no column 'reveiw' for the text; it has 'review', 'stars'. Did you mean 'review'"
    ):
        ls.task(path, text="reveiw").split()
    with pytest.raises(DataError, match="no column 'star' for the label"):
        ls.task(path, text="review", label="star").split()


def test_choices_are_a_column_of_lists_or_several_columns():
    lists = pandas.DataFrame({"text": ["q r"], "endings": [["a", "b", "c"]], "label": [2]})
    assert ls.task(lists, choices="endings").split().choices == [["a", "b", "c"]]
    columns = pandas.DataFrame({"text": ["q r"], "x": ["a"], "y": ["b"], "label": [1]})
    task = ls.task(columns, text="text", choices=["x", "y"])
    assert task.kind == "choice"
    assert task.split().choices == [["a", "b"]]


def bad_csv(tmp_path):
    path = tmp_path / "bad.csv"
    path.write_text('text,label\ngood,1\n,0\n"two\nlines",0\ntoo,many,fields\nfine,\nlast,1\n')
    return path


def test_bad_rows_are_counted_and_placed(tmp_path):
    with pytest.raises(DataError) as error:
        ls.task(bad_csv(tmp_path)).split()
    message = str(error.value)
    assert "3 of 6 rows" in message
    assert "line 3, column 'text': the text is missing" in message
    assert "line 6: 3 fields where the header has 2" in message
    assert "line 7, column 'label': the label is missing" in message
    assert "skip_bad=True" in message


def test_bad_rows_are_left_out_on_request_and_the_others_keep_their_numbers(tmp_path, caplog):
    examples = ls.task(bad_csv(tmp_path), skip_bad=True).split()
    assert list(examples.texts) == ["good", "two\nlines", "last"]
    assert examples.rows.tolist() == [0, 2, 5]
    assert examples.skipped == 3
    assert "3 of 6 rows" in caplog.text
