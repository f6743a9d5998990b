"""`layerscope tasks`"""

import json

from tests.helpers.cli import run_here


def test_tasks(reviews):
    names = {r["name"] for r in json.loads(run_here("tasks", "--format", "json").stdout)["table"]}
    assert {"sst2", "pydocs", "ewt-genre"} <= names
    splits = json.loads(run_here("tasks", reviews, "--format", "json").stdout)["table"]
    assert splits[0]["examples"] == 3


def test_which_columns_were_read_is_said(reviews, labelled):
    said = run_here("tasks", reviews).stdout
    assert "Read as: text from review; no labels (--label names their column)." in said
    assert "words" not in said  # no split has any
    said = run_here("tasks", reviews, "--label", "stars").stdout
    assert "Read as: text from review, label from stars." in said
    assert "1: 2, 5: 1" in said
    said = run_here("tasks", labelled).stdout
    assert "Read as: text from text, label from label." in said
    assert "Read as" not in run_here("tasks", "pydocs").stdout
    lines = reviews.with_suffix(".txt")
    lines.write_text("a line\nanother\n")
    assert "Read as" not in run_here("tasks", lines).stdout
    assert isinstance(json.loads(run_here("tasks", labelled, "--format", "json").stdout)["table"], list)
