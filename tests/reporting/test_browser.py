"""The report in a real browser: Chromium, where there is one."""

import os
import re
import shutil
import subprocess
import time
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from matplotlib import colormaps
from PIL import Image

import layerscope as ls
from layerscope.drawing.figures.curve import CurveFigure, Series
from layerscope.drawing.figures.table import TableFigure
from layerscope.results import Finding, NextStep
from tests.helpers.figures import SCRIPT, degenerate_record, large_study, layer_heatmap, record_of_every_kind

sync_api = pytest.importorskip("playwright.sync_api", reason="playwright is not installed (the dev extra)")
expect = sync_api.expect  # waits: a browser draws when it finds the time
expect.set_options(timeout=30_000)

NAMES = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable")
QUIET = ("--no-sandbox", "--disable-gpu", "--disable-background-networking", "--disable-component-update")


@pytest.fixture(scope="module")
def browser():
    path = os.environ.get("CHROMIUM") or next(filter(None, map(shutil.which, NAMES)), None)
    with sync_api.sync_playwright() as playwright:
        try:
            found = playwright.chromium.launch(executable_path=path, args=QUIET)
        except sync_api.Error as error:
            where = path or "neither on the PATH, nor in CHROMIUM, nor playwright's own"
            pytest.skip(f"there is no Chromium that starts ({where}): {str(error).splitlines()[0]}")
        yield found
        found.close()


class Visit:
    """An opened report, with everything that went wrong on it."""

    def __init__(self, browser, path, **options):
        self.faults, self.requests = [], []
        self.page = browser.new_page(**options)
        self.page.on("console", lambda said: self.faults.append(f"{said.type}: {said.text}"))
        self.page.on("pageerror", lambda error: self.faults.append(str(error)))
        self.page.on("dialog", lambda dialog: (self.faults.append(f"dialog {dialog.message}"), dialog.dismiss()))
        self.page.on("request", lambda request: self.requests.append(request.url))
        self.address = path.resolve().as_uri()
        self.page.goto(self.address)

    def check(self):
        """Nothing was said on the console, nothing popped up, and no request left the file."""
        assert self.faults == []
        assert all(url == self.address or url.startswith("data:") for url in self.requests)


@pytest.fixture(scope="module")
def report(tmp_path_factory):
    records = [record_of_every_kind("base"), record_of_every_kind(SCRIPT)]
    return ls.report(records, tmp_path_factory.mktemp("report") / "report.html")


@pytest.fixture
def visit(browser, report):
    found = Visit(browser, report, viewport={"width": 1300, "height": 900}, color_scheme="light")
    expect(found.page.locator("#record-1 svg.map")).to_have_count(1)
    yield found
    found.check()
    found.page.close()


def test_every_figure_draws(visit):
    page = visit.page
    page.evaluate("dispatchEvent(new Event('beforeprint'))")  # draws what was not in view
    assert page.locator("[data-lazy]").count() == 0
    for kind, mark in (
        ("heatmap", "path.cells"),
        ("heatmap", "path.undefined"),
        ("curve", "path.line"),
        ("box", "rect.box"),
        ("bars", "rect.bar"),
        ("scatter", ".point"),
    ):
        assert page.locator(f".card[data-kind={kind}] .plot svg {mark}").count() >= 2, (kind, mark)
    colours = page.locator("#record-1 path.cells").evaluate_all("nodes => nodes.map(n => n.getAttribute('fill'))")
    assert len(set(colours)) > 10


