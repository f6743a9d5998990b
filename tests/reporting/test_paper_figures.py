"""Figures for papers: every format, the asked width, and names that stay names."""

import re
import shutil
import subprocess
from dataclasses import replace

import pytest
from PIL import Image

import layerscope as ls
from layerscope.drawing.figures.table import TableFigure
from layerscope.drawing.render import FORMATS
from layerscope.errors import InputError
from layerscope.reporting.paper_figures import inches_of, slug
from tests.helpers.figures import SCRIPT, degenerate_record, record_of_every_kind


def width_of(path):
    """The width of a figure in inches, as its file says."""
    if path.suffix == ".png":
        with Image.open(path) as image:
            return image.width / image.info["dpi"][0]
    if path.suffix == ".svg":
        return float(re.search(r'<svg[^>]* width="([\d.]+)pt"', path.read_text()).group(1)) / 72
    return float(re.search(rb"/MediaBox \[ ?0 0 ([\d.]+)", path.read_bytes()).group(1)) / 72


def shown_in(folder):
    """The names in a folder, besides that of the folder that the figures lie in."""
    return sorted({path.name for path in folder.iterdir()} - {"paper-figures"})


@pytest.mark.parametrize("format", FORMATS)
def test_every_figure_has_the_asked_width(tmp_path, format):
    record = record_of_every_kind("a $name$ with_dollars")
    files = ls.paper_figures(
        ls.write_record(tmp_path / "record", record), tmp_path / "figures", format=format, width="3.25in"
    )
    assert len(files) == len(record.figures)
    drawn = [path for path in files if path.suffix != ".csv"]
    assert len(drawn) == len(record.figures) - 1
    assert all(path.suffix == f".{format}" for path in drawn)
    for path in drawn:
        assert width_of(path) == pytest.approx(3.25, abs=0.01), path.name
    assert shown_in(tmp_path / "figures") == sorted(path.name for path in files)


def test_next_to_nothing_is_drawn(tmp_path):
    files = ls.paper_figures(degenerate_record(), tmp_path, format="png", width="2in")
    assert len(files) == len(degenerate_record().figures)
    assert all(path.stat().st_size > 1000 for path in files if path.suffix == ".png")


def test_names_stay_text_and_files_repeat(tmp_path):
    record = record_of_every_kind(SCRIPT)
    first = ls.paper_figures(record, tmp_path / "a", format="svg", titles=True)
    second = ls.paper_figures(record, tmp_path / "b", format="svg", titles=True)
    for one, other in zip(first, second, strict=True):
        assert one.read_bytes() == other.read_bytes()
    svg = [path.read_text() for path in first if path.suffix == ".svg"]
    assert all("<script" not in text for text in svg)
    assert any("&lt;script&gt;alert(1)&lt;/script&gt;" in text for text in svg)
    table = next(path for path in first if path.suffix == ".csv")
    assert table.read_text().splitlines()[0] == "model,score,n,kept"


@pytest.mark.parametrize(
    ("text", "inches"), [("6.75in", 6.75), ("8cm", 3.1496), ("85mm", 3.3465), (4, 4.0), ("3", 3.0)]
)
def test_widths(text, inches):
    assert inches_of(text) == pytest.approx(inches, abs=1e-3)


@pytest.mark.parametrize("text", ["wide", "0in", "100in", "-3in", "1.2.3in", ""])
def test_no_width(text):
    with pytest.raises(InputError, match="not a width of 1 to 40 inches"):
        inches_of(text)


def test_mistakes_are_sentences(tmp_path):
    record = record_of_every_kind()
    with pytest.raises(InputError, match="no figure format 'gif'"):
        ls.paper_figures(record, tmp_path, format="gif")
    (tmp_path / "file").write_text("")
    with pytest.raises(InputError, match="is a file"):
        ls.paper_figures(record, tmp_path / "file")
    assert slug("Überschrift / <b>") == "berschrift-b"
    assert slug("???") == "figure"


def test_several_formats_in_one_call(tmp_path):
    record = record_of_every_kind()
    files = ls.paper_figures(record, tmp_path, format="svg, png,svg")
    assert len(files) == len(set(files)) == 2 * len(record.figures) - 1  # a table is a table once
    assert shown_in(tmp_path) == sorted(path.name for path in files)


