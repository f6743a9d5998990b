"""The tasks of the registry, their mirror folder and the hub."""

import os
from collections import Counter

import pandas
import pytest

import layerscope as ls
from layerscope.data.registry import registry
from layerscope.errors import DataError

METRICS = {"cola": "matthews", "mrpc": "f1", "qqp": "f1", "stsb": "pearson_spearman", "wikitext": "perplexity"}


NAMES = {
    *("cola", "sst2", "mrpc", "qqp", "stsb", "mnli", "qnli", "rte", "wnli"),
    *("boolq", "yelp_polarity", "hellaswag", "cosmosqa", "ewt-genre", "ewt-upos", "wikitext", "pydocs"),
}


MADE_UP = {
    "sentence": ["a b", "c d"],
    "sentence1": ["a b", "c d"],
    "sentence2": ["e f", "g h"],
    "question1": ["a b", "c d"],
    "question2": ["e f", "g h"],
    "premise": ["a b", "c d"],
    "hypothesis": ["e f", "g h"],
    "question": ["a b", "c d"],
    "passage": ["e f", "g h"],
    "text": ["a b", "c d"],
    "ctx": ["a b", "c d"],
    "context": ["a b", "c d"],
    "endings": [["w", "x", "y", "z"]] * 2,
    "label": [1, 0],
}


def test_the_registry_is_whole_and_every_metric_is_as_published():
    assert set(registry()) == NAMES
    for name, spec in registry().items():
        assert spec.metric == METRICS.get(name, "accuracy"), name
        assert spec.builtin or spec.hub is not None
    assert set(ls.tasks()["name"]) == NAMES


@pytest.mark.parametrize("name", sorted(NAMES - {"pydocs", "ewt-genre", "ewt-upos", "wikitext"}))
def test_every_task_reads_its_columns_from_the_mirror(name, tmp_path, monkeypatch):
    (tmp_path / "second" / name).mkdir(parents=True)
    pandas.DataFrame(MADE_UP).to_parquet(tmp_path / "second" / name / "validation.parquet")
    monkeypatch.setenv("LAYERSCOPE_DATA", os.pathsep.join([str(tmp_path / "first"), str(tmp_path / "second")]))
    task = ls.task(name)
    examples = task.split()
    assert len(examples) == 2
    assert examples.labels.tolist() == [1, 0]
    assert (task.label_names is None) == (name == "stsb")
    if task.kind == "choice":
        assert len(examples.choices[0]) == 4
    if name == "cosmosqa":
        assert examples.choices[0][0] == "a b w"


def test_running_text_and_tags_are_read_from_the_mirror(tmp_path, monkeypatch):
    monkeypatch.setenv("LAYERSCOPE_DATA", str(tmp_path))
    (tmp_path / "wikitext").mkdir()
    pandas.DataFrame({"text": ["", " = Title = \n", "  ", "a b"]}).to_parquet(tmp_path / "wikitext" / "test.parquet")
    examples = ls.task("wikitext").split("test")
    assert list(examples.texts) == [" = Title = \n", "a b"]
    assert examples.labels is None
    (tmp_path / "ewt-upos").mkdir()
    frame = pandas.DataFrame({"text": ["a dog"], "tokens": [["a", "dog"]], "upos": [[8, 0]]})
    frame.to_parquet(tmp_path / "ewt-upos" / "validation.parquet")
    task = ls.task("ewt-upos")
    assert (task.kind, task.metric) == ("tags", "accuracy")
    assert [task.label_names[tag] for tag in task.split().tags[0]] == ["DET", "NOUN"]


def test_alternative_columns_of_the_hub_are_read_too(tmp_path, monkeypatch):
    monkeypatch.setenv("LAYERSCOPE_DATA", str(tmp_path))
    (tmp_path / "boolq").mkdir()
    frame = pandas.DataFrame({"question": ["a b"], "passage": ["c d"], "answer": [True]})
    frame.to_parquet(tmp_path / "boolq" / "validation.parquet")
    assert ls.task("boolq").split().labels.tolist() == [1]
    (tmp_path / "cosmosqa").mkdir()
    columns = {"context": ["a b"], "question": ["q"], **{f"answer{i}": [str(i) * 2] for i in range(4)}, "label": [3]}
    pandas.DataFrame(columns).to_parquet(tmp_path / "cosmosqa" / "validation.parquet")
    assert ls.task("cosmosqa").split().choices == [["q 00", "q 11", "q 22", "q 33"]]
    (tmp_path / "hellaswag").mkdir()
    frame = pandas.DataFrame({"ctx": ["a b"], "endings": [["a", "b", "c", "d"]], "label": ["2"]})
    frame.to_parquet(tmp_path / "hellaswag" / "validation.parquet")
    assert ls.task("hellaswag").split().labels.tolist() == [2]


def test_an_unknown_label_of_a_known_task_is_a_bad_row(tmp_path, monkeypatch):
    monkeypatch.setenv("LAYERSCOPE_DATA", str(tmp_path))
    (tmp_path / "sst2").mkdir()
    frame = pandas.DataFrame({"sentence": ["a b", "c d"], "label": [1, 2]})
    frame.to_parquet(tmp_path / "sst2" / "validation.parquet")
    with pytest.raises(DataError, match=r"row 2, column 'label': 2 is not one of the labels negative, positive"):
        ls.task("sst2").split()


SIZES = {
    **{"cola": 1043, "sst2": 872, "mrpc": 408, "rte": 277, "stsb": 1500, "wnli": 71},
    **{"mnli": 6238, "qnli": 1093, "boolq": 654, "hellaswag": 2009, "cosmosqa": 597, "yelp_polarity": 4455},
}


real = pytest.mark.skipif("LAYERSCOPE_DATA" not in os.environ, reason="LAYERSCOPE_DATA is not set")


@real
@pytest.mark.parametrize("name", SIZES)
def test_the_real_data_sets_are_read_whole(name):
    examples = ls.task(name).split()
    assert len(examples) == SIZES[name]
    assert examples.skipped == 0
    assert examples.labels is not None


@real
def test_the_genres_of_the_english_web_treebank():
    task = ls.task("ewt-genre")
    sizes = {split: (len(task.split(split)), sum(map(len, task.split(split).words))) for split in task.splits}
    assert sizes == {"train": (12544, 204577), "validation": (2001, 25147), "test": (2077, 25094)}
    assert set(Counter(task.split().labels.tolist())) == {0, 1, 2, 3, 4}
    assert task.label_names == ("answers", "email", "newsgroup", "reviews", "weblog")


@pytest.mark.parametrize("value", [float("nan"), float("inf"), 2.5])
def test_numbers_that_are_no_class(value, tmp_path, monkeypatch):
    monkeypatch.setenv("LAYERSCOPE_DATA", str(tmp_path))
    (tmp_path / "sst2").mkdir()
    frame = pandas.DataFrame({"sentence": ["a b", "c d"], "label": [1.0, value]})
    frame.to_parquet(tmp_path / "sst2" / "validation.parquet")
    with pytest.raises(DataError, match="row 2, column 'label'"):
        ls.task("sst2").split()