def test_what_cannot_be_told_from_the_whole_model_is_marked(browser, tmp_path):
    """Rings were drawn in pictures alone, and not on the page."""
    shown = {"shows": "", "reading": "", "n": 300}
    series = (Series("one", (0.0, 1.0, 2.0), (0.3, 0.7, 0.8), hollow=(False, True, False)),)
    words = {"x_name": "layer", "y_name": "accuracy", "hollow": "cannot be told from the whole model"}
    curve = CurveFigure(title="Curve", series=series, **words, **shown)
    ringed = layer_heatmap(("base",), marked=((1, 1), (2, 3)), marked_name="cannot be told from the whole model")
    record = replace(record_of_every_kind("base"), figures=[curve, ringed])
    found = Visit(browser, ls.report([record], tmp_path / "report.html"), viewport={"width": 900, "height": 900})
    page = found.page
    page.evaluate("dispatchEvent(new Event('beforeprint'))")
    expect(page.locator(".card[data-kind=heatmap] .plot rect.ring")).to_have_count(2)
    empty = page.locator(".card[data-kind=curve] .plot .hollow")
    expect(empty).to_have_count(1)
    assert empty.get_attribute("fill") == "var(--paper)"
    box = empty.bounding_box()
    page.mouse.move(box["x"] + box["width"] / 2, box["y"] + box["height"] / 2)
    expect(page.locator("#tip")).to_contain_text("one: 0.7; cannot be told from the whole model")
    page.locator(".card[data-kind=heatmap] .plot rect.ring").first.scroll_into_view_if_needed()
    box = page.locator(".card[data-kind=heatmap] .plot rect.ring").first.bounding_box()
    page.mouse.move(box["x"] + box["width"] / 2, box["y"] + box["height"] / 2)
    expect(page.locator("#tip")).to_contain_text("cannot be told from the whole model")
    found.check()
    page.close()


def test_far_figures_wait(visit):
    assert visit.page.locator("#record-2 .card[data-kind=scatter] .plot svg").count() == 0
    visit.page.locator("#record-2 .card[data-kind=scatter]").scroll_into_view_if_needed()
    visit.page.wait_for_selector("#record-2 .card[data-kind=scatter] .plot svg")


def test_hovering_tells_models_layers_value_interval_and_n(visit):
    page = visit.page
    figure = layer_heatmap(("base", "tuned"))
    svg = page.locator("#record-1 svg.map")
    frame = svg.bounding_box()
    cells = svg.locator("path.cells").evaluate_all(
        "nodes => nodes.flatMap(n => [...n.getAttribute('d').matchAll(/M([\\d.]+) ([\\d.]+)h([\\d.]+)/g)]"
        ".map(m => m.slice(1).map(Number)))"
    )
    left, top, size = min(c[0] for c in cells), min(c[1] for c in cells), cells[0][2]
    # the top left defined cell: the last row (tuned, layer 6) and column 1 (base, layer 1)
    page.mouse.move(frame["x"] + left + size / 2, frame["y"] + top + size / 2)
    for told in (
        "tuned · layer 6",
        "base · layer 1",
        f"cka {figure.values[13, 1]:.4g}",
        f"[{figure.low[13, 1]:.4g}, {figure.high[13, 1]:.4g}]",
        "n = 872",
    ):
        expect(page.locator("#tip")).to_contain_text(told)
    page.mouse.move(frame["x"] + left - size / 2, frame["y"] + top + size / 2)  # layer 0
    for told in ("undefined", "every row is the same"):
        expect(page.locator("#tip")).to_contain_text(told)


def test_measures_and_pairs_switch(visit):
    page = visit.page
    card = page.locator("#record-1-figure-1")
    drawn = "nodes => nodes.map(n => n.getAttribute('fill') + n.getAttribute('d')).join()"
    before = card.locator("path.cells").evaluate_all(drawn)
    card.locator("select[data-facet=measure]").select_option("svcca")
    assert card.locator("path.cells").evaluate_all(drawn) != before
    assert card.locator("svg.map").get_attribute("aria-label").startswith("Similarity of layers: svcca")
    assert card.locator("svg.map path.undefined").get_attribute("d").count("M") == 14 * 14 - 12 * 12
    card.locator("select[data-pair]").select_option(label="tuned \u2013 base")
    assert card.locator("svg.map path.undefined").get_attribute("d").count("M") == 7 * 7 - 6 * 6
    assert "layer of tuned" in card.locator("svg.map").text_content()
    card.locator("select[data-facet=measure]").select_option("cka")
    assert card.locator("select[data-pair]").input_value() == "1,0"  # the pair stays chosen


