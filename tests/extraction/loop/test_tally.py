"""What of the texts is not read is counted and said."""

import pandas
import pytest

import layerscope as ls
from layerscope.extraction.encoding import encode
from layerscope.extraction.loop import Tally, cut_texts, note_cut, note_left_out, note_unread
from layerscope.extraction.pooling import Reading
from tests.helpers.models import save_random

LONG = "a b c d e f g h i j k l"


@pytest.fixture
def model(tmp_path):
    return ls.load(save_random(tmp_path, "bert"))


def test_tallies_add_up():
    tally = Tally(rows=1, truncated=2, words_left_out=3)
    tally.add(Tally(rows=10, truncated=20, words_left_out=30))
    assert tally == Tally(rows=11, truncated=22, words_left_out=33)


def test_a_text_counts_once_however_many_models_or_choices_are_cut_off(model):
    frame = pandas.DataFrame(
        {"text": ["a", "b", "c"], "x": [LONG, "d", "e"], "y": [LONG, "d", LONG], "label": [0, 1, 0]}
    )
    examples = ls.task(frame, text="text", choices=["x", "y"], label="label").split()
    items = encode(model, examples, Reading(max_length=8))
    assert len(items) == 6
    assert cut_texts(examples, [items, items]) == 2
    assert cut_texts(examples, [encode(model, examples, Reading(max_length=64))]) == 0


def test_the_limit_that_is_named_is_the_least_of_all(model, caplog):
    examples = ls.task(pandas.DataFrame({"text": ["a", LONG]})).split()
    note_unread(Tally(truncated=1, words_left_out=2), examples, [model], 10**6)
    assert [record.getMessage() for record in caplog.records] == [
        f"1 of 2 texts of table are cut off at {model.positions} tokens.",
        "2 words are left out: they are cut off or have no token.",
    ]


def test_where_all_is_read_nothing_is_said(model, caplog):
    note_unread(Tally(rows=2), ls.task(pandas.DataFrame({"text": ["a"]})).split(), [model], 8)
    note_cut(0, 2, "data", 8)
    note_left_out(0)
    assert not caplog.records
