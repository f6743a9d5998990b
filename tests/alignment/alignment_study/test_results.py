"""Figures and summaries of a study are made of its table, whatever made that; they are written and read back."""

import pandas
import pytest

from layerscope.alignment.alignment_study import AlignmentStudy
from layerscope.results import Record, read_record, read_table, write_record

PROVENANCE = {"models": [], "data": {}, "settings": {}, "versions": {}}


def errors(pairs=1, layers=(1, 2), across=False):
    places = [(a, b) for a in layers for b in layers if across or a == b]
    rows = [
        {
            **{"source": f"model {k}", "target": f"model {k + 1}", "layer": a, "target_layer": b, "method": method},
            **{"split": split, "n": 50, "mse": 0.1 * k, "relative": 0.2, "relative_low": 0.1, "relative_high": 0.3},
        }
        for k in range(pairs)
        for a, b in places
        for method in ("mean", "linear")
        for split in ("train", "test")
    ]
    return AlignmentStudy(pandas.DataFrame(rows), PROVENANCE)


@pytest.mark.parametrize(
    ("options", "kinds"),
    [
        ({}, ["curve", "table"]),
        ({"pairs": 3}, ["curve", "box", "box", "table"]),
        ({"layers": (2,)}, ["bars", "table"]),
        ({"layers": (2,), "pairs": 3}, ["box", "table"]),
        ({"across": True}, ["heatmap", "heatmap", "table"]),
    ],
)
def test_what_is_drawn_of_an_alignment(options, kinds, tmp_path):
    study = errors(**options)
    assert [figure.kind for figure in study.figures()] == kinds
    assert all(figure.n == 50 for figure in study.figures()[:-1])
    study.plot(tmp_path / "figure.png")
    record = Record.of("align", "An alignment", {study.name: study})
    again = read_record(write_record(tmp_path / "record", record))
    assert [figure.kind for figure in again.figures] == kinds
    assert list(again.findings) == study.findings()
    assert len(again.tables["alignment"]) == len(study.frame)


def test_a_curve_has_intervals_for_one_pair_alone():
    assert errors().figures()[0].series[0].low == (0.1, 0.1)
    assert errors(pairs=2).figures()[0].series[0].low is None


def test_the_summary_has_one_row_per_method():
    summary = errors(pairs=3).summary.set_index("method")
    assert list(summary.index) == ["mean", "linear"]
    assert summary.loc["linear", "mse test"] == pytest.approx(0.1)
    assert summary.loc["linear", "relative train sd"] == pytest.approx(0.0)


def test_a_study_is_saved_as_its_table(tmp_path):
    frame, card = read_table(errors().save(tmp_path / "alignment.parquet"), "alignment")
    pandas.testing.assert_frame_equal(frame, errors().frame)
    assert card["provenance"] == PROVENANCE
