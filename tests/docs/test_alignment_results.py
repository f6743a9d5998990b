"""The sentences of docs/results/alignment.md follow from its table, and its table can be had again."""

import re

import pandas
import pytest
from scripts import ROOT, script

import layerscope as ls

results = script("docs/results/alignment.py")
PAGE = (ROOT / "docs/results/alignment.md").read_text(encoding="utf-8")


def errors():
    """The page's mean errors by truth, noise and method."""
    table = [[cell.strip() for cell in line.strip("|").split("|")] for line in PAGE.splitlines() if line[:2] == "| "]
    settings = [re.fullmatch(r"(.+), noise ([\d.]+)", name).groups() for name in table[0][1:-1]]
    return {
        (truth, float(noise), row[0]): float(cell.split()[0])
        for row in table[2:]
        for (truth, noise), cell in zip(settings, row[1:-1], strict=True)
    }


def test_its_sentences_follow_from_its_table():
    known = errors()
    assert len(known) == 6 * 9
    mean = pandas.Series(known.values(), pandas.MultiIndex.from_tuples(known)).sort_index()
    assert PAGE.endswith("\n".join(results._sentences(mean)) + "\n")


@pytest.mark.slow
def test_its_table_can_be_had_again():
    """By the methods that take seconds; another Python has somewhat other sentences in pydocs."""
    limit, repeats = map(int, re.search(r"--limit (\d+) --repeats (\d+)", PAGE).groups())
    reps = ls.extract("demo:minilm", "pydocs", split="train", pool="mean", limit=limit)
    study = ls.synthetic_study(reps, methods=["procrustes", "linear", "cca", "svcca"], repeats=repeats)
    mean, expected = study.summary.set_index(["truth", "noise", "method"])["relative"], errors()
    assert len(mean) == 6 * 4
    for place, error in mean.items():
        assert error == pytest.approx(expected[place], abs=0.01), place
