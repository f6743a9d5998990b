"""Figures and tables put together from runs: pooled over seeds, with a reason where nothing is."""

import math
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pandas
import pytest
from pydantic import ValidationError

from layerscope.drawing.figures.grid import BOX, CELL, FIT, LEVEL, LINE, POINT, REASON
from layerscope.recipes.layout import Assembly, FigureLayout, TableLayout, _taken
from layerscope.recipes.recipe import Experiment, Profile

OVER = {"model": "$models", "task": "$tasks", "seed": "$seeds"}
EXPERIMENT = Experiment(name="fig3", title="Curves", where="figure 3", over=OVER, calls=())
PROFILE = Profile.model_validate(
    {"models": {"one": "m/one", "two": "m/two"}, "tasks": ["sst2", "rte"], "seeds": [0, 1]}
)
MISSING = {"rte": "it could not be fetched", "p fig3 (two, sst2, seed 0)": "it ran out of memory"}


@pytest.fixture
def runs(tmp_path):
    """The runs of one model on one task with two seeds; another model failed, and another task is missing."""
    done = []
    for seed in (0, 1):
        folder = tmp_path / str(seed)
        layers = np.arange(4)
        put(folder, "curve", pandas.DataFrame({"layer": layers, "score": layers + seed, "majority": 0.5}))
        put(folder, "probe", pandas.DataFrame({"layer": layers, "accuracy": 1 - layers / 10}))
        cells = [(i, j) for i in range(2) for j in range(2)]
        names = {"row_model": "m/one, tuned", "column_model": "m/one"}
        rows = [{**names, "row_layer": i, "column_layer": j, "value": i + 2 * j + seed, "reason": ""} for i, j in cells]
        rows[0] |= {"value": math.nan, "reason": "nothing varies"}
        put(folder, "alike", pandas.DataFrame(rows))
        put(folder, "errors", pandas.DataFrame({"method": ["cca", "linear"] * 2, "mse": [1.0, 2.0, 3.0, 6.0 + seed]}))
        chosen = {"model": "one", "task": "sst2", "seed": seed}
        done.append((SimpleNamespace(experiment=EXPERIMENT, chosen=chosen, label=f"one, sst2, seed {seed}"), folder))
    return done


def put(folder: Path, call: str, frame: pandas.DataFrame) -> None:
    place = folder / "records" / call
    place.mkdir(parents=True)
    frame.to_parquet(place / f"{call}.parquet")


def assembled(runs, figures=None, tables=None):
    recipe = SimpleNamespace(paper="p", figures=figures or {}, tables=tables or {})
    return Assembly(recipe, PROFILE, [EXPERIMENT], runs, MISSING)


def figure(runs, *marks, **options):
    layout = {"experiment": "fig3", "finds": "It.", "rows": "model", "columns": "task", "marks": marks, **options}
    return assembled(runs, {"fig3": FigureLayout.model_validate(layout)}).figures()["fig3"]


def test_curves_are_means_over_seeds_with_their_deviation(runs):
    grid = figure(runs, {"kind": "line", "of": "curve"}, {"kind": "level", "of": "curve", "y": "majority", "name": "m"})
    assert (grid.row_names, grid.column_names) == (("one", "two"), ("sst2", "rte"))
    assert grid.title == "Figure 3. Curves"
    lines = [item for item in grid.items if item.mark == LINE]
    assert [item.y for item in lines] == [0.5, 1.5, 2.5, 3.5]
    deviation = np.std([0, 1], ddof=1)
    assert [lines[0].low, lines[0].high] == pytest.approx([0.5 - deviation, 0.5 + deviation])
    assert [item.y for item in grid.items if item.mark == LEVEL] == [0.5]


