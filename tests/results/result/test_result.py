"""The shape that every result has: a table, figures, where it comes from; what is made of these."""

import json

import numpy as np
import pandas
import pyarrow.parquet
import pytest

import layerscope as ls
from layerscope.drawing.figures.curve import CurveFigure, Series
from layerscope.drawing.figures.table import TableFigure
from layerscope.errors import DataError, InputError
from layerscope.results import Result, Table, read_table
from layerscope.results.result import FORMAT
from tests.helpers.data import three_class_frame
from tests.helpers.models import QUICK, random_model

SCRIPT = "<script>alert(1)</script>"


def table(count=2, name="table", figures=None):
    frame = pandas.DataFrame({"model": [SCRIPT] * count, "score": np.linspace(0, 1, count)})
    series = (Series(SCRIPT, (0.0, 1.0), (0.0, 1.0)), Series("b", (0.0, 1.0), (1.0, 0.0)))
    curve = CurveFigure(title=SCRIPT, shows="", reading="", series=series, x_name="x", y_name="y")
    return Table(frame, [curve] if figures is None else figures, {"settings": {"seed": 3}}, name)


def test_a_table_comes_back_with_its_card(tmp_path):
    path = table().save(tmp_path / "a" / "b.parquet")
    frame, card = read_table(path, "table")
    pandas.testing.assert_frame_equal(frame, table().frame)
    assert card["provenance"] == {"settings": {"seed": 3}}
    assert [p.name for p in path.parent.iterdir()] == ["b.parquet"]  # nothing half-written is left


def test_the_ending_decides_what_is_written(tmp_path):
    path = table().save(tmp_path / "a" / "b.csv")
    pandas.testing.assert_frame_equal(pandas.read_csv(path), table().frame)
    assert table().save(tmp_path / "plain").read_bytes()[:4] == b"PAR1"
    for name in ("b.json", "b.XLSX", "b.png"):
        with pytest.raises(InputError, match=rf"and {name} ends in"):
            table().save(tmp_path / name)
        assert not (tmp_path / name).exists()


def test_a_save_that_fails_leaves_the_file_before_it(tmp_path, monkeypatch):
    path = table().save(tmp_path / "a.parquet")
    before = path.read_bytes()

    def full(*_):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(pyarrow.parquet, "write_table", full)
    with pytest.raises(InputError, match=r"a\.parquet cannot be written: No space left on device; give another path"):
        table(9).save(path)
    assert path.read_bytes() == before
    assert [p.name for p in tmp_path.iterdir()] == ["a.parquet"]


def test_what_is_not_a_saved_result_is_a_sentence(tmp_path):
    with pytest.raises(DataError, match=r"absent\.parquet is not a table that layerscope saved"):
        read_table(tmp_path / "absent.parquet", "table")
    (tmp_path / "text.parquet").write_text("x")
    table().frame.to_parquet(tmp_path / "other.parquet")
    for name in ("text", "other"):
        with pytest.raises(DataError, match="is not a table that layerscope saved"):
            read_table(tmp_path / f"{name}.parquet", "table")
    path = table(name="score").save(tmp_path / "score.parquet")
    with pytest.raises(DataError, match="holds a score, not a table"):
        read_table(path, "table")


def test_another_format_is_a_sentence(tmp_path):
    path = table().save(tmp_path / "a.parquet")
    content = pyarrow.parquet.read_table(path)
    card = {**json.loads(content.schema.metadata[b"layerscope"]), "format": FORMAT + 1}
    pyarrow.parquet.write_table(content.replace_schema_metadata({"layerscope": json.dumps(card)}), path)
    with pytest.raises(DataError, match=rf"format {FORMAT + 1}, and this version reads format {FORMAT}; make it again"):
        read_table(path, "table")


def test_the_first_figure_is_its_picture(tmp_path):
    ax = table().plot(tmp_path / "a.svg")
    assert len(ax.lines) == 2
    assert "alert(1)" in (tmp_path / "a.svg").read_text()
    with pytest.raises(InputError, match="no figure format 'gif'; allowed: pdf, svg, png"):
        table().plot(tmp_path / "a.gif")


def test_a_notebook_shows_picture_and_table_and_runs_no_name():
    page = table()._repr_html_()
    assert "<svg" in page
    assert "<table" in page
    assert "<script" not in page
    assert "&lt;script&gt;" in page


def test_a_notebook_draws_no_table_twice_and_no_long_table_whole():
    only = TableFigure.from_records([{"a": 1}], title="t", shows="", reading="")
    page = table(500, figures=[only])._repr_html_()
    assert "<svg" not in page
    assert page.count("<tr") < 20


