"""Words that several results say alike."""

import math

import pandas

from layerscope.drawing.captions import MEANINGS, caveat, heading, listed, numbers, spread


def test_names_are_listed_each_once():
    assert listed(["a"]) == "a"
    assert listed(["a", "b"]) == "a and b"
    assert listed(["a", "b", "a", "c"]) == "a, b and c"


def test_few_rows_are_said_to_be_few():
    assert caveat("", 100) == ""
    assert caveat("Mind this.", 100) == "Mind this."
    assert caveat("held out: other rows", 100) == "Held out: other rows."
    assert caveat("", 99) == "Only 99 rows: expect other rows to give other numbers."
    assert caveat("Mind this.", 5).startswith("Mind this. Only 5 rows")


def test_a_table_says_what_its_columns_are_and_leaves_out_what_is_said_above():
    frame = pandas.DataFrame({"task": ["t", "t"], "n": [5, 5], "layer": [0, 1], "mean_norm": [1.0, 2.0]})
    figure = numbers("Every layer", "In numbers.", frame)
    assert list(figure.table) == ["layer", "mean_norm"]
    assert MEANINGS["mean_norm"] not in figure.reading  # the page says it once, in its glossary
    assert (figure.title, figure.shows) == ("Every layer", "In numbers.")


def test_what_differs_between_rows_stays():
    figure = numbers("t", "s", [{"task": "a", "score": 1.0}, {"task": "b", "score": 2.0}])
    assert figure.table == {"task": ["a", "b"], "score": [1.0, 2.0]}


def test_no_rows_are_no_columns():
    assert numbers("t", "s", []).table == {}


def test_an_interval_stands_after_a_score_where_there_is_one():
    assert spread(0.71, 0.785) == " (0.7100 to 0.7850)"
    assert spread(math.nan, math.nan) == ""


def test_headings_say_what_a_number_is():
    assert heading("best_epoch") == "best epoch"
    assert heading("latency_1_ms") == "ms for 1 text"
    assert heading("latency_32_ms") == "ms for 32 texts"