def test_it_works_by_keyboard(visit):
    page = visit.page
    page.keyboard.press("Tab")
    assert page.evaluate("document.activeElement.className") == "jump"
    svg = page.locator("#record-1 svg.map")
    svg.focus()
    for key in ("ArrowRight", "ArrowRight", "ArrowUp"):
        page.keyboard.press(key)
    for place in ("#tip", "#said"):
        expect(page.locator(place)).to_contain_text("base · layer 1")
    page.mouse.wheel(0, 40)
    page.wait_for_function("scrollY > 0")
    assert page.locator("#tip").is_visible()  # it goes along
    page.keyboard.press("Escape")
    assert page.locator("#tip").is_hidden()
    reached = set()
    page.locator("#theme").focus()
    for _ in range(80):
        page.keyboard.press("Tab")
        reached.add(page.evaluate("document.activeElement.tagName.toLowerCase()"))
    assert {"select", "input", "svg", "button", "summary", "a"} <= reached


def test_tables_sort(visit):
    page = visit.page
    table = page.locator("#record-1 .card[data-kind=table] table")
    column = "rows => rows.map(r => r.cells[2].textContent)"
    button = table.get_by_role("button", name="n", exact=True)
    button.click()
    assert table.locator("tbody tr").evaluate_all(column) == ["12", "1\u2009200"]
    button.click()
    expect(table.locator("th[aria-sort=descending]")).to_have_count(1)
    assert table.locator("tbody tr").evaluate_all(column) == ["1\u2009200", "12"]
    page.locator("#record-1-figure-1 .numbers summary").click()
    expect(page.locator("#record-1-figure-1 .numbers tbody tr")).to_have_count(14 * 14)
    page.locator("#record-1-figure-1 select[data-pair]").select_option("0,1")
    expect(page.locator("#record-1-figure-1 .numbers tbody tr")).to_have_count(7 * 7)


def test_series_can_be_hidden(visit):
    card = visit.page.locator("#record-1 .card[data-kind=curve]")
    card.scroll_into_view_if_needed()
    expect(card.locator("path.line")).to_have_count(2)
    card.get_by_role("button", name="other").click()
    expect(card.locator("path.line")).to_have_count(1)


def test_a_script_in_a_name_stays_text(visit):
    page = visit.page
    page.evaluate("dispatchEvent(new Event('beforeprint'))")
    for box in page.locator("#record-2 .numbers summary").all():
        box.click()
    for svg in page.locator("#record-2 .plot svg").all():
        svg.focus()
        page.keyboard.press("ArrowRight")
    assert page.locator("#record-2-title").inner_text() == f"A record of {SCRIPT}"
    assert page.locator("main script:not([type='application/json'])").count() == 0
    assert f"{SCRIPT} \u2013 tuned" in page.locator("#record-2 select[data-pair]").inner_text()


def test_light_dark_and_a_phone(browser, report):
    for scheme in ("light", "dark"):
        visit = Visit(browser, report, viewport={"width": 375, "height": 700}, color_scheme=scheme)
        page = visit.page
        ground = "getComputedStyle(document.body).backgroundColor.match(/\\d+/g).map(Number)[0]"
        assert (page.evaluate(ground) < 128) == (scheme == "dark")
        page.locator("#theme").click()
        assert (page.evaluate(ground) < 128) == (scheme == "light")
        page.evaluate("dispatchEvent(new Event('beforeprint'))")
        assert page.evaluate("document.documentElement.scrollWidth") <= 375  # nothing sticks out sideways
        widths = page.locator(".plot svg").evaluate_all("nodes => nodes.map(n => n.getBoundingClientRect().width)")
        assert max(widths) <= 375
        visit.check()
        page.close()


def test_next_to_nothing_is_drawn_without_a_fault(browser, tmp_path):
    visit = Visit(browser, ls.report(degenerate_record(), tmp_path / "r.html"), viewport={"width": 900, "height": 700})
    visit.page.evaluate("dispatchEvent(new Event('beforeprint'))")
    assert visit.page.locator("[data-lazy]").count() == 0
    for svg in visit.page.locator(".plot svg").all():
        svg.focus()
        for key in ("ArrowRight", "ArrowUp", "End"):
            visit.page.keyboard.press(key)
        assert "NaN" not in svg.evaluate("node => node.outerHTML")
        assert "Infinity" not in svg.evaluate("node => node.outerHTML")
    visit.check()


