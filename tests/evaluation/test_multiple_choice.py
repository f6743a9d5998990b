"""Choices by likelihood: against a plain loop, and against lm-evaluation-harness."""

import numpy as np
import pandas
import pytest

import layerscope as ls
from layerscope.evaluation.evaluate import make_evaluator
from tests.helpers.data import random_texts
from tests.helpers.models import language_model, token_losses


def questions(count=20, seed=3):
    generator = np.random.default_rng(seed)
    endings = [random_texts(3, seed=100 * seed + k, most=6) for k in range(count)]
    for k in (1, 4):
        endings[k] = endings[k][:2]
    return pandas.DataFrame(
        {
            "text": [text + " " * (k % 3) for k, text in enumerate(random_texts(count, seed=seed))],
            "endings": endings,
            "label": [int(generator.integers(len(e))) for e in endings],
        }
    )


def task(**options):
    return ls.task(questions(), choices="endings", **options)


def plain(opened, longest=10**6):
    """(questions, choices) summed log-likelihoods and lengths of the choices."""
    table = questions()
    sums, lengths = np.full((len(table), 3), -np.inf), np.ones((len(table), 3))
    for k, row in enumerate(table.itertuples()):
        before = len(opened.tokenizer(row.text.rstrip())["input_ids"])
        for c, ending in enumerate(row.endings):
            ids = opened.tokenizer(f"{row.text} {ending}")["input_ids"]
            own = len(ids) - before
            sums[k, c] = -token_losses(opened, ids[-longest - 1 :])[-own:].sum()
            lengths[k, c] = len(ending)
    return sums, lengths, table["label"].to_numpy()


@pytest.mark.parametrize("family", ["gpt2", "llama", "bloom"])
@pytest.mark.parametrize("bos", [None, "adds"])
def test_likelihoods_are_those_of_a_plain_loop(family, bos):
    opened = language_model(family, bos=bos)
    evaluator = make_evaluator(opened, task(), batch_tokens=100)
    answers = evaluator.logits()
    sums, lengths, labels = plain(opened)
    np.testing.assert_allclose(answers, sums, rtol=1e-4)
    score = evaluator.score(answers)
    assert score.metrics["acc"] == (sums.argmax(1) == labels).mean()
    assert score.metrics["acc_norm"] == ((sums / lengths).argmax(1) == labels).mean()
    assert (score.metric, score.higher_is_better) == ("acc", True)
    assert float(ls.evaluate(opened, task(), metric="acc_norm")) == score.metrics["acc_norm"]


def test_a_last_token_that_the_tokenizer_adds_is_no_part_of_a_choice():
    closing, plain = (language_model(bos=bos) for bos in ("closes", "adds"))
    assert len(closing.tokenizer("a")["input_ids"]) == len(plain.tokenizer("a")["input_ids"]) + 1
    np.testing.assert_array_equal(*(make_evaluator(opened, task()).logits() for opened in (closing, plain)))


def test_a_long_prompt_loses_its_beginning():
    opened = language_model()
    sums, _, _ = plain(opened, longest=12)
    np.testing.assert_allclose(make_evaluator(opened, task(), max_length=12).logits(), sums, rtol=1e-4)


def test_a_question_is_part_of_the_prompt(tmp_path, monkeypatch):
    monkeypatch.setenv("LAYERSCOPE_DATA", str(tmp_path))
    (tmp_path / "cosmosqa").mkdir()
    columns = {"context": ["the list", "a file"], "question": ["of this", "in that"], "label": [0, 1]}
    endings = [["value", "not the string", "and", "in"]] * 2
    pandas.DataFrame({**columns, "endings": endings}).to_parquet(tmp_path / "cosmosqa" / "validation.parquet")
    opened = language_model()
    evaluator = make_evaluator(opened, "cosmosqa")
    answers = evaluator.logits()
    before = len(opened.tokenizer("the list of this")["input_ids"])
    ids = opened.tokenizer("the list of this not the string")["input_ids"]
    assert answers[0, 1] == pytest.approx(-token_losses(opened, ids)[before - 1 :].sum(), rel=1e-4)
    lengths = np.asarray([len(ending) for ending in endings[0]])
    assert evaluator.predictions(answers, "acc_norm")[0] == (answers[0] / lengths).argmax()


def test_a_cut_model_answers_as_the_map_says():
    opened = language_model()
    skips = ls.skip_map(opened, task(), max_span=1)
    assert skips.frame["score"][1] == float(ls.evaluate(ls.skip(opened, 2, 2), task()))


@pytest.mark.slow
def test_the_same_numbers_as_lm_evaluation_harness(tmp_path, monkeypatch):
    pytest.importorskip("lm_eval", reason="lm-eval is not installed")
    import json

    from lm_eval import simple_evaluate
    from lm_eval.models.huggingface import HFLM
    from lm_eval.tasks import TaskManager

    opened = language_model("gpt2", bos="has")
    opened.tokenizer.eos_token, opened.tokenizer.pad_token = "[SEP]", "[PAD]"
    data = tmp_path / "rows.jsonl"
    data.write_text("".join(json.dumps(row) + "\n" for row in questions().to_dict("records")))
    written = {
        "task": "local",
        "dataset_path": "json",
        "dataset_kwargs": {"data_files": {"validation": str(data)}},
        "validation_split": "validation",
        "output_type": "multiple_choice",
        "doc_to_text": "{{text}}",
        "doc_to_choice": "{{endings}}",
        "doc_to_target": "{{label}}",
        "metric_list": [{"metric": "acc"}, {"metric": "acc_norm"}],
    }
    (tmp_path / "tasks").mkdir()
    (tmp_path / "tasks" / "local.yaml").write_text(json.dumps(written))
    manager = TaskManager(include_path=str(tmp_path / "tasks"), include_defaults=False)
    harness_model = HFLM(pretrained=opened.network, tokenizer=opened.tokenizer, max_length=80, batch_size=4)
    theirs = simple_evaluate(harness_model, tasks=["local"], task_manager=manager, bootstrap_iters=0)
    evaluator = make_evaluator(opened, task())
    answers = evaluator.logits()
    ours = evaluator.score(answers)
    for metric in ("acc", "acc_norm"):
        assert theirs["results"]["local"][f"{metric},none"] == ours.metrics[metric]
    for k, sample in enumerate(sorted(theirs["samples"]["local"], key=lambda s: s["doc_id"])):
        sums = [float(part[0]) for part in sample["filtered_resps"]]
        np.testing.assert_allclose(answers[k, : len(sums)], sums, rtol=1e-4)
