"""lm-evaluation-harness: its numbers are ours, come back as a result, and what it cannot be asked is a sentence."""

import copy
import importlib.util
import json
import random

import numpy as np
import pandas
import pytest
import torch
import yaml

import layerscope as ls
from layerscope.evaluation import lm_eval as harness
from tests.helpers.data import random_texts, text_frame
from tests.helpers.models import language_model, random_network, word_tokenizer

installed = importlib.util.find_spec("lm_eval") is not None
needs_it = pytest.mark.skipif(not installed, reason="lm-eval is not installed")


def questions(count=12, seed=3):
    generator = np.random.default_rng(seed)
    endings = [random_texts(3, seed=100 * seed + k, most=6) for k in range(count)]
    labels = [int(generator.integers(3)) for _ in endings]
    return pandas.DataFrame({"text": random_texts(count, seed=seed), "endings": endings, "label": labels})


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """Three tasks in files: one that chooses, one that generates, one of perplexity."""
    place = tmp_path_factory.mktemp("tasks")
    rows = place / "rows.jsonl"
    rows.write_text("".join(json.dumps(row) + "\n" for row in questions().to_dict("records")))
    data = {"dataset_path": "json", "dataset_kwargs": {"data_files": {"validation": str(rows)}}}
    common = {**data, "validation_split": "validation", "doc_to_text": "{{text}}"}
    choosing = {"output_type": "multiple_choice", "doc_to_choice": "{{endings}}", "doc_to_target": "{{label}}"}
    metrics = {"metric_list": [{"metric": "acc"}, {"metric": "acc_norm"}]}
    until = {"generation_kwargs": {"until": ["\n"], "max_gen_toks": 4}, "metric_list": [{"metric": "exact_match"}]}
    rolling = {"output_type": "loglikelihood_rolling", "doc_to_text": "", "doc_to_target": "{{text}}"}
    written = {
        "chosen": {**common, **choosing, **metrics},
        "written": {**common, "output_type": "generate_until", "doc_to_target": "{{endings[0]}}", **until},
        "rolled": {**common, **rolling, "metric_list": [{"metric": "word_perplexity"}]},
    }
    for name, content in written.items():
        (place / f"{name}.yaml").write_text(json.dumps({"task": name, **content}))
    return place


def model(**options):
    opened = language_model("gpt2", bos="has", **options)
    opened.tokenizer.eos_token = "[SEP]"
    return opened


@needs_it
def test_choices_score_as_layerscope_scores_them(folder):
    opened = model()
    states = random.getstate(), np.random.get_state()[1].tolist(), torch.random.get_rng_state()
    score = ls.evaluate(opened, lm_eval=str(folder / "chosen.yaml"))
    ours = ls.evaluate(opened, ls.task(questions(), choices="endings"))
    assert score.metrics == {f"chosen/{name}": value for name, value in ours.metrics.items()}
    assert (float(score), score.metric, score.n) == (float(ours), "acc", 12)
    assert score.kind == ours.kind == "multiple choice by likelihood"
    table = score.frame
    assert list(table["task"]) == ["chosen", "chosen"]
    assert list(table["metric"]) == ["acc", "acc_norm"]
    spread = [np.sqrt(value * (1 - value) / 11) for value in table["value"]]
    assert list(table["stderr"]) == pytest.approx(spread)
    assert "hide damage" in str(score.findings()[0])
    assert random.getstate() == states[0]  # the harness seeds everything, and it is put back
    assert np.random.get_state()[1].tolist() == states[1]
    assert torch.equal(torch.random.get_rng_state(), states[2])


@needs_it
def test_every_number_says_its_kind_and_several_tasks_have_no_number_in_common(folder, tmp_path):
    opened = model()
    opened.tokenizer.pad_token = None
    names = ("chosen", "written", "rolled")
    score = ls.evaluate(opened, lm_eval=[folder / f"{name}.yaml" for name in names], limit=5)
    assert opened.tokenizer.pad_token is None
    assert np.isnan(score)
    assert "no number in common" in score.note
    kinds = dict(zip(score.frame["task"], score.frame["kind"], strict=True))
    assert kinds == {"chosen": "multiple choice by likelihood", "written": "generation", "rolled": "perplexity"}
    assert set(score.frame["n"]) == {5}
    assert not score.frame.set_index("metric")["higher_is_better"]["word_perplexity"]
    assert score.findings() == []
    assert score.figures()[0].names == ("chosen",)
    assert copy.copy(score).frame.equals(score.frame)
    assert score.save(tmp_path / "scores.parquet").is_file()


@needs_it
def test_beside_a_task_of_layerscope(folder):
    task = ls.task(text_frame(20), kind="text")
    score = ls.evaluate(model(), task, lm_eval=str(folder / "chosen.yaml"), limit=6)
    assert score.metric == "perplexity"
    assert score.harness.frame["n"].tolist() == [6, 6]
    assert [number.kind for number in score.numbers][-1] == "multiple choice by likelihood"


