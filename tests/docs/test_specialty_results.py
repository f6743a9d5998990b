"""nu against probes on a real model and real tasks: computed by the command behind docs/results/specialty.md."""

import math
import os

import pytest

import layerscope as ls
from tests.helpers.cli import ROOT, script

results = script("docs/results/specialty.py")


def check(row):
    assert row["l*"] in range(1, 7)
    assert row["probe's best"] in range(1, 7)
    value = float(row["correlation"].split()[0])
    assert math.isnan(value) or -1 <= value <= 1  # undefined where all probes score the same


@pytest.mark.slow
def test_pydocs():
    row = results.measured(ls.load("demo:minilm"), "pydocs", 300, "mean")
    check(row)
    assert float(row["correlation"].split()[0]) < 0  # layers with less nu are read better


@pytest.mark.slow
@pytest.mark.skipif("LAYERSCOPE_DATA" not in os.environ, reason="LAYERSCOPE_DATA is not set")
@pytest.mark.parametrize("task", ["sst2", "cola", "mrpc", "rte"])
def test_glue(task):
    row = results.measured(ls.load("demo:minilm"), task, 400, "mean")
    if row is None:
        pytest.skip(f"{task} is not under LAYERSCOPE_DATA")
    check(row)


def test_the_page_was_written_by_the_command():
    page = (ROOT / "docs/results/specialty.md").read_text(encoding="utf-8")
    assert "Written by `python docs/results/specialty.py" in page
    for task in results.TASKS:
        assert f"| {task} | mean |" in page
