"""The papers' pictures of the garden's models: the command behind docs/results/garden.md."""

import json

import numpy as np

from tests.helpers.cli import ROOT, script

results = script("docs/results/garden.py")


def test_the_page_was_written_by_the_command():
    folder = ROOT / "docs/results"
    found = json.loads((folder / "garden.json").read_text(encoding="utf-8"))
    assert (folder / "garden.md").read_text(encoding="utf-8") == results.page(found)


def test_curves_are_drawn_with_the_intervals_that_were_kept(tmp_path):
    about = {"majority": [0.5, 0.5], "metric": ["accuracy"] * 2, "task": ["sst2"] * 2, "n": [20, 20]}
    without = results.truncation({"layer": [0, 1], "score": [0.5, 0.8], **about})
    banded = results.truncation({"layer": [0, 1], "score": [0.5, 0.8], "low": [0.4, 0.7], "high": [0.6, 0.9], **about})
    assert np.isnan(without.frame[["low", "high"]]).all(axis=None)
    assert banded.frame["low"].tolist() == [0.4, 0.7]
    without.plot(tmp_path / "curve.png")
    assert (tmp_path / "curve.png").is_file()