@needs_it
def test_a_cut_model_is_scored_as_any_other(folder):
    smaller = ls.skip(model(), 2, 3)
    score = ls.evaluate(smaller, lm_eval=str(folder / "chosen.yaml"))
    assert float(score) == float(ls.evaluate(smaller, ls.task(questions(), choices="endings")))


@needs_it
def test_files_that_are_no_tasks(folder, tmp_path):
    with pytest.raises(ls.LayerscopeError, match=r"There is no file 'missing\.yaml'"):
        ls.evaluate(model(), lm_eval="missing.yaml")
    content = json.loads((folder / "chosen.yaml").read_text())
    content["dataset_kwargs"]["data_files"]["validation"] = str(tmp_path / "nowhere.jsonl")
    (tmp_path / "lost.yaml").write_text(json.dumps(content))
    with pytest.raises(ls.LayerscopeError, match=r"lm-eval cannot open .*lost\.yaml"):
        ls.evaluate(model(), lm_eval=str(tmp_path / "lost.yaml"))
    content["dataset_path"], content["dataset_kwargs"] = "nobody/has-this", {}
    with pytest.raises(ls.LayerscopeError, match="Its data come from the hub"):
        ls.evaluate(model(), lm_eval=content)
    with pytest.raises(ls.LayerscopeError, match="names no task"):
        ls.evaluate(model(), lm_eval=[])


@needs_it
def test_names_need_the_harness_own_list_and_near_ones_are_told(monkeypatch, folder):
    from lm_eval.tasks import TaskManager

    manager = TaskManager(include_path=str(folder), include_defaults=False)
    monkeypatch.setattr(harness, "_default_manager", lambda: manager)
    assert ls.evaluate(model(), lm_eval="chosen", limit=3).n == 3
    assert ls.evaluate(model(), lm_eval="cho*", limit=3).n == 3
    with pytest.raises(ls.LayerscopeError, match=r"no task 'chosn'\. Did you mean 'chosen'"):
        ls.evaluate(model(), lm_eval="chosn")


@needs_it
def test_a_group_has_the_number_of_its_tasks(monkeypatch, folder, tmp_path):
    from lm_eval.tasks import TaskManager

    asked = []
    manager = TaskManager(include_path=str(folder), include_defaults=False)
    monkeypatch.setattr(harness, "_default_manager", lambda: asked.append(1) or manager)
    group = {"group": "both", "task": ["chosen"], "aggregate_metric_list": [{"metric": "acc"}]}
    (tmp_path / "both.yaml").write_text(yaml.safe_dump(group))
    with pytest.raises(ls.LayerscopeError, match="write it to a file"):
        ls.evaluate(model(), lm_eval=group)
    score = ls.evaluate(model(), lm_eval=tmp_path / "both.yaml")
    assert set(score.frame["task"]) == {"both", "chosen"}
    assert asked == [1]  # its member is not in its folder
    for name in ("chosen.yaml", "rows.jsonl"):
        (tmp_path / name).write_text((folder / name).read_text())
    assert float(ls.evaluate(model(), lm_eval=tmp_path / "both.yaml")) == float(score)
    assert asked == [1]
    assert float(score) == float(ls.evaluate(model(), ls.task(questions(), choices="endings")))


@needs_it
def test_heads_and_tokenizers_that_the_harness_cannot_ask(folder):
    path = str(folder / "written.yaml")
    classifier = ls.load(random_network("bert", labels=2), tokenizer=word_tokenizer())
    with pytest.raises(ls.LayerscopeError, match="gives classes or a number"):
        ls.evaluate(classifier, lm_eval=path)
    with pytest.raises(ls.LayerscopeError, match="has no head"):
        ls.evaluate(ls.load(random_network("bert", "encoder"), tokenizer=word_tokenizer()), lm_eval=path)
    with pytest.raises(ls.LayerscopeError, match="neither a first nor a last token"):
        ls.evaluate(language_model("gpt2"), lm_eval=path)
    with pytest.raises(ls.LayerscopeError, match="no last token"):
        ls.evaluate(language_model("gpt2", bos="has"), lm_eval=path)


def test_without_the_extra_a_sentence_says_how_to_get_it(monkeypatch):
    monkeypatch.setattr(harness.importlib.util, "find_spec", lambda _: None)
    with pytest.raises(ls.LayerscopeError, match=r"layerscope\[lm-eval\]"):
        ls.evaluate(language_model("gpt2"), lm_eval="hellaswag")


def test_what_has_no_meaning_without_a_task():
    with pytest.raises(ls.LayerscopeError, match="Name a task"):
        ls.evaluate(language_model("gpt2"))
    with pytest.raises(ls.LayerscopeError, match="split is about a task of layerscope"):
        ls.evaluate(language_model("gpt2"), lm_eval="hellaswag", split="test")