def test_two_records_of_one_kind_do_not_overwrite_each_other(tmp_path):
    record = record_of_every_kind()
    for name in ("one", "two"):
        ls.write_record(tmp_path / name / "compare-record", record)
    files = ls.paper_figures(tmp_path, tmp_path / "figures", format="svg")
    assert len(set(files)) == 2 * len(record.figures)


def test_a_facet_that_the_title_says_is_not_said_again(tmp_path):
    figure = replace(
        record_of_every_kind().figures[0], title="Similarity: cka", facets={"measure": "cka", "task": "rte"}
    )
    [path] = ls.paper_figures(ls.Record(kind="compare", title="", figures=[figure]), tmp_path, format="svg")
    assert path.name == "compare-01-similarity-cka-rte.svg"


@pytest.mark.parametrize("kind", ["../../pwn", "/tmp/pwn", "..", "a/b", "a\\b", "x" * 500, "\n", "."])
def test_a_record_does_not_choose_where_figures_are_written(kind, tmp_path):
    out = tmp_path / "deep" / "er" / "figures"
    table = TableFigure.from_records([{"a": "=1"}], title=kind, shows="", reading="", facets={"f": kind})
    folder = ls.write_record(tmp_path / "record", ls.Record(kind=kind, title=kind, figures=[table]))
    (written,) = ls.paper_figures(folder, out)
    assert written.parent == out
    assert written.read_text() == "a\n'=1\n"
    assert {path.name for path in tmp_path.iterdir()} == {"record", "deep"}
    assert shown_in(out) == [written.name]


def test_kinds_that_become_one_name_do_not_overwrite_each_other(tmp_path):
    table = TableFigure.from_records([{"a": 1}], title="t", shows="", reading="")
    for k, kind in enumerate(("a", "A", "a!")):
        ls.write_record(tmp_path / "all" / str(k), ls.Record(kind=kind, title="t", figures=[table]))
    assert len(set(ls.paper_figures(tmp_path / "all", tmp_path / "figures"))) == 3


def test_figures_of_several_calls_share_a_folder_with_files_of_others(tmp_path):
    record, out = record_of_every_kind(), tmp_path / "figures"
    out.mkdir()
    (out / "mine.pdf").write_text("mine")
    first = ls.paper_figures(replace(record, figures=record.figures[:2]), out, format="svg")
    first[0].unlink()
    first[0].write_text("of an earlier version, which made no links")
    second = ls.paper_figures(replace(record, kind="other", figures=record.figures[:1]), out, format="svg")
    assert shown_in(out) == sorted(["mine.pdf", *(path.name for path in (*first, *second))])
    assert first[0].read_text().startswith("of an earlier version")
    third = ls.paper_figures(replace(record, figures=record.figures[:1]), out, format="svg")
    assert third == first[:1]
    assert "<svg" in first[0].read_text()
    assert all(path.is_symlink() for path in (*first, *second))
    assert (out / "mine.pdf").read_text() == "mine"
    with pytest.raises(InputError, match="names that begin with"):
        ls.paper_figures(record, tmp_path / ".layerscope-figures")


def test_files_are_called_after_the_folders_of_their_records(tmp_path):
    record = replace(record_of_every_kind(), kind="truncate")
    for name in ("alpha", "beta"):
        ls.write_record(tmp_path / "two" / name / "truncate-record", record)
    ls.write_record(tmp_path / "two" / "mine-record", record)
    files = ls.paper_figures(tmp_path / "two", tmp_path / "figures", format="svg")
    assert {path.name.split("-01-")[0] for path in files if "-01-" in path.name} == {
        "alpha-truncate",
        "beta-truncate",
        "mine-truncate",
    }
    (first, *_) = ls.paper_figures(tmp_path / "two" / "beta", tmp_path / "one", format="svg")
    assert first.name.startswith("truncate-01-")