def test_a_large_report_is_interactive_in_two_seconds(browser, tmp_path):
    path = ls.report(large_study(), tmp_path / "large.html")
    assert path.stat().st_size < 15e6
    for _ in range(8):  # other tests run beside this one: once is enough
        started = time.perf_counter()
        visit = Visit(browser, path, viewport={"width": 1300, "height": 900})
        card = visit.page.locator("#record-1-figure-1")
        card.locator("select[data-facet=picture]").select_option("FT-FT")
        card.locator("svg.map").hover()
        expect(visit.page.locator("#tip")).to_contain_text("n = 872")
        taken = time.perf_counter() - started
        if taken < 2.0:
            break
        visit.page.close()
    else:
        pytest.fail(f"the page was interactive after {taken:.1f} s, in none of eight tries within two")
    visit.page.locator("#record-12-figure-4").scroll_into_view_if_needed()
    visit.page.wait_for_selector("#record-12-figure-4 svg.map")
    visit.check()


def test_no_name_covers_a_point_and_lines_are_named(visit):
    page = visit.page
    page.evaluate("dispatchEvent(new Event('beforeprint'))")
    names = page.locator("#record-1 .card[data-kind=curve] svg text.name").all_text_contents()
    assert {"base", "other", "layer 4"} <= set(names)
    covered = page.evaluate(
        """() => [...document.querySelectorAll('.plot svg')].flatMap((svg) => {
          const marks = [...svg.querySelectorAll('circle:not(.tip-mark circle), .point')];
          const dots = marks.map((node) => node.getBoundingClientRect());
          return [...svg.querySelectorAll('text.name')].filter((name) => {
            const a = name.getBoundingClientRect();
            const beside = (b) => a.left >= b.right - 1 || b.left >= a.right - 1;
            return dots.some((b) => !beside(b) && a.top < b.bottom - 3 && b.top < a.bottom - 3);
          }).map((name) => name.textContent);
        })"""
    )
    assert covered == []


def test_tables_keep_their_last_column_at_1280_pixels(browser, tmp_path):
    row = {"rule": "angular, deepest, greedy, random", "blocks": "1-3, 5-12", "removed": 4}
    row |= {f"a number {k}": 0.12345 * k for k in range(9)}
    row |= {"parameters": 22_713_216, "macs": 1_434_601_728}
    table = [{**row, "removed": k, "parameters": 10**6 * k} for k in range(5)]
    figure = TableFigure.from_records(table, title="Wide", shows="", reading="")
    path = ls.report(ls.Record(kind="x", title="x", figures=[figure]), tmp_path / "r.html")
    visit = Visit(browser, path, viewport={"width": 1280, "height": 900})
    box = visit.page.locator(".card .scroll")
    assert box.evaluate("n => n.scrollWidth - n.clientWidth") <= 1
    assert box.evaluate("n => getComputedStyle(n).overflowX") == "auto"  # where it is wider still, it scrolls
    visit.check()
    visit.page.close()


def test_a_command_can_be_copied(browser, tmp_path):
    record = ls.Record(kind="x", title="x", figures=[], next=NextStep("tune", line="layerscope tune 'my model'"))
    context = browser.new_context(permissions=["clipboard-read", "clipboard-write"])
    page = context.new_page()
    page.goto(ls.report(record, tmp_path / "r.html").as_uri())
    page.locator("[data-copy]").click()
    expect(page.locator("[data-copy]")).to_have_text("Copied")
    assert page.evaluate("navigator.clipboard.readText()") == "layerscope tune 'my model'"
    context.close()


def test_paper_shows_everything_and_no_controls(visit):
    page = visit.page
    page.emulate_media(media="print")
    page.evaluate("dispatchEvent(new Event('beforeprint'))")
    assert page.locator("[data-lazy]").count() == 0
    for hidden in (".contents", "#theme", ".controls label", ".numbers"):
        assert not page.locator(hidden).first.is_visible()
    assert page.locator("#record-1-provenance dl").is_visible()
    for shown in ("#record-1 th >> nth=0", "#record-1 .legend >> nth=0", "#glossary"):
        assert page.locator(shown).first.is_visible()
    style = "(node, name) => getComputedStyle(node).getPropertyValue(name)"
    assert page.locator("#record-2").evaluate(style, "break-before") == "auto"  # a page is not left half empty
    assert page.locator("#record-1 .card").nth(1).evaluate(style, "break-inside") == "avoid"
    assert page.locator("#record-1 .plot svg").first.get_attribute("viewBox")
    assert len(page.pdf(format="A4")) > 10_000
    page.evaluate("dispatchEvent(new Event('afterprint'))")
    assert page.locator("#record-1-provenance").get_attribute("open") is None
    page.emulate_media(media="screen")