def test_every_public_result_shows_itself_in_a_notebook():
    results = [getattr(ls, name) for name in ls.__all__ if isinstance(getattr(ls, name), type)]
    results = [kind for kind in results if issubclass(kind, ls.Result)]
    assert {ls.Similarity, ls.Score, ls.Advice, ls.Truncation, ls.Curve, ls.Healing} <= set(results)
    assert all(kind._repr_html_ is ls.Result._repr_html_ for kind in results)
    draw = np.random.default_rng(0).normal
    both = ls.compare([draw(size=(20, 2)), draw(size=(20, 2))], measure=["cka", "neuron"])
    page = both._repr_html_()
    assert (page.count("<svg"), page.count("<table")) == (2, 2)
    record = ls.Record.of("compare", "Two <layers>", both)._repr_html_()
    assert "Two &lt;layers&gt;" in record
    assert (record.count("<svg"), record.count("<table")) == (1, 1)


def test_findings_are_none_unless_there_are_some():
    assert table().findings() == []
    assert repr(table()) == "table: 2 rows, columns model, score"


# Every public function that measures gives one.


@pytest.fixture(scope="module")
def task():
    return ls.task({"train": three_class_frame(60, 0), "validation": three_class_frame(30, 1)})


@pytest.fixture(scope="module")
def classifier():
    return random_model(kind="classifier")


@pytest.fixture(scope="module")
def reps():
    generator = np.random.default_rng(0)
    labels = generator.integers(0, 2, 120)
    layers = [generator.normal(size=(120, 4)) + share * labels[:, None] for share in (0.1, 0.5, 1.0, 2.0)]
    return ls.Representations.from_arrays(layers, labels)


SMALL = {"train": 30, "test": 20, "methods": ["mean", "linear"]}
MEASURING = {
    "advise": lambda m, t, r: ls.advise(m, t, max_span=1, evaluations=0),
    "alignment_study": lambda m, t, r: ls.alignment_study([m, random_model(seed=1)], t, pairs=1, **SMALL),
    "block_influence": lambda m, t, r: ls.block_influence(m, t),
    "blocks": lambda m, t, r: ls.layer_blocks(ls.compare(r)),
    "choose": lambda m, t, r: ls.recommend(m, t, probes=False),
    "compare": lambda m, t, r: ls.compare(r),
    "compare_weights": lambda m, t, r: ls.compare_weights(m, random_model(seed=1)),
    "evaluate": lambda m, t, r: ls.evaluate(m, t),
    "imbalance": lambda m, t, r: ls.imbalance_study(r, (0.5, 0.3)),
    "injection_study": lambda m, t, r: ls.injection_study(m, m, t, layers=[4], methods=["linear"], train=30),
    "label_cca": lambda m, t, r: ls.label_cca(r),
    "localization": lambda m, t, r: ls.localization(r),
    "mutual_information": lambda m, t, r: ls.mutual_information(r),
    "nuclear_norm": lambda m, t, r: ls.nuclear_norm(r),
    "numerical_rank": lambda m, t, r: ls.numerical_rank(r),
    "probe": lambda m, t, r: ls.probe(r.select(rows=slice(80)), r.select(rows=slice(80, None))),
    "scarcity": lambda m, t, r: ls.scarcity_study(r, (60,)),
    "skip_map": lambda m, t, r: ls.skip_map(m, t, max_span=1),
    "specialty": lambda m, t, r: ls.specialty(r),
    "specialty_study": lambda m, t, r: ls.specialty_study({"base": m}, t),
    "strategies": lambda m, t, r: ls.strategies(m, t, specialty_layer=2),
    "strategy_study": lambda m, t, r: ls.strategy_study(
        m, t, strategies=["head-only"], specialty_layer=2, seeds=[0], **QUICK
    ),
    "synthetic_study": lambda m, t, r: ls.synthetic_study(
        r, true_maps=["linear"], noise=[0.1], methods=["linear"], repeats=1
    ),
    "training_cost": lambda m, t, r: ls.training_cost(m, t, "head-only"),
    "truncation_curve": lambda m, t, r: ls.truncation_curve(m, t),
    "tune": lambda m, t, r: ls.tune(m, t, strategy="head-only", **QUICK),
}


@pytest.mark.parametrize("name", MEASURING)
def test_what_measures_gives_a_result(name, classifier, task, reps):
    result = MEASURING[name](classifier, task, reps)
    assert isinstance(result, Result)
    assert len(result.frame)
    assert result.name
    for figure in result.figures():
        assert figure.title
        assert figure.shows
    assert result.figures()
    assert sorted(result.provenance) == ["data", "models", "settings", "versions"]
    assert json.dumps(dict(result.provenance))  # plain data
