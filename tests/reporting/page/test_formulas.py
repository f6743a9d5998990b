"""Formulas are MathML, and none is left in ASCII."""

import re
from xml.etree import ElementTree

import numpy as np
import pytest

import layerscope as ls
from layerscope.reporting.page import formulas, typeset
from tests.helpers.cli import ROOT, script

ASCII = re.compile(r"\|_(F|\*)|\|\^2|\b[A-Za-z]'[A-Z]\||\b[A-Za-z]\^[0-9]")


def test_every_stored_formula_is_sound_markup():
    for latex, mathml in formulas().items():
        root = ElementTree.fromstring(mathml)
        assert root.tag.endswith("math"), latex
        assert not any(node.tag.endswith(("script", "annotation-xml")) for node in root.iter())


def test_a_formula_is_typeset_and_all_else_is_escaped():
    text = typeset(r"<b> $\tau$ and $name$ & $5")
    assert text.startswith("&lt;b&gt; <math ")
    assert text.endswith("</math> and $name$ &amp; $5")


def test_the_report_of_a_comparison_typesets_its_measure(tmp_path):
    draw = np.random.default_rng(0).normal
    result = ls.compare([draw(size=(30, 2)), draw(size=(30, 2))])
    page = ls.report(ls.Record.of("compare", "x", {"cka": result}), tmp_path / "r.html").read_text()
    assert (
        formulas()[r"\frac{\lVert X^\top Y \rVert_F^2}{\lVert X^\top X \rVert_F \, \lVert Y^\top Y \rVert_F}"] in page
    )
    assert r"\frac" not in re.sub(r"<script.*?</script>", "", page, flags=re.DOTALL)


def test_every_formula_of_the_pages_and_texts_is_stored():
    assert set(script("docs/formulas.py").all_formulas()) <= set(formulas())


def test_what_is_stored_is_what_the_library_makes():
    converter = pytest.importorskip("latex2mathml.converter", reason="the docs extra is not installed")
    assert {latex: converter.convert(latex) for latex in formulas()} == formulas()


@pytest.mark.parametrize("page", sorted((ROOT / "docs").rglob("*.md")), ids=lambda path: path.name)
def test_no_page_has_a_formula_in_ascii(page):
    formulas = script("docs/formulas.py")
    text = formulas.FORMULA.sub("", formulas.CODE.sub("", page.read_text(encoding="utf-8")))
    assert [line for line in text.splitlines() if ASCII.search(line)] == []


def test_no_text_of_a_result_has_a_formula_in_ascii():
    odd = []
    for file in (ROOT / "src").rglob("*.py"):
        for number, line in enumerate(file.read_text(encoding="utf-8").splitlines(), 1):
            said = line.split("#")[0]
            if '"' in said and re.search(r"\|_(F|\*)|\|\^2", said):
                odd.append(f"{file.name}:{number}: {line.strip()}")
    assert odd == []