def test_an_empty_panel_says_why(runs):
    grid = figure(runs, {"kind": "line", "of": "curve"})
    reasons = {(item.row, item.column): item.label for item in grid.items if item.mark == REASON}
    missing = "rte: it could not be fetched"
    assert reasons == {(0, 1): missing, (1, 0): "it ran out of memory", (1, 1): missing}
    nothing = figure(runs, {"kind": "line", "of": "other"}, only={"task": ["sst2"], "model": ["one"]})
    assert [item.label for item in nothing.items] == ["not among what was asked for"]
    none = figure(runs, {"kind": "line", "of": "curve"}, only={"model": ["2:"]})
    assert "the paper has it for another model" in none.items[0].label


def test_heat_maps_are_averaged_and_undefined_cells_keep_their_reason(runs):
    grid = figure(runs, {"kind": "heatmap", "of": "alike"}, scale=[0, 4])
    cells = {(int(item.x), int(item.y)): item for item in grid.items if item.mark == CELL}
    assert cells[1, 0].value == 2.5  # a column, a row: 0 + 2 * 1, and one more with the other seed
    assert math.isnan(cells[0, 0].value)
    assert cells[0, 0].label == "nothing varies"
    assert {item.name for item in grid.items if item.mark.endswith("tick")} == {"one", "one, tuned"}


def test_a_scatter_plot_joins_two_curves_above_the_embeddings(runs):
    grid = figure(runs, {"kind": "scatter", "of": "curve", "beside": "probe", "x": "score", "name": "layer"})
    points = [(item.x, item.y) for item in grid.items if item.mark == POINT]
    np.testing.assert_allclose(sorted(points), [(1, 0.9), (2, 0.8), (2, 0.9), (3, 0.7), (3, 0.8), (4, 0.7)])
    rho = np.corrcoef(*zip(*points, strict=True))[0, 1]
    fits = [item for item in grid.items if item.mark == FIT]
    assert fits[0].label == f"rho = {rho:.3f}"
    slope = np.polyfit(*zip(*points, strict=True), 1)[0]
    assert (fits[1].y - fits[0].y) / (fits[1].x - fits[0].x) == pytest.approx(slope)


def test_boxes_take_in_every_value(runs):
    grid = figure(runs, {"kind": "box", "of": "curve", "y": "score", "where": {"layer": [1, 2]}})
    assert sorted(item.y for item in grid.items if item.mark == BOX) == [1, 2, 2, 3]


def table(runs, **options):
    layout = {"experiment": "fig3", "finds": "It.", "index": ["method"], "across": ["model", "task"], **options}
    return assembled(runs, tables={"table4": TableLayout.model_validate(layout)}).tables()["table4"]


def test_a_table_has_means_deviations_and_reasons(runs):
    made = table(runs, of="errors", values=["mse"], rows={"pwcca": "cca", "svcca": "none"}, note="Of seeds.")
    cells = made.frame.set_index(["method", "model", "task"])
    linear = cells.loc[("linear", "one", "sst2")]
    assert linear["mean"] == np.mean([2, 6, 2, 7])
    assert linear["deviation"] == pytest.approx(np.std([2, 6, 2, 7], ddof=1))
    assert linear["n"] == 4
    assert cells.loc[("pwcca", "one", "sst2"), "mean"] == cells.loc[("cca", "one", "sst2"), "mean"] == 2
    assert cells.loc[("linear", "one", "rte"), "reason"] == "rte: it could not be fetched"
    assert cells.loc[("linear", "two", "sst2"), "reason"] == "it ran out of memory"
    assert made.wide().set_index("method").loc["linear", "one · sst2"] == "4.25 ± 2.63"
    assert made.wide().set_index("method").loc["svcca", "one · sst2"] == "-"


def test_statistics_of_curves_leave_out_the_embeddings(runs):
    of = {"score": "curve"}
    made = table(runs, of=of, against="probe", statistic="correlation", index=["measure"])
    assert made.frame["mean"].dropna().tolist() == pytest.approx([-1.0])
    rough = table(runs, of=of, statistic="zeta", index=["measure"])
    assert rough.frame["mean"].dropna().tolist() == pytest.approx([0.0])  # a straight line


