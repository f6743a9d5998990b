"""Run folders: what goes in comes out; what cannot be read is refused with a sentence."""

import json
import math

import gallery
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import layerscope as ls
from layerscope.errors import DataError, InputError
from layerscope.report.runs import CARD, FORMAT, find_runs
from layerscope.report.values import KINDS, CurveFigure, HeatmapFigure, Series, Side, TableFigure


def same(a, b):
    """Equal, NaN being equal to NaN."""
    if isinstance(a, float) and isinstance(b, float):
        return a == b or (math.isnan(a) and math.isnan(b))
    if isinstance(a, (list, tuple)) and isinstance(b, (list, tuple)):
        return len(a) == len(b) and all(map(same, a, b))
    if isinstance(a, dict):
        return list(a) == list(b) and all(same(a[k], b[k]) for k in a)
    return a == b


def assert_same(first, second):
    assert type(first) is type(second)
    assert first.words() == second.words()
    assert json.loads(json.dumps(first.settings())) == json.loads(json.dumps(second.settings()))
    assert same(first.data(), second.data())


def test_a_run_comes_back_as_it_was(tmp_path):
    run = gallery.every_kind(gallery.SCRIPT)
    assert {figure.kind for figure in run.figures} == set(KINDS)
    found = ls.read_run(ls.write_run(tmp_path / "a" / "run", run))
    for first, second in zip(run.figures, found.figures, strict=True):
        assert_same(first, second)
    for name in ("kind", "title", "command", "created", "seconds", "format"):
        assert getattr(found, name) == getattr(run, name)
    assert list(found.findings) == list(run.findings)
    assert found.models == run.models
    assert (found.data, found.settings, found.versions) == (run.data, run.settings, run.versions)
    heatmap = found.figures[0]
    assert np.array_equal(heatmap.values, run.figures[0].values, equal_nan=True)
    assert heatmap.reasons == run.figures[0].reasons
    assert heatmap.rows == run.figures[0].rows


values = st.floats(allow_infinity=False, width=64)


@given(st.lists(st.tuples(st.text(max_size=8), st.lists(values, min_size=1, max_size=5)), min_size=1, max_size=4))
def test_any_curves_survive_their_columns(parts):
    series = tuple(
        Series(f"{k} {name}", tuple(map(float, range(len(y)))), tuple(y)) for k, (name, y) in enumerate(parts)
    )
    figure = CurveFigure(title="t", shows="", reading="", series=series, x_name="x", y_name="y")
    again = CurveFigure.restored(figure.words(), figure.settings(), figure.data())
    assert_same(figure, again)
    assert [one.name for one in again.series] == [one.name for one in series]


@given(st.integers(1, 5), st.integers(1, 5), st.data())
def test_any_heat_map_survives_its_columns(rows, columns, data):
    cells = np.asarray(data.draw(st.lists(values, min_size=rows * columns, max_size=rows * columns)))
    sides = [Side("layer", ("m",) * n, tuple(map(str, range(n)))) for n in (rows, columns)]
    reasons = {(int(i), int(j)): "why" for i, j in np.argwhere(np.isnan(cells.reshape(rows, columns)))}
    shape = {"values": cells.reshape(rows, columns), "rows": sides[0], "columns": sides[1], "reasons": reasons}
    figure = HeatmapFigure(title="t", shows="", reading="", value_name="v", scale=(0.0, 1.0), **shape)
    assert_same(figure, HeatmapFigure.restored(figure.words(), figure.settings(), figure.data()))


def test_values_that_do_not_fit_their_names_are_refused():
    side = Side("layer", ("m",) * 3, ("0", "1", "2"))
    with pytest.raises(InputError, match=r"'t' have shape \(2, 3\); its names ask for \(3, 3\)"):
        HeatmapFigure(
            title="t",
            shows="",
            reading="",
            values=np.zeros((2, 3)),
            rows=side,
            columns=side,
            value_name="v",
            scale=(0, 1),
        )
    with pytest.raises(InputError, match="shape"):
        Series("s", (0.0, 1.0), (0.0,))


