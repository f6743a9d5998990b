"""`layerscope evaluate`"""

import json

import pytest

import layerscope as ls
from tests.helpers.cli import run_here
from tests.helpers.data import random_texts
from tests.helpers.models import random_network, word_tokenizer


def test_the_score_is_printed_beside_the_majority(classifier, words):
    done = run_here("evaluate", classifier, "--task", words, "--format", "json")
    assert done.returncode == 0, done.stderr
    (row,) = json.loads(done.stdout)["table"]
    score = ls.evaluate(classifier, str(words))
    assert list(row) == ["model", "task", "split", "n", "metric", "score", "low", "high", "majority"]
    assert (row["low"], row["high"]) == score.interval
    assert (row["score"], row["majority"], row["n"], row["split"]) == (score, 0.5, 40, "validation")


def test_another_metric_another_split_and_fewer_texts(classifier, words):
    given = ["--metric", "f1", "--split", "train", "--limit", "10", "--format", "json"]
    (row,) = json.loads(run_here("evaluate", classifier, "--task", words, *given).stdout)["table"]
    assert (row["metric"], row["split"], row["n"]) == ("f1", "train", 10)
    assert row["score"] == pytest.approx(ls.evaluate(classifier, str(words), metric="f1", split="train", limit=10))


def test_a_metric_that_is_none(classifier, words):
    done = run_here("evaluate", classifier, "--task", words, "--metric", "bleu")
    assert done.returncode == 2
    assert "no metric 'bleu'" in done.stderr


@pytest.fixture(scope="module")
def speaker(tmp_path_factory):
    """A causal language model with a first and a last token, and running text for it."""
    folder = tmp_path_factory.mktemp("speaker")
    tokenizer = word_tokenizer("gpt2")
    tokenizer.bos_token, tokenizer.eos_token = "[CLS]", "[SEP]"
    random_network("gpt2", "next").save_pretrained(folder)
    tokenizer.save_pretrained(folder)
    text = tmp_path_factory.mktemp("text") / "corpus.txt"
    text.write_text("\n".join(random_texts(40)))
    return folder, text


def test_what_a_language_model_generates_stands_beside_its_perplexity(speaker, tmp_path):
    folder, text = speaker
    given = ["--task", text, "--generate", "4", "--new-tokens", "8"]
    (row,) = json.loads(run_here("evaluate", folder, *given, "--format", "json").stdout)["table"]
    score = ls.evaluate(folder, str(text), generate={"prompts": 4, "new_tokens": 8})
    assert row["score"] == pytest.approx(float(score))
    assert row["repetition"] == score.metrics["repetition"]
    done = run_here("evaluate", folder, *given, "-o", tmp_path / "out")
    assert "of the 4-grams are repeats" in done.stdout
    assert ls.read_record(tmp_path / "out" / "evaluate-record").title.endswith("corpus.txt")


def test_where_there_are_no_classes_no_majority_is_shown(speaker, classifier, words):
    folder, text = speaker
    shown = run_here("evaluate", folder, "--task", text).stdout
    assert "perplexity" in shown
    assert "majority" not in shown
    assert "majority" in run_here("evaluate", classifier, "--task", words).stdout


def test_tasks_of_the_harness(speaker, tmp_path):
    pytest.importorskip("lm_eval", reason="lm-eval is not installed")
    folder, text = speaker
    rows = tmp_path / "rows.jsonl"
    rows.write_text("".join(json.dumps({"a": t, "b": ["file", "list of"], "c": 1}) + "\n" for t in random_texts(6)))
    written = {
        "task": "local",
        "dataset_path": "json",
        "dataset_kwargs": {"data_files": {"test": str(rows)}},
        "test_split": "test",
        "output_type": "multiple_choice",
        "doc_to_text": "{{a}}",
        "doc_to_choice": "{{b}}",
        "doc_to_target": "{{c}}",
        "metric_list": [{"metric": "acc"}],
    }
    (tmp_path / "my.yaml").write_text(json.dumps(written))
    done = run_here("evaluate", folder, "--lm-eval", tmp_path / "my.yaml", "--format", "json", "-o", tmp_path / "out")
    (row,) = json.loads(done.stdout)["table"]
    assert (row["task"], row["metric"], row["split"], row["n"]) == ("local", "acc", "test", 6)
    assert row["kind"] == "multiple choice by likelihood"
    assert ls.read_record(tmp_path / "out" / "evaluate-record").tables["harness"]["metric"].tolist() == ["acc"]
    both = run_here("evaluate", folder, "--task", text, "--lm-eval", tmp_path / "my.yaml")
    assert "perplexity" in both.stdout
    assert "hide damage" in both.stdout


def test_what_does_not_go_together(classifier):
    done = run_here("evaluate", classifier)
    assert (done.returncode, "Name a task to evaluate" in done.stderr) == (2, True)
    done = run_here("evaluate", classifier, "--new-tokens", "8", "--lm-eval", "x")
    assert (done.returncode, "give generate (--generate) too" in done.stderr) == (2, True)