def test_a_choice_is_a_name_several_names_or_a_place():
    values = ["bert", "roberta", "minilm"]
    assert _taken(values, ["roberta", "0"]) == ["roberta"]
    assert _taken(values, ["deberta", "1:"]) == ["roberta", "minilm"]
    assert _taken(values, ["deberta", "0"]) == ["bert"]
    assert _taken(values, [["minilm", "gpt2", "bert"], "0:"]) == ["bert", "minilm"]
    assert _taken(values, [["gpt2", "xlnet"], "0:"]) == values
    assert _taken(values, ["gpt2", "3:"]) == []


def test_a_sister_figure_takes_what_the_first_leaves(runs):
    """The first takes `two` by its name, so that the second has `one`, which stands before it."""
    chosen = {"model": ["two", "0"]}
    assert figure(runs, {"kind": "line", "of": "curve"}, only=chosen, title="{model} only").row_names == ("two",)
    assert figure(runs, {"kind": "line", "of": "curve"}, only=chosen, title="{model} only").title.endswith("two only")
    assert figure(runs, {"kind": "line", "of": "curve"}, besides=chosen).row_names == ("one",)
    none = figure(runs, {"kind": "line", "of": "curve"}, besides={"model": ["0:"]})
    assert "the paper has it for another model" in none.items[0].label
    assert set(table(runs, of="errors", values=["mse"], besides=chosen).frame["model"]) == {"one"}


def test_a_layout_says_what_the_paper_finds_or_what_it_asks(runs):
    marks = ({"kind": "line", "of": "curve"},)
    assert figure(runs, *marks).shows == "The paper finds: It."
    assert figure(runs, *marks, finds="", asks="whether it is.").shows == "The paper asks whether it is."
    for both in ({"finds": ""}, {"asks": "whether it is."}):
        with pytest.raises(ValidationError, match="either `finds` or `asks`"):
            figure(runs, *marks, **both)


def test_intervals_and_further_columns_of_a_table(runs):
    """The half-widths of two independent values add as a root of squares; a mean of two has half of that."""
    for (_, folder), low, high, seconds in zip(runs, (0.5, 0.2), (1.5, 1.4), (2.0, 4.0), strict=True):
        rows = {"method": ["cca"], "kind": ["mse"], "value": [1.0], "low": [low], "high": [high], "seconds": [seconds]}
        put(folder, "trial", pandas.DataFrame(rows))
    more = [{"values": ["seconds"], "interval": [], "named": {"kind": "seconds per pair"}}]
    given = {"of": "trial", "across": ["model", "task", "kind"], "interval": ["low", "high"], "more": more}
    cells = table(runs, **given).frame.set_index(["model", "task", "kind"]).sort_index().loc[("one", "sst2")]
    assert cells.loc["mse", "low"] == pytest.approx(1 - math.hypot(0.5, 0.8) / 2)
    assert cells.loc["mse", "high"] == pytest.approx(1 + math.hypot(0.5, 0.4) / 2)
    assert cells.loc["seconds per pair", "mean"] == 3.0
    assert math.isnan(cells.loc["seconds per pair", "low"])
    wide = table(runs[:1], **given).wide()
    assert wide["one · sst2 · mse"].tolist() == ["1 [0.5, 1.5]"]
    assert wide["one · sst2 · seconds per pair"].tolist() == ["2"]


def test_names_of_axes_by_column(runs):
    marks = ({"kind": "line", "of": "curve", "part": "nu"}, {"kind": "line", "of": "probe", "part": "zeta"})
    names = {"x_names": ["layer", "share"], "y_names": ["nu", "zeta"]}
    grid = figure(runs, *marks, columns={"part": ["nu", "zeta"]}, only={"task": ["sst2"]}, **names)
    assert (grid.x_names, grid.y_names) == (("layer", "share"), ("nu", "zeta"))
    none = figure(runs, *marks, columns={"part": ["nu", "zeta"]}, only={"model": ["gone"]}, **names)
    assert (none.column_names, none.x_names) == (("",), ())
