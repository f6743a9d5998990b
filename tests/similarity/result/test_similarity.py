"""A similarity is saved, loaded and drawn."""

import json

import numpy as np
import pytest

import layerscope as ls
from layerscope.errors import DataError, InputError


def test_saved_and_loaded(reps, tmp_path):
    constant = ls.Representations.from_arrays([np.ones((60, 2)), reps[1]])
    sim = ls.compare(constant, reps, names=["<script>", "b"])
    again = ls.Similarity.load(sim.save(tmp_path / "a" / "sim.parquet"))
    np.testing.assert_array_equal(again.values, sim.values)
    for name in ("row_axis", "column_axis", "measure", "options", "n", "reasons", "bounds", "provenance"):
        assert getattr(again, name) == getattr(sim, name)
    assert len(sim.frame) == 8
    assert sim.frame["reason"].iloc[0] != ""
    (tmp_path / "x.parquet").write_text("x")
    with pytest.raises(DataError, match="not a similarity"):
        ls.Similarity.load(tmp_path / "x.parquet")


@pytest.mark.parametrize(
    "field", ["format", "result", "measure", "options", "n", "bounds", "shape", "layers", "extras", "provenance"]
)
def test_a_damaged_file_is_a_sentence(field, reps, tmp_path):
    import pyarrow.parquet

    table = pyarrow.parquet.read_table(ls.compare(reps).save(tmp_path / "sim.parquet"))
    card = json.loads(table.schema.metadata[b"layerscope"])
    for value in ([None], {"a": 1}, 3.5, None, [[0], [1]], [0, 0], [-1, 5], [10**9, 10**9]):
        if (field, value) in (("options", {"a": 1}), ("provenance", {"a": 1}), ("bounds", [0, 0]), ("bounds", [-1, 5])):
            continue
        if field == "bounds" and value == [10**9, 10**9]:
            continue
        changed = table.replace_schema_metadata({"layerscope": json.dumps({**card, field: value})})
        pyarrow.parquet.write_table(changed, tmp_path / "bad.parquet")
        with pytest.raises(DataError, match=r"is damaged|is not a similarity|is in format|holds a"):
            ls.Similarity.load(tmp_path / "bad.parquet")


@pytest.mark.parametrize(
    ("column", "value", "reason"),
    [
        ("value", b"x", "value holds no numbers"),
        ("value", float("nan"), "no reason is given"),
        ("row_model", {"a": 1}, "row_model holds no texts"),
        ("column_layer", 3, "column_layer holds no texts"),
    ],
)
def test_a_column_of_something_else_is_a_sentence(column, value, reason, reps, tmp_path):
    import pyarrow.parquet

    table = pyarrow.parquet.read_table(ls.compare(reps).save(tmp_path / "sim.parquet"))
    others = pyarrow.array([value] * table.num_rows)
    table = table.set_column(table.column_names.index(column), column, others)
    pyarrow.parquet.write_table(table, tmp_path / "bad.parquet")
    with pytest.raises(DataError, match=reason):
        ls.Similarity.load(tmp_path / "bad.parquet")


@pytest.mark.parametrize("part", ["data", "settings"])
def test_an_account_that_is_none_is_a_sentence(part, reps, tmp_path):
    import pyarrow.parquet

    table = pyarrow.parquet.read_table(ls.compare(reps).save(tmp_path / "sim.parquet"))
    card = json.loads(table.schema.metadata[b"layerscope"])
    table = table.replace_schema_metadata({"layerscope": json.dumps({**card, "provenance": {part: "x"}})})
    pyarrow.parquet.write_table(table, tmp_path / "bad.parquet")
    with pytest.raises(DataError, match="data and settings are objects"):
        ls.Similarity.load(tmp_path / "bad.parquet")


@pytest.mark.parametrize("ending", ["png", "svg", "pdf"])
def test_heat_maps(ending, reps, tmp_path):
    constant = ls.Representations.from_arrays([np.ones((60, 2)), reps[1]])
    sim = ls.compare([constant, reps])
    path = tmp_path / f"map.{ending}"
    ax = sim.plot(path)
    assert path.stat().st_size > 1000
    image = ax.images[0]
    assert image.origin == "lower"
    assert image.get_clim() == (0.0, 1.0)
    assert len(ax.patches) == int(np.isnan(sim.values).sum()) == 11
    ls.panels({"a": sim, "b": ls.compare(reps)}, tmp_path / f"panels.{ending}")
    with pytest.raises(InputError, match=r"no figure format 'gif'"):
        sim.plot(tmp_path / "map.gif")


def test_nothing_of_a_figure_is_cut_off(reps, tmp_path):
    from matplotlib.image import imread

    wide = ls.compare(ls.Representations.from_arrays([reps[1]] * 13))
    wide.plot(tmp_path / "one.png")
    ls.panels([wide, wide], tmp_path / "two.png")
    for name in ("one.png", "two.png"):
        pixels = imread(tmp_path / name)[..., :3]
        assert all((edge == 1).all() for edge in (pixels[0], pixels[-1], pixels[:, 0], pixels[:, -1])), name


def test_names_that_are_numbers_or_the_same_are_told_apart_and_come_back(reps, tmp_path):
    named = ls.Representations.from_arrays([reps[0], reps[1]], names=[10, 20])
    sim = ls.compare([named, named], names=[7, 7])
    assert sim.rows == ["7 (1):10", "7 (1):20", "7 (2):10", "7 (2):20"]
    assert ls.Similarity.load(sim.save(tmp_path / "sim.parquet")).rows == sim.rows
    with pytest.raises(InputError, match="Blocks are of one model's layers"):
        ls.layer_blocks(sim)
