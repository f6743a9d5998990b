"""Matrices of many layers in a terminal: a summary, and where the whole is."""

import numpy as np
import pytest

import layerscope as ls
from layerscope.cli.compare import chosen_rows, readable, rows_of, show_summary, summary


@pytest.fixture(scope="module")
def deep():
    """Fourteen layers, each the one before and a little more."""
    draw = np.random.default_rng(0).normal
    states = [draw(size=(50, 3))]
    for _ in range(13):
        states.append(states[-1] + 0.5 * draw(size=(50, 3)))
    return ls.compare(states)


def test_a_matrix_of_many_layers_is_not_printed_whole(deep, monkeypatch):
    few = ls.compare([np.random.default_rng(k).normal(size=(20, 2)) for k in range(9)])
    assert readable(rows_of(few, few.values))
    assert not readable(rows_of(deep, deep.values))
    monkeypatch.setattr("sys.stdout.isatty", lambda: True)
    monkeypatch.setenv("COLUMNS", "40")
    assert not readable(rows_of(few, few.values))
    monkeypatch.setenv("COLUMNS", "200")
    assert readable(rows_of(few, few.values))


def test_a_summary_has_the_layers_that_are_most_and_least_alike(deep):
    told = summary(deep)
    apart = deep.values.copy()
    np.fill_diagonal(apart, np.nan)
    for k, row in enumerate(told):
        assert row["most alike"] == deep.columns[int(np.nanargmax(apart[k]))]
        assert row["value"] == pytest.approx(np.nanmax(apart[k]))
        assert row["least"] == pytest.approx(np.nanmin(apart[k]))
        assert row["mean"] == pytest.approx(np.nanmean(apart[k]))
    assert "undefined" not in told[0]


def test_of_a_distance_the_least_is_most_alike():
    draw = np.random.default_rng(0).normal
    rows = [draw(size=(30, 3)) for _ in range(3)]
    far = ls.compare([rows[0], rows[0] + 0.01 * rows[1], rows[2]], measure="angular")
    assert summary(far)[0]["most alike"] == far.columns[1]


def test_undefined_values_are_counted_and_left_out():
    same = ls.compare([np.ones((9, 2)), np.random.default_rng(0).normal(size=(9, 2)), np.eye(9)[:, :2]])
    told = summary(same)
    assert told[0]["most alike"] is None
    assert told[0]["undefined"] == 3
    assert told[1]["undefined"] == 1


def test_it_says_where_the_whole_is(deep, capsys, tmp_path):
    show_summary(deep, "cka over texts", None)
    said = capsys.readouterr().out
    assert "a summary, one row per layer" in said
    assert "-o FOLDER writes all 196 values as cka.csv and cka.parquet, --format json prints them." in said
    assert max(map(len, said.splitlines())) < 120
    show_summary(deep, "cka over texts", tmp_path)
    assert f"All 196 values are in {tmp_path / 'cka.csv'} and cka.parquet." in capsys.readouterr().out


def test_of_very_many_layers_some_are_shown_the_first_and_the_last_among_them():
    assert chosen_rows(5) == [0, 1, 2, 3, 4]
    some = chosen_rows(200, 20)
    assert len(some) == 20
    assert (some[0], some[-1]) == (0, 199)
