"""`layerscope evaluate`"""

import json

import pytest
from command import run_here

import layerscope as ls


def test_the_score_is_printed_beside_the_majority(classifier, words):
    done = run_here("evaluate", classifier, "--task", words, "--format", "json")
    assert done.returncode == 0, done.stderr
    (row,) = json.loads(done.stdout)
    score = ls.evaluate(classifier, str(words))
    assert list(row) == ["model", "task", "split", "n", "metric", "score", "majority"]
    assert (row["score"], row["majority"], row["n"], row["split"]) == (score, 0.5, 40, "validation")


def test_another_metric_another_split_and_fewer_texts(classifier, words):
    given = ["--metric", "f1", "--split", "train", "--limit", "10", "--format", "json"]
    (row,) = json.loads(run_here("evaluate", classifier, "--task", words, *given).stdout)
    assert (row["metric"], row["split"], row["n"]) == ("f1", "train", 10)
    assert row["score"] == pytest.approx(ls.evaluate(classifier, str(words), metric="f1", split="train", limit=10))


def test_a_metric_that_is_none(classifier, words):
    done = run_here("evaluate", classifier, "--task", words, "--metric", "bleu")
    assert done.returncode == 2
    assert "no metric 'bleu'" in done.stderr
