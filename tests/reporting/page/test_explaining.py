"""What was explained above is not explained again."""

from layerscope.drawing.captions import MEANINGS
from layerscope.drawing.figures.curve import CurveFigure, Series
from layerscope.reporting.page import Link, cards, explained, sentences, terms, without_constants

LONG = "Each cell is one pair of layers, and bright is more alike."


def figure(title, reading, caveat="", group=""):
    series = (Series("a", (0.0,), (1.0,)),)
    words = {"title": title, "shows": "", "reading": reading, "caveat": caveat, "group": group}
    return CurveFigure(**words, series=series, x_name="x", y_name="y", facets={"m": title} if group else {})


def test_a_repeated_sentence_becomes_a_link():
    made = cards([figure("One", f"{LONG} Up is better."), figure("Two", f"{LONG} Dashed lines are cuts.", LONG)])
    told = explained(made)
    first, second = (told[card.name][0] for card in made)
    assert first.reading == f"{LONG} Up is better."
    assert first.reading_links == ()
    assert second.reading == "Dashed lines are cuts."
    assert second.reading_links == second.caveat_links == (Link(made[0].name, "One"),)
    assert second.caveat == ""


def test_figures_that_take_turns_each_say_all():
    made = cards([figure("One", LONG, group="g"), figure("Two", LONG, group="g")])
    assert [words.reading for words in explained(made)[made[0].name]] == [LONG, LONG]


def test_a_short_sentence_is_easier_to_read_than_a_link():
    made = cards([figure("One", "Lower is better."), figure("Two", "Lower is better.")])
    assert explained(made)[made[1].name][0].reading == "Lower is better."


def test_sentences_end_where_they_end():
    assert sentences("A 0.5 share, e.g. of rows. Then more! And 3.") == [
        "A 0.5 share, e.g. of rows.",
        "Then more!",
        "And 3.",
    ]


def test_columns_are_explained_once():
    assert terms([{"macs": [1], "mine": [2]}, {"macs": [1], "low": [0]}]) == {
        "low": MEANINGS["low"],
        "macs": MEANINGS["macs"],
    }


def test_what_is_the_same_in_every_row_stands_above_a_wide_table():
    wide = {f"c{k}": [k, k] for k in range(7)} | {"own": [1, 2]}
    columns, same = without_constants(wide, 6)
    assert list(columns) == ["own"]
    assert same == {f"c{k}": k for k in range(7)}
    narrow = {"a": [1, 1], "b": [1, 2]}
    assert without_constants(narrow, 6) == (narrow, {})
