"""The HTML report as text: complete in itself, every name escaped, small."""

import json
import re
from dataclasses import replace
from html.parser import HTMLParser

import numpy as np
import pytest

import layerscope as ls
from layerscope.drawing.captions import MEANINGS, numbers
from layerscope.errors import InputError
from layerscope.models.sources import short_names
from layerscope.reporting.page import MOST_QUESTIONS, brief, cards, embedded, spell
from tests.helpers.figures import SCRIPT, large_study, record_of_every_kind


class Page(HTMLParser):
    """What a browser would see: elements, and the text of every script."""

    def __init__(self, text):
        super().__init__()
        self.tags, self.links, self.scripts, self.words = [], [], [], []
        self._inside = None
        self.feed(text)

    def handle_starttag(self, tag, attributes):
        self.tags.append(tag)
        attributes = dict(attributes)
        self.links += [v for k, v in attributes.items() if k in ("src", "href", "action", "poster", "data")]
        if tag == "script":
            self._inside = attributes.get("type", "script")

    def handle_endtag(self, tag):
        if tag == "script":
            self._inside = None

    def handle_data(self, data):
        if self._inside is not None:
            self.scripts.append((self._inside, data))
        else:
            self.words.append(data)


@pytest.fixture
def page(tmp_path):
    return ls.report(record_of_every_kind(SCRIPT), tmp_path / "report.html").read_text()


def test_a_script_in_a_name_stays_text(page):
    found = Page(page)
    assert [kind for kind, _ in found.scripts].count("script") == 1  # ours
    assert not any("alert(1)" in text for kind, text in found.scripts if kind == "script")
    assert any(SCRIPT in word for word in found.words)  # the parser undoes the escape
    assert "<script>alert" not in page
    data = [json.loads(text) for kind, text in found.scripts if kind == "application/json"]
    titles = [figure["title"] for part in data if isinstance(part, dict) for figure in part["figures"]]
    assert f"Curve of {SCRIPT}" in titles


def test_nothing_is_asked_of_a_network(page):
    found = Page(page)
    assert all(link.startswith(("#", "data:")) for link in found.links)
    assert not re.search(r"url\((?!#)|@import", page)
    policy = re.search(r'Content-Security-Policy" content="([^"]*)"', page).group(1)
    assert policy.startswith("default-src")
    assert "script-src &#39;sha256-" in policy or "script-src 'sha256-" in policy


def test_words_provenance_and_tables_need_no_script(page):
    text = " ".join(Page(page).words)
    for word in (
        "What is drawn.",
        "How it is read.",
        "What to keep in mind.",
        "ab" * 16,
        "cd" * 16,
        "2.13.0",
        "12.5 s",
    ):
        assert word in text
    assert page.count('<article class="card') == 7  # the two heat maps take turns in one place
    assert "1\u2009200" in text
    assert 'data-value="1200.0"' in page


def test_the_page_begins_with_what_was_asked_what_came_out_and_what_to_do(tmp_path):
    draw = np.random.default_rng(0).normal
    result = ls.compare([draw(size=(60, 3)) for _ in range(8)], names=["mine"])
    model = {"name": SCRIPT, "class": "BertModel"}
    parts = {"cka": result, "cka-blocks": ls.layer_blocks(result, k=2)}
    made = ls.Record.of("compare", "Layers", parts, command="layerscope compare x --task 'a b'")
    page = ls.report(replace(made, models=[model], data={"task": "t"}), tmp_path / "r.html").read_text()
    summary = page[page.index('id="summary"') : page.index('id="record-1"')]
    said = " ".join(Page(summary).words)
    assert f"Which layers of {short_names([SCRIPT])[0]} represent the same thing on t?" in said
    assert "2 blocks, cut before layer " in said
    assert {"not sure", "not tested"} & set(re.findall(r'data-sure="([^"]*)"', summary))
    assert "layerscope compare x --task 'a b' --ci 0.95 --baseline 200" in said
    assert page.index('id="summary"') < page.index('id="record-1"') < page.index('id="glossary"')


def test_many_questions_are_counted(tmp_path):
    records = [ls.Record(kind="x", title=f"Question {k}", figures=[]) for k in range(20)]
    page = ls.report(records, tmp_path / "r.html").read_text()
    asked = page[page.index('class="asked"') : page.index("</ul>", page.index('class="asked"'))]
    assert asked.count("<li>") == MOST_QUESTIONS + 1
    assert "and 8 more: see the contents." in asked


def test_every_link_of_the_page_leads_somewhere(page):
    places = set(re.findall(r' id="([^"]+)"', page))
    assert {link.removeprefix("#") for link in Page(page).links if link.startswith("#")} <= places


