"""Texts and tables in LaTeX."""

import pytest

from layerscope.reporting.latex import tabular, tex


@pytest.mark.parametrize(
    ("text", "written"),
    [
        ("50 % of a_b & c", r"50 \% of a\_b \& c"),
        ("\\end{document}", r"\textbackslash{}end\{document\}"),
        ("--limit and a---b", "-{}-limit and a-{}-{}-b"),
        ("one\n two", "one two"),
        ("nu \u03bd, R\u00b2, 3 \u00b1 1", r"nu $\nu$, R$^{2}$, 3 $\pm$ 1"),
        ("Ren\u00e9e and Rene\u0301e", r"Ren\'{e}e and Ren\'{e}e"),
        ("\u4e2d", "{[}U+4E2D]"),
    ],
)
def test_a_text_shows_as_it_is(text, written):
    assert tex(text) == written


def test_empty_columns_are_left_out_and_numbers_stand_right():
    table = {"model_name": ["a", "b"], "score": [0.123456, None], "gone": [None, float("nan")], "n": [-3, 10]}
    written = tabular(table)
    assert r"\begin{tabular}{lrr}" in written
    assert r"model name & score & n \\" in written
    assert "a & 0.1235 & $-$3 \\\\\nb & -- & 10 \\\\" in written
    assert tabular({"gone": [None]}) == tabular({}) == ""
