"""What healing gives back, by blocks and method: the command behind docs/results/healing.md."""

import copy
import itertools
import json

import pytest

from tests.helpers.cli import ROOT, script

results = script("docs/results/healing.py")


def row(blocks, cut, healed):
    about = {"trainable": 1000, "seconds of training": 3.4, "command": f"layerscope heal MODEL --without {blocks}"}
    return {"blocks": blocks, "cut": cut, "healed": healed, **about}


def numbers():
    cases = {"2, LoRA": row("15,18", 40.0, 20.0), "2, all parameters": row("15,18", 40.0, 10.0)}
    return {"Tiny": {"uncut": 10.0, "about": "Healed by little.", "cases": cases}}


def test_the_page_was_written_by_the_command():
    folder = ROOT / "docs/results"
    found = json.loads((folder / results.RESULTS).read_text(encoding="utf-8"))
    assert (folder / results.PAGE).read_text(encoding="utf-8") == results.page(found)
    assert all((folder / results.picture(name)).is_file() for name in found)
    for model in found.values():
        assert all(model["cases"][case]["blocks"] == results.CASES[case][0] for case in model["cases"])


def test_the_table_says_how_much_of_the_damage_is_undone():
    said = results.page(numbers())
    assert "| 2 (15,18) | LoRA | 40.0 | 20.00 | 50% | 1,000 |" in said
    assert "| 2 (15,18) | all parameters | 40.0 | 10.00 | 100% | 1,000 |" in said
    assert "- 2 blocks gone: all parameters heals best (10.00), LoRA least (20.00)." in said


def test_a_figure_has_a_line_for_the_cut_and_for_each_method():
    lines = {series.name: (series.x, series.y) for series in results.figure("Tiny", numbers()["Tiny"]).series}
    assert lines == {"cut": ((2.0,), (40.0,)), "LoRA": ((2.0,), (20.0,)), "all parameters": ((2.0,), (10.0,))}


def test_cases_of_other_runs_are_taken_over_in_order():
    found, other = numbers(), copy.deepcopy(numbers())
    found["Tiny"]["cases"].pop("2, LoRA")
    other["Tiny"]["cases"] = {"8, LoRA": row("13-19,27", 90.0, 30.0), "2, LoRA": row("15,18", 40.0, 21.0)}
    results.merge(found, other)
    assert list(found["Tiny"]["cases"]) == ["2, LoRA", "2, all parameters", "8, LoRA"]
    assert found["Tiny"]["cases"]["2, LoRA"]["healed"] == 21.0
    other["Tiny"]["uncut"] = 11.0
    with pytest.raises(SystemExit, match="on other texts"):
        results.merge(found, other)


def test_blocks_go_one_after_another():
    """Each choice holds the one before it, so that the rows of the table are one path."""
    chosen = [
        {b for part in text.split(",") for b in range(int(part.split("-")[0]), int(part.split("-")[-1]) + 1)}
        for text in results.BLOCKS.values()
    ]
    assert [len(blocks) for blocks in chosen] == list(results.BLOCKS)
    assert all(smaller < larger for smaller, larger in itertools.pairwise(chosen))
