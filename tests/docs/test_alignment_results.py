"""The sentences of docs/results/alignment.md follow from its table, and its table can be had again."""

import re

import pandas
import pytest

import layerscope as ls
from tests.helpers.cli import ROOT, script

results = script("docs/results/alignment.py")
PAGE = (ROOT / "docs/results/alignment.md").read_text(encoding="utf-8")
SEEDS, ATTENTION, KNOWN = PAGE.split("\n## ")[1:]


def tables(section):
    """The tables of a section, as lists of rows of cells."""
    blocks = re.findall(r"(?:^\| .*\n)+", section, re.MULTILINE)
    return [[[cell.strip() for cell in line.strip("|").split("|")] for line in b.splitlines()] for b in blocks]


def frame(rows, names):
    """A table of figures, by layer."""
    layers = pandas.Index([int(name.split()[1]) for name in rows[0][names:]], name="layer")
    index = [row[0] if names == 1 else tuple(row[:names]) for row in rows[2:]]
    return pandas.DataFrame([[float(cell) for cell in row[names:]] for row in rows[2:]], index=index, columns=layers)


def test_between_seeds_the_network_is_never_worse_than_the_linear_map():
    by_method, ratio = (frame(rows, names) for rows, names in zip(tables(SEEDS), (1, 2), strict=True))
    assert ratio.shape == (8, 4)
    assert list(ratio.columns) == results.LAYERS == [3, 6, 9, 12]
    assert ratio.to_numpy().max() <= 1.01
    assert by_method.index.tolist() == results.METHODS


def test_what_is_said_of_attention_follows_from_its_table():
    rows = frame(tables(ATTENTION)[0], 1)
    closer = rows.loc["attention"] < rows.loc["states"]
    said = "Not uniformly" if 0 < closer.sum() < len(closer) else "Yes" if closer.all() else "No"
    assert f"relative to its spread? {said}" in ATTENTION


def errors():
    """The page's mean errors by truth, noise and method."""
    (table,) = tables(KNOWN)
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
    reps = ls.extract("garden:bert-s0", "pydocs", split="train", pool="mean", limit=limit)
    study = ls.synthetic_study(reps, methods=["procrustes", "linear", "cca", "svcca"], repeats=repeats)
    mean, expected = study.summary.set_index(["truth", "noise", "method"])["relative"], errors()
    assert len(mean) == 6 * 4
    for place, error in mean.items():
        assert error == pytest.approx(expected[place], abs=0.01), place