def test_mixed_columns_of_a_table_become_texts(tmp_path):
    table = TableFigure.of(
        [{"a": 1, "b": "x"}, {"a": "one", "b": None}, {"a": None, "b": "y"}], title="t", shows="", reading=""
    )
    run = ls.RunRecord(kind="x", title="x", figures=[table])
    (found,) = ls.read_run(ls.write_run(tmp_path / "run", run)).figures
    assert found.table == {"a": ["1", "one", None], "b": ["x", None, "y"]}


def changed(folder, **changes):
    card = json.loads((folder / CARD).read_text())
    (folder / CARD).write_text(json.dumps({**card, **changes}))


@pytest.mark.parametrize("version", [FORMAT + 1, 0, "new", None])
def test_another_format_is_refused_with_a_sentence(tmp_path, version):
    folder = ls.write_run(tmp_path / "run", gallery.every_kind())
    changed(folder, run_format=version)
    with pytest.raises(
        DataError, match=rf"format {version!r}, and this version of layerscope reads 1 to {FORMAT}"
    ) as e:
        ls.read_run(folder)
    assert "layerscope compare" in str(e.value)  # how to make it again


@pytest.mark.parametrize(
    ("damage", "sentence"),
    [
        (lambda f: (f / CARD).write_text("{"), "cannot be read"),
        (lambda f: changed(f, figures=[{"kind": "heatmap"}]), "is damaged"),
        (lambda f: changed(f, figures=[{"kind": "hologram", "file": "x.parquet"}]), "unknown kind 'hologram'"),
        (lambda f: changed(f, figures=[{"kind": "curve", "file": "../x.parquet"}]), "only a Parquet file beside"),
        (lambda f: (f / "001-heatmap.parquet").unlink(), "missing or damaged"),
        (lambda f: (f / "001-heatmap.parquet").write_bytes(b"PAR1"), "missing or damaged"),
    ],
    ids=["json", "figures", "kind", "path", "missing", "broken"],
)
def test_damage_is_a_sentence(tmp_path, damage, sentence):
    folder = ls.write_run(tmp_path / "run", gallery.every_kind())
    damage(folder)
    with pytest.raises(DataError, match=sentence):
        ls.read_run(folder)


def test_runs_are_found_in_a_folder(tmp_path):
    for name, date in (("late", "2026-02-01"), ("early", "2026-01-01")):
        run = ls.RunRecord(kind="x", title=name, figures=[], created=date)
        ls.write_run(tmp_path / "out" / name, run)
    (tmp_path / "out" / "other").mkdir()
    (tmp_path / "out" / "run.json").write_text('{"score": 1}')  # a training run's record is not ours
    assert [p.name for p in find_runs(tmp_path / "out")] == ["early", "late"]
    assert find_runs(tmp_path / "out" / "late" / CARD) == [tmp_path / "out" / "late"]
    with pytest.raises(InputError, match="is no run folder and holds none"):
        find_runs(tmp_path / "out" / "other")
    with pytest.raises(InputError, match="There is no run folder"):
        find_runs(tmp_path / "nowhere")
    with pytest.raises(DataError, match="is not a run folder"):
        ls.read_run(tmp_path / "out")


def test_only_a_run_folder_is_overwritten(tmp_path):
    run = gallery.every_kind()
    folder = ls.write_run(tmp_path / "run", run)
    ls.write_run(folder, ls.RunRecord(kind="x", title="new", figures=[]))
    assert {p.name for p in folder.iterdir()} == {CARD}
    assert [p.name for p in tmp_path.iterdir()] == ["run"]  # nothing half-written is left
    tuned = tmp_path / "tuned"
    tuned.mkdir()
    (tuned / CARD).write_text('{"score": 1}')
    with pytest.raises(InputError, match="not a run folder's"):
        ls.write_run(tuned, run)
    photos = tmp_path / "photos"
    photos.mkdir()
    (photos / "cat.jpg").write_text("meow")
    with pytest.raises(InputError, match="is not overwritten"):
        ls.write_run(photos, run)
