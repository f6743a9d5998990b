"""Which layer each score picks: the command behind docs/results/which-layer.md, and the page it writes."""

import json

import numpy as np
import pytest

from tests.helpers.cli import ROOT, script

results = script("docs/results/which_layer.py")


def row(model="m", task="mnli", nu=3, press=6, depth=12, width=8, seed=0):
    draw = np.random.default_rng(seed).normal
    scores = {name: draw(size=depth + 1).tolist() for name in results.SCORES}
    scores["nu"][nu], scores["press"][press] = -9.0, 9.0
    found = {"model": model, "task": task, "n": 60, "width": width, "depth": depth, "scores": scores, "p": 0.01}
    probe = np.linspace(0.5, 0.9, depth + 1).tolist()
    return {**found, "press of permuted labels": [0.0] * (depth + 1), "ties": [6], "probe": probe, "majority": 0.5}


def test_a_folder_that_is_not_there_is_made(tmp_path, monkeypatch):
    out = tmp_path / "new" / "folder"
    monkeypatch.setattr(results, "cell", lambda name, source, task, *_: row(name, task))
    monkeypatch.setattr("sys.argv", ["which_layer.py", "scores", "--garden", "m", "--tasks", "mnli", "--out", str(out)])
    results.main()
    assert list(json.loads((out / results.RESULTS).read_text(encoding="utf-8"))["cells"]) == ["m mnli"]
    assert (out / results.PAGE).is_file()


def test_cells_to_train_are_those_whose_picks_differ_inside():
    both, ours, same, end = row("a"), row("b", nu=12), row("c", nu=6), row("d", press=12)
    unsure = {**row("e"), "p": 0.5}
    assert results.picks(both) == {**results.picks(both), "nu": 3, "press": 6}
    assert [each["model"] for each in results.to_train([end, same, ours, unsure, both])] == ["a", "b"]
    strategies = results.strategies(ours)
    assert strategies["(l-2, l, L) by press"] == "(4, 6, 12)"
    assert strategies["(l+1, L, L) by press"] == "(7, 12, 12)"
    assert strategies["(l-2, l, l) by nu"] == "(10, 12, 12)"
    assert "(l+1, L, L) by nu" not in strategies
    assert {"full", "(L-2, L, L)", "(m-2, m, L)"} <= set(strategies)


def test_the_page_says_what_was_measured():
    cells = {f"{k}": row(f"m{k}", task, width=8 * k, seed=k) for k in (1, 2, 3) for task in ("mnli",)}
    trainings = {}
    for number, strategy in enumerate(dict.fromkeys(results.strategies(cells["1"]).values())):
        for seed in results.SEEDS:
            right = np.random.default_rng(seed).random(50) < 0.5 + 0.03 * number
            trainings[f"m1 mnli {strategy} {seed}"] = {"right": "".join("1" if each else "0" for each in right)}
    page = results.page({"cells": cells, "trainings": trainings})
    assert "nu picks an end (L, or below 3) in 0 of 3 cells" in page
    assert "## How scores go with probes: tasks that did not choose the method" in page
    assert "| width | " in page
    assert "| m1 | mnli | (l-2, l, L) | 6, 3 | " in page
    assert "Not run yet" in results.page({"cells": cells, "trainings": {}})


@pytest.mark.slow
def test_a_cell_and_its_trainings_go_on_where_they_stopped(monkeypatch, home):
    found = results.cell("bert", "garden:bert-s0", "pydocs", 80, 24)
    assert len(found["probe"]) == 13
    assert set(found["scores"]) == set(results.SCORES)
    assert np.nanmean(found["press of permuted labels"]) < 0.05
    monkeypatch.setattr(results, "TRAINED", {"train_limit": 64, "validation_limit": 40, "max_steps": 2, "batch": 8})
    monkeypatch.setattr(results, "SEEDS", (0,))
    monkeypatch.setattr(results, "strategies", lambda _: {"a": "head-only", "b": "(11, 12, 12)", "c": "head-only"})
    sources = {"bert": "garden:bert-s0"}
    wanted = results.to_do([found], sources, {})
    assert list(wanted) == ["bert pydocs head-only 0", "bert pydocs (11, 12, 12) 0"]
    assert not dict(results.trainings(wanted, None, 1, seconds=0))
    done = dict(results.trainings(wanted, None, 1, seconds=600))
    assert list(done) == list(wanted)
    for training in done.values():
        assert len(training["right"]) == 40
        assert training["accuracy"] == training["score"] == training["right"].count("1") / 40
    assert not results.to_do([found], sources, done)


def test_the_page_was_written_by_the_command():
    page = (ROOT / "docs/results/which-layer.md").read_text(encoding="utf-8")
    assert "Written by `python docs/results/which_layer.py page`" in page