def compiled(folder):
    """The text that pdflatex says while it sets figures.tex of a folder, which must not fail."""
    if (program := shutil.which("pdflatex")) is None:
        pytest.skip("pdflatex is not installed")
    document = "\\documentclass{article}\\usepackage{graphicx,booktabs}\\begin{document}\\input{figures}\\end{document}"
    (folder / "paper.tex").write_text(document)
    command = [program, "-interaction=nonstopmode", "-halt-on-error", "paper.tex"]
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True, errors="replace", check=False)
    assert done.returncode == 0, done.stdout[-3000:]
    assert (folder / "paper.pdf").is_file()
    return done.stdout


def test_latex_includes_every_figure_and_table_with_its_caption(tmp_path):
    record = record_of_every_kind()
    files = ls.paper_figures(record, tmp_path, format="tex", width="85mm")
    assert files[-1] == tmp_path / "figures.tex"
    assert {path.suffix for path in files} == {".pdf", ".csv", ".tex"}
    text = files[-1].read_text(encoding="utf-8")
    for path in files:
        if path.suffix == ".pdf":
            assert f"\\includegraphics{{{path.name}}}" in text
            assert f"\\label{{fig:{path.stem}}}" in text
    assert text.count("\\caption{") == len(record.figures)
    assert r"\caption{Table. Numbers.}" in text
    assert "model & score & n & kept \\\\\n\\midrule\nbase & 0.9 & 12 & yes \\\\\nb & -- & 1200 & no \\\\" in text
    compiled(tmp_path)


HOSTILE = "a_b 100% $x$ {~^} \\input{/etc/passwd} #1 & <b> | [0] *x --limit Überfüße ł ν² 中文 🙂 ΐ e\u0301"


def test_no_name_is_read_as_a_command_of_latex(tmp_path):
    rows = [{HOSTILE: "[1, 2]", "score": -0.5, "none": None, "empty": ""}, {HOSTILE: HOSTILE, "score": 1e-9}]
    rows[1] |= {"none": float("nan"), "empty": ""}
    table = TableFigure.from_records(rows, title=HOSTILE, shows=HOSTILE, reading="", facets={"task": HOSTILE + "x"})
    heat = record_of_every_kind(HOSTILE).figures[0]
    files = ls.paper_figures(ls.Record(kind="x", title=HOSTILE, figures=[table, heat]), tmp_path, format="tex")
    text = files[-1].read_text(encoding="utf-8")
    assert (
        r"a\_b 100\% \$x\$ \{\textasciitilde{}\textasciicircum{}\} \textbackslash{}input\{/etc/passwd\} \#1 \&" in text
    )
    assert r"-{}-limit \"{U}berf\"{u}\ss{}e \l{} $\nu$$^{2}$ {[}U+4E2D]{[}U+6587] {[}U+1F642] {[}U+0390] \'{e}" in text
    assert r"{[}1, 2] & $-$0.5 \\" in text
    assert " & none" not in text
    assert "empty" not in text
    assert "root:" not in compiled(tmp_path)


def test_a_long_table_is_cut_and_says_where_the_rest_is(tmp_path):
    many = TableFigure.from_records(
        [{"k": k, "wide": "w " * 80} for k in range(100)], title="Many", shows="", reading=""
    )
    nothing = TableFigure.from_records([{"a": None}], title="Nothing", shows="", reading="")
    record = ls.Record(kind="x", title="x", figures=[many] * 25 + [nothing, *degenerate_record().figures])
    files = ls.paper_figures(record, tmp_path, format="tex")
    text = files[-1].read_text(encoding="utf-8")
    assert "Many. The first 30 of 100 rows; all of them are in x-01-many.csv." in text
    assert "29 & w w" in text
    assert "30 & w w" not in text
    assert "Nothing" not in text
    assert text.count("\\begin{table}") == 25
    compiled(tmp_path)


def test_formats_can_be_joined_with_latex(tmp_path):
    files = ls.paper_figures(record_of_every_kind(), tmp_path, format="png,tex")
    assert {path.suffix for path in files} == {".pdf", ".png", ".csv", ".tex"}
    with pytest.raises(InputError, match="no figure format 'gif'; allowed: pdf, svg, png, tex"):
        ls.paper_figures(record_of_every_kind(), tmp_path, format="gif")
