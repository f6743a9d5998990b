"""Records: what goes in comes out; what cannot be read is refused with a sentence."""

import json
import shutil
from pathlib import Path

import numpy as np
import pandas
import pyarrow.parquet
import pytest

import layerscope as ls
from layerscope.drawing.figures.table import TableFigure
from layerscope.errors import DataError, InputError
from layerscope.registry import FIGURES
from layerscope.results import Finding, NextStep
from layerscope.results.finding import ANSWER, DETAIL
from layerscope.results.records import CARD, FORMAT, find_records
from tests.helpers.figures import SCRIPT, assert_same_figure, record_of_every_kind


def test_a_record_comes_back_as_it_was(tmp_path):
    record = record_of_every_kind(SCRIPT)
    assert {figure.kind for figure in record.figures} == set(FIGURES)
    found = ls.read_record(ls.write_record(tmp_path / "a" / "record", record))
    for first, second in zip(record.figures, found.figures, strict=True):
        assert_same_figure(first, second)
    for name in ("kind", "title", "command", "created", "seconds", "format"):
        assert getattr(found, name) == getattr(record, name)
    assert list(found.findings) == list(record.findings)
    assert found.models == record.models
    assert (found.data, found.settings, found.versions) == (record.data, record.settings, record.versions)
    heatmap = found.figures[0]
    assert np.array_equal(heatmap.values, record.figures[0].values, equal_nan=True)
    assert heatmap.reasons == record.figures[0].reasons
    assert heatmap.rows == record.figures[0].rows


def test_mixed_columns_of_a_table_become_texts(tmp_path):
    table = TableFigure.from_records(
        [{"a": 1, "b": "x"}, {"a": "one", "b": None}, {"a": None, "b": "y"}], title="t", shows="", reading=""
    )
    record = ls.Record(kind="x", title="x", figures=[table])
    (found,) = ls.read_record(ls.write_record(tmp_path / "record", record)).figures
    assert found.table == {"a": ["1", "one", None], "b": ["x", None, "y"]}


def _link(folder):
    (folder / "001-heatmap.parquet").symlink_to(folder.parent / "x.parquet")


def _repeated(text, times):
    return pyarrow.DictionaryArray.from_arrays(np.zeros(times, dtype=np.int8), [text])


def _write(path, columns):
    pyarrow.parquet.write_table(pyarrow.table(columns), path)


def changed(folder, **changes):
    card = json.loads((folder / CARD).read_text())
    (folder / CARD).write_text(json.dumps({**card, **changes}))


def test_a_record_of_the_format_before_is_still_read(tmp_path):
    """Its findings were sentences alone; its tables say by themselves which results they are of."""
    found = ls.read_record(Path(__file__).parent / "format-2")
    assert found.format == FORMAT - 1 == 2
    assert list(found.findings) == [Finding("A first sentence."), Finding("A second one.")]
    assert {(finding.sure, finding.evidence) for finding in found.findings} == {(None, "")}
    assert found.next is None
    assert found.kinds == {"lm": "score"}
    assert found.frames("score")[0]["score"].tolist() == [9.5]
    page = ls.report(found, tmp_path / "report.html").read_text()
    summary = page[page.index('id="summary"') : page.index("</section>")]
    assert all(finding.text in summary for finding in found.findings)
    assert summary.count("not tested</a>") == 2
    again = ls.read_record(ls.write_record(tmp_path / "record", found))
    assert (again.format, list(again.findings)) == (FORMAT, list(found.findings))


@pytest.mark.parametrize("findings", ["x", [3], [{"text": "x"}], None])
def test_damaged_findings_of_the_format_before_are_a_sentence(tmp_path, findings):
    folder = tmp_path / "record"
    shutil.copytree(Path(__file__).parent / "format-2", folder)
    changed(folder, findings=findings)
    with pytest.raises(DataError, match="is damaged"):
        ls.read_record(folder)


def test_findings_and_the_next_step_come_back(tmp_path):
    findings = [Finding("It is 3.", "n = 5", True, ANSWER), Finding("It may be.", "few rows", False, DETAIL)]
    step = NextStep("advise", ("-o", "advice"), "Test it", ("a",), "seed-0", ("--ci", "0.95"), "layerscope advise a")
    record = ls.Record(kind="x", title="x", figures=[], findings=findings, next=step)
    found = ls.read_record(ls.write_record(tmp_path / "record", record))
    assert list(found.findings) == findings
    assert found.next == step


@pytest.mark.parametrize("version", [FORMAT + 1, 0, "new", None])
def test_another_format_is_refused_with_a_sentence(tmp_path, version):
    folder = ls.write_record(tmp_path / "record", record_of_every_kind())
    changed(folder, record_format=version)
    with pytest.raises(
        DataError, match=rf"format {version!r}, and this version of layerscope reads format {FORMAT}"
    ) as e:
        ls.read_record(folder)
    assert "layerscope compare" in str(e.value)  # how to make it again


