"""Measures on trial: the command behind docs/results/trial.md."""

import json

import pytest

from tests.helpers.cli import ROOT, script

results = script("docs/results/trial.py")


def kept(**changed):
    """Two cells in which `cka` is best but for what is changed, by test."""
    found = {}
    for cell in ("bert/sst2", "albert/sst2", "bert/mrpc"):
        found[cell] = {
            test: [
                {"measure": m, "statistic": statistic, "value": v, "seconds": 0.01}
                for m, v in {"cka": 0.9, "rsa": 0.5, "gulp": None, **changed.get(test, {})}.items()
            ]
            for test, statistic in results.TESTS.items()
        }
    return found


def test_the_page_was_written_by_the_command():
    folder = ROOT / "docs/results"
    assert (folder / results.PAGE).read_text(encoding="utf-8") == results.page(results.read(folder / results.RESULTS))


def test_measures_are_ranked_within_each_model_and_task():
    values, ranks = results.ranked(kept(augmentation={"rsa": 0.95}))
    assert values.index.tolist() == ["cka", "rsa"]  # gulp has no value anywhere
    assert ranks.loc["cka"].tolist() == [1, 1, 1, 1, 2, 1]
    assert values.loc["rsa", "augmentation"] == pytest.approx(0.95)
    said = results.page(kept(augmentation={"rsa": 0.95}))
    assert "**augmentation**: `rsa` (0.95)" in said
    assert "By the mean rank over all tests `cka` leads (1.2 of 2)" in said
    assert "| `cka` | 0.90 |" in said


def test_measures_that_are_not_surely_behind_are_counted():
    cells = kept()
    cells["bert/mrpc"]["augmentation"][1]["value"] = 1.6
    assert results.told_from_best(cells, "augmentation", "cka") == ["rsa"]
    assert results.told_from_best(kept(), "augmentation", "cka") == []


def test_nothing_that_was_run_is_said_as_such():
    assert "Not run yet" in results.page({})


@pytest.mark.slow
def test_a_cell_is_run_and_found_again(tmp_path, monkeypatch):
    words = ["run", "--model", "bert=garden:bert-s0", "--task", "pydocs", "--seeds", "3", "--profile", "smoke"]
    results.main([*words, "--out", str(tmp_path)])
    found = json.loads((tmp_path / results.RESULTS).read_text())
    assert set(found["bert/pydocs"]) == set(results.TESTS)
    assert "| `cka` |" in (tmp_path / results.PAGE).read_text()
    assert (tmp_path / results.PICTURE).is_file()
    monkeypatch.setattr(results.ls, "reproduce", None)  # what is done is not done again
    results.main([*words, "--out", str(tmp_path)])
