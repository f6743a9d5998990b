"""docs/results/garden.md follows from what was found, and its sentences from their numbers."""

import json

import pandas
import pytest
from scripts import ROOT, script

results = script("docs/results/garden.py")
FOUND = json.loads((ROOT / "docs/results/garden.json").read_text(encoding="utf-8"))


def test_the_page_is_written_from_what_was_found():
    assert list(FOUND) == list(results.MODELS)
    assert (ROOT / "docs/results/garden.md").read_text(encoding="utf-8") == results.page(FOUND)
    assert all(results.picture(name).is_file() for name in FOUND)


@pytest.mark.parametrize("name", FOUND)
def test_what_can_be_cut_follows_from_the_curve(name):
    curve = pandas.DataFrame(FOUND[name]["curve"])
    cut, sentence = results.cuttable(curve), FOUND[name]["sentences"][-1]
    assert f"{cut} of 12 blocks can be cut" in sentence
    assert sentence.startswith(f"Top blocks can go: {'yes' if cut else 'no'}.")