@pytest.mark.parametrize(
    ("damage", "sentence"),
    [
        (lambda f: (f / CARD).write_text("{"), "is not JSON"),
        (lambda f: (f / CARD).write_text("[" * 100_000), "nested more than"),
        (lambda f: (f / "001-heatmap.parquet").rename(f.parent / "x.parquet") and _link(f), "only files of a folder"),
        (lambda f: changed(f, tables={"a": "../x.parquet"}), "only a Parquet file beside"),
        (lambda f: changed(f, tables={"a": "x" * 300 + ".parquet"}), "only a Parquet file beside"),
        (lambda f: _write(f / "001-heatmap.parquet", {"value": ["a"] * 4}), "is damaged"),
        (
            lambda f: _write(f / "001-heatmap.parquet", {"value": np.zeros(21_000_000, dtype=np.int8)}),
            "holds 21,000,000 values",
        ),
        (lambda f: _write(f / "001-heatmap.parquet", {"reason": _repeated("x" * 100_000, 10_000)}), "GB of text"),
        (lambda f: changed(f, figures=[{"kind": "heatmap"}]), "is damaged"),
        (lambda f: changed(f, figures=[{"kind": "hologram", "file": "x.parquet"}]), "unknown kind 'hologram'"),
        (lambda f: changed(f, figures=[{"kind": "curve", "file": "../x.parquet"}]), "only a Parquet file beside"),
        (lambda f: (f / "001-heatmap.parquet").unlink(), "missing or damaged"),
        (lambda f: (f / "001-heatmap.parquet").write_bytes(b"PAR1"), "missing or damaged"),
    ],
    ids=[
        *("json", "deep", "link", "table elsewhere", "long name", "texts", "many", "repeated"),
        *("figures", "kind", "path", "missing", "broken"),
    ],
)
def test_damage_is_a_sentence(tmp_path, damage, sentence):
    folder = ls.write_record(tmp_path / "record", record_of_every_kind())
    damage(folder)
    with pytest.raises(DataError, match=sentence):
        ls.read_record(folder)


def test_records_are_found_in_a_folder(tmp_path):
    for name, date in (("late", "2026-02-01"), ("early", "2026-01-01")):
        record = ls.Record(kind="x", title=name, figures=[], created=date)
        ls.write_record(tmp_path / "out" / name, record)
    (tmp_path / "out" / "other").mkdir()
    (tmp_path / "out" / "record.json").write_text('{"score": 1}')  # somebody else's file of that name
    assert [p.name for p in find_records(tmp_path / "out")] == ["early", "late"]
    assert find_records(tmp_path / "out" / "late" / CARD) == [tmp_path / "out" / "late"]
    with pytest.raises(InputError, match="is not a record and holds none"):
        find_records(tmp_path / "out" / "other")
    with pytest.raises(InputError, match="There is no record"):
        find_records(tmp_path / "nowhere")
    with pytest.raises(DataError, match="is not a record"):
        ls.read_record(tmp_path / "out")


def test_only_a_record_is_overwritten(tmp_path):
    record = record_of_every_kind()
    folder = ls.write_record(tmp_path / "record", record)
    ls.write_record(folder, ls.Record(kind="x", title="new", figures=[]))
    assert {p.name for p in folder.iterdir()} == {CARD}
    assert [p.name for p in tmp_path.iterdir()] == ["record"]  # nothing half-written is left
    tuned = tmp_path / "tuned"
    tuned.mkdir()
    (tuned / CARD).write_text('{"score": 1}')
    with pytest.raises(InputError, match="not a record's"):
        ls.write_record(tuned, record)
    photos = tmp_path / "photos"
    photos.mkdir()
    (photos / "cat.jpg").write_text("meow")
    with pytest.raises(InputError, match="is not overwritten"):
        ls.write_record(photos, record)


def arrays():
    draw = np.random.default_rng(0).normal
    return [draw(size=(60, 4)) for _ in range(3)]


def test_a_records_tables_are_those_that_save_writes(tmp_path):
    similarity, labels = ls.compare(arrays()), np.arange(60) % 2
    nu = ls.specialty(ls.Representations.from_arrays(arrays(), labels))
    folder = ls.write_record(tmp_path / "record", ls.Record.of("x", "x", {"cka": similarity, "nu": nu}))
    for name, result in (("cka", similarity), ("nu", nu)):
        saved = result.save(tmp_path / f"{name}.parquet")
        assert saved.read_bytes() == (folder / f"{name}.parquet").read_bytes()
        pandas.testing.assert_frame_equal(ls.read_record(folder).tables[name], result.frame)
    assert ls.Similarity.load(folder / "cka.parquet").values == pytest.approx(similarity.values)


def test_a_figure_whose_columns_are_a_results_has_no_file_of_its_own(tmp_path):
    similarity = ls.compare(arrays(), ci=None)
    folder = ls.write_record(tmp_path / "record", ls.Record.of("x", "x", {"cka": similarity}))
    assert {path.name for path in folder.iterdir()} == {CARD, "cka.parquet", "cka.csv"}
    (figure,) = ls.read_record(folder).figures
    assert_same_figure(figure, similarity.figures()[0])


def test_a_folder_of_the_first_version_is_refused_by_name(tmp_path):
    old = tmp_path / "out" / "compare-run"
    old.mkdir(parents=True)
    card = {"run_format": 1, "kind": "compare", "command": "layerscope compare a --task b"}
    (old / "run.json").write_text(json.dumps(card))
    for read, path in ((ls.read_record, old), (find_records, old), (find_records, tmp_path / "out")):
        with pytest.raises(DataError, match=r"run folder of layerscope 0\.1.*layerscope compare a --task b"):
            read(path)


def test_unfinished_records_are_not_found_and_a_lost_one_comes_back(tmp_path):
    from layerscope.store.atomic import OLD
    from tests.helpers.jobs import abandoned_staging

    record = ls.Record(kind="x", title="a", figures=[])
    ls.write_record(tmp_path / "out" / "record", record)
    for parent in (tmp_path, tmp_path / "out"):
        ls.write_record(abandoned_staging(parent) / "new", record)
    assert find_records(tmp_path) == [tmp_path / "out" / "record"]
    moved = abandoned_staging(tmp_path, 3) / OLD
    moved.mkdir()
    (tmp_path / "out").rename(moved / "out")
    assert find_records(tmp_path / "out") == [tmp_path / "out" / "record"]