def test_findings_come_first_and_every_one_stands_in_its_section(browser, tmp_path):
    findings = [Finding(f"Finding {k}.", "", None, 1 + k % 3) for k in range(9)]
    records = [replace(record_of_every_kind(f"m{k}"), findings=findings, figures=[]) for k in range(7)]
    visit = Visit(browser, ls.report(records, tmp_path / "r.html"))
    heads = visit.page.locator("#summary h3").all_inner_texts()
    assert heads[:2] == ["What came out", "What was asked"]
    assert visit.page.locator("#summary .told li").count() == 7  # one of each record
    texts = visit.page.locator("#record-7 .findings p").all_inner_texts()
    assert sorted(text.split()[-1] for text in texts) == [f"{k}." for k in range(9)]
    assert texts[0] == "not tested Finding 2."  # the answers first
    visit.check()
    visit.page.close()


@pytest.mark.parametrize("width", [500, 1280])
def test_buttons_are_in_one_line_at_any_width(browser, tmp_path, width):
    step = NextStep("tune", line="layerscope tune path/to/a/model --task sst2 --strategy '(4, 6, L)' -o tuned-model")
    record = replace(record_of_every_kind("base"), next=step)
    visit = Visit(browser, ls.report(record, tmp_path / "r.html"), viewport={"width": width, "height": 900})
    for button in visit.page.locator("button:visible:not(.legend button):not(th button)").all():
        box = button.bounding_box()
        assert box["height"] < 40, button.inner_text()
        assert box["x"] + box["width"] <= width
    assert visit.page.evaluate("document.documentElement.scrollWidth") <= width
    visit.check()
    visit.page.close()


def test_digits_stand_out_from_their_cells(browser, tmp_path):
    values = np.linspace(0, 1, 64).reshape(8, 8)
    figure = layer_heatmap(("m",), 8, values=values, low=None, high=None, reasons={})
    visit = Visit(browser, ls.report(replace(record_of_every_kind("m"), figures=[figure]), tmp_path / "r.html"))
    expect(visit.page.locator("text.digits")).to_have_count(64)
    inks = visit.page.locator("text.digits").evaluate_all("all => all.map((node) => node.style.fill)")
    colours = colormaps["viridis"](values[::1].ravel())
    assert len(set(inks)) == 2

    def luminance(rgb):
        c = np.asarray(rgb[:3])
        return float(np.where(c <= 0.04045, c / 12.92, ((c + 0.055) / 1.055) ** 2.4) @ [0.2126, 0.7152, 0.0722])

    drawn = dict(zip(visit.page.locator("text.digits").all_text_contents(), inks, strict=True))
    for value, cell in zip(values.ravel(), colours, strict=True):
        ink = drawn[f"{value:.2f}".removeprefix("0")]
        light, dark = sorted((luminance(cell), 1.0 if "255" in ink else 0.0), reverse=True)
        assert (light + 0.05) / (dark + 0.05) > 4.4  # 4.5 of the colours as they are drawn, in levels
    visit.page.close()


def test_figures_and_tables_are_saved_from_the_page(visit):
    page = visit.page
    card = page.locator("#record-1 .card[data-kind='curve']").first
    card.scroll_into_view_if_needed()
    expect(card.locator(".plot svg")).to_be_visible()
    with page.expect_download() as download:
        card.get_by_text("Save as SVG").click()
    assert download.value.suggested_filename == "curve-of-base.svg"
    text = Path(download.value.path()).read_text(encoding="utf-8")
    assert text.startswith("<svg")
    assert "accuracy" in text
    assert "var(" not in text
    with page.expect_download() as download:
        page.locator("#record-1 .card[data-kind='table']").get_by_text("Save as CSV").click()
    assert download.value.suggested_filename == "table.csv"
    lines = Path(download.value.path()).read_text(encoding="utf-8").splitlines()
    assert lines[:2] == ["model,score,n,kept", "base,0.9,12.0,yes"]