def test_what_columns_mean_stands_once(tmp_path):
    table = [{"layer": k, "macs": k, "low": 0.1} for k in range(3)]
    figures = [numbers(f"Table {k}", "It shows.", table) for k in range(4)]
    page = ls.report(ls.Record(kind="x", title="x", figures=figures), tmp_path / "r.html").read_text()
    assert page.count(f"<dd>{MEANINGS['macs'][:1].upper()}{MEANINGS['macs'][1:]}.</dd>") == 1
    assert page.count('href="#term-macs"') == 4


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (22713216, "22.71\u2009M"),
        (1.5e9, "1.5\u2009G"),
        (float("nan"), "\u2013"),
        (0.123456, "0.123"),
        (1234.5, "1234"),
        (True, "yes"),
        (None, ""),
    ],
)
def test_values_as_a_narrow_cell_shows_them(value, text):
    assert brief(value) == text


def test_undefined_cells_keep_their_reason(page):
    figures = next(json.loads(t) for kind, t in Page(page).scripts if kind == "application/json")["figures"]
    first = figures[0]
    assert first["values"][0] is None
    assert first["reasons"][first["why"]["0"]] == "every row is the same, so nothing varies"
    assert len(first["values"]) == 14 * 14
    assert "NaN" not in json.dumps(figures)


@pytest.mark.parametrize("text", ["</script><b>", "<!--", "\u2028", "a & b", "\\", '"', "$name$", "{{ 7 * 7 }}"])
def test_any_text_may_stand_in_a_script_element(text):
    inside = embedded({"name": text})
    assert not set("<>&\u2028\u2029") & set(inside)
    assert json.loads(inside)["name"] == text


def test_figures_of_one_group_take_turns():
    record = record_of_every_kind()
    found = cards(record.figures)
    assert [len(card.figures) for card in found] == [2, 1, 1, 1, 1, 1, 1]
    assert found[0].facets == {"measure": ["cka", "svcca"]}
    assert found[1].facets == {}


def test_templates_in_names_are_not_run(tmp_path):
    text = ls.report(record_of_every_kind("{{ 7 * 7 }}"), tmp_path / "r.html").read_text()
    assert "A record of {{ 7 * 7 }}" in text


def test_a_large_report_stays_small(tmp_path):
    path = ls.report(large_study(), tmp_path / "large.html")
    assert path.stat().st_size < 15e6


def test_mistakes_are_sentences(tmp_path):
    record = record_of_every_kind()
    with pytest.raises(InputError, match="is a folder"):
        ls.report(record, tmp_path)
    with pytest.raises(InputError, match="nothing to report"):
        ls.report([], tmp_path / "r.html")
    with pytest.raises(InputError, match="There is no record"):
        ls.report(tmp_path / "none", tmp_path / "r.html")
    (tmp_path / "file").write_text("")
    with pytest.raises(InputError, match="cannot be written"):
        ls.report(record, tmp_path / "file" / "r.html")
    assert not (tmp_path / "r.html").exists()


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (None, ""),
        (float("nan"), "undefined"),
        (True, "yes"),
        (22713216, "22\u2009713\u2009216"),
        (0.123456, "0.1235"),
        (float("-inf"), "-inf"),
        (1234567.8, "1\u2009234\u2009567"),
        ([1, 2], "1, 2"),
        ("a", "a"),
    ],
)
def test_values_as_people_read_them(value, text):
    assert spell(value) == text


def test_a_kind_that_the_script_does_not_know_is_a_still_picture(tmp_path, monkeypatch):
    monkeypatch.setattr("layerscope.reporting.page.DRAWN", ("heatmap",))
    figure = next(f for f in record_of_every_kind(SCRIPT).figures if f.kind == "bars")
    text = ls.report(ls.Record(kind="x", title="x", figures=[figure]), tmp_path / "r.html").read_text()
    assert '<div class="still"><svg' in text
    assert SCRIPT not in text


def test_a_page_that_no_browser_shows_is_a_sentence(tmp_path, monkeypatch):
    monkeypatch.setattr("layerscope.reporting.page.MOST_VALUES", 100)
    with pytest.raises(InputError, match=r"more than 100 values in their figures .* report fewer of them"):
        ls.report(record_of_every_kind(), tmp_path / "page.html")
    assert list(tmp_path.iterdir()) == []


def test_a_place_that_no_disk_takes_is_a_sentence(tmp_path):
    with pytest.raises(InputError, match="a name in a path may have at most 255 bytes"):
        ls.report(record_of_every_kind(), tmp_path / ("x" * 300))
