"""docs/results/garden.md follows from its numbers."""

import json
import math

import pandas
import pytest

from tests.helpers.cli import ROOT, script

results = script("docs/results/garden.py")
FOUND = json.loads((ROOT / "docs/results/garden.json").read_text(encoding="utf-8"))


def test_the_page_is_written_from_its_numbers():
    assert list(FOUND) == list(results.MODELS)
    assert (ROOT / "docs/results/garden.md").read_text(encoding="utf-8") == results.page(FOUND)
    assert all((ROOT / "docs/results" / results.picture(name)).is_file() for name in FOUND)


def model(**changes):
    curve = {"layer": [0, 1, 2], "score": [0.5, 0.79, 0.80], "majority": [0.5] * 3, "metric": ["accuracy"] * 3}
    plain = {"boundaries": ["2"], "strength": 0.4, "p": 0.01, "within": 0.9, "between": 0.2}
    plain |= {"strength_low": 0.3, "strength_high": 0.5, "beside": {"untuned": {"strength": 0.2, "p": 0.6}}}
    return plain | {"top_same": 0.1, "low_same": 0.8, "curve": curve} | changes


@pytest.mark.parametrize(
    ("changes", "no"),
    [
        ({}, None),
        ({"p": 0.2}, "Blocks"),
        ({"p": math.nan}, "Blocks"),
        ({"between": 0.95}, "Blocks"),
        ({"top_same": 0.78}, "Tuning changes the top"),
        ({"curve": model()["curve"] | {"score": [0.5, 0.7, 0.8]}}, "Top blocks can go"),
        ({"curve": model()["curve"] | {"score": [0.5, 0.55, 0.55]}}, "Top blocks can go"),  # nothing was learned
    ],
)
def test_what_shows(changes, no):
    found = model(**changes)
    assert [what for what, yes in results.answers(found).items() if not yes] == ([no] if no else [])
    assert [line.split(".")[0].endswith("yes") for line in results.sentences(found)] == list(
        results.answers(found).values()
    )


def test_what_was_not_tested_is_not_said_to_show():
    untested = {name: value for name, value in model().items() if name not in ("p", "beside")}
    assert results.answers(untested)["Blocks"] is None
    assert results.sentences(untested)[0].startswith("Blocks: not tested. ")
    assert "blocks in 1 (1 not tested);" in results.page({"a": model(), "b": untested})


def test_how_many_blocks_can_be_cut():
    curve = pandas.DataFrame({"layer": [0, 1, 2, 3, 4], "score": [0.5, 0.79, 0.6, 0.79, 0.80]})
    assert results.cuttable(curve) == 1  # what comes after a loss does not count