LONG = "What is seen depends on the texts, on how many there are, and on the rows that nobody looked at. "
POPPLER = pytest.mark.skipif(
    None in (shutil.which("pdftoppm"), shutil.which("pdftotext")),
    reason="pdftoppm and pdftotext look at printed pages, and are not installed (poppler-utils)",
)


def wordy_record(k):
    """A record of one or two figures with as much text as real ones have: findings, how to read it, a note."""
    record = record_of_every_kind(f"model-{k}")
    rows = [{"layer": j, "score": 0.5} for j in range(9 * k)]
    table = TableFigure.from_records(rows, title=f"Rows {k}", shows="Rows.", reading="Read it.")
    figures = [replace(f, reading=LONG * 3, caveat=LONG * 2) for f in record.figures if f.kind != "table"]
    figures = [figures[k % len(figures)], figures[(k + 2) % len(figures)]][: 1 + k % 2]
    figures = [replace(figures[0], title=f"Opening{k}", group="", facets={}), *figures[1:], *([table] if k % 3 else [])]
    findings = [replace(record.findings[0], text=LONG * (1 + (k + j) % 3)) for j in range(1 + k % 4)]
    findings[0] = replace(findings[0], text=f"Beginning{k} {findings[0].text}")
    findings[-1] = replace(findings[-1], text=f"{findings[-1].text} Ending{k}")
    return replace(
        record, title=f"Heading{k}, and what its many words say of models and data", figures=figures, findings=findings
    )


@pytest.fixture(scope="module", params=["A4", "Letter"])
def printed(request, browser, tmp_path_factory):
    """A printed report, its pages as text, and which share of its height each page fills."""
    folder = tmp_path_factory.mktemp("printed")
    report = ls.report([*map(wordy_record, range(12)), record_of_every_kind("last")], folder / "r.html")
    page = browser.new_page(viewport={"width": 1280, "height": 900})
    page.goto(report.as_uri())
    page.pdf(path=folder / "r.pdf", format=request.param)  # the browser itself says that it prints
    page.close()
    words = subprocess.run(["pdftotext", folder / "r.pdf", "-"], check=True, capture_output=True, text=True).stdout
    subprocess.run(["pdftoppm", "-r", "40", "-gray", folder / "r.pdf", folder / "page"], check=True)
    return words.split("\f")[:-1], [filled(path) for path in sorted(folder.glob("page*.pgm"))]


def filled(path):
    """Return how far down a page of 40 dpi what is printed on it reaches; frames of cards reach the end of any page."""
    shades, margin, frame = np.asarray(Image.open(path)), round(14 / 25.4 * 40), round(20 / 25.4 * 40)
    inked = np.flatnonzero((shades[:, frame:-frame] < 245).any(axis=1))
    return (inked.max() - margin) / (len(shades) - 2 * margin)


@POPPLER
def test_no_page_of_paper_is_half_empty(printed):
    pages, shares = printed
    assert len(pages) == len(shares) > 12
    assert min(shares[:-1]) > 0.6, [round(share, 2) for share in shares]


@POPPLER
def test_on_paper_headings_findings_and_first_figures_keep_company(printed):
    pages, _ = printed
    for k in range(12):
        places = {
            word: [place for place, text in enumerate(pages) if f"{word}{k}" in re.findall(r"\w+", text)]
            for word in ("Heading", "Beginning", "Ending", "Opening")
        }
        assert places["Heading"][-1] == places["Beginning"][-1], (k, places)  # the summary has the findings too
        assert places["Ending"][-1] == places["Opening"][0], (k, places)


def test_paper_has_few_pages_and_the_screen_is_as_before(browser, tmp_path):
    records = [record_of_every_kind(f"model-{k}") for k in range(6)]
    visit = Visit(browser, ls.report(records, tmp_path / "r.html"))
    plot = visit.page.locator("#record-1 .card[data-kind=curve] .plot svg")
    plot.scroll_into_view_if_needed()
    before = plot.get_attribute("width")
    printed = visit.page.pdf(format="A4")
    assert 0 < (printed.count(b"/Type /Page\n") or printed.count(b"/Type /Page ")) <= 3 * len(records)
    expect(plot).to_have_attribute("width", before)
    visit.check()
    visit.page.close()
