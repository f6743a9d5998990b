"""Where rows come from: files, folders, mappings, data sets, the mirror folder and the hub."""

import pandas
import pytest

import layerscope as ls
from layerscope.errors import DataError, InputError
from tests.helpers.data import REVIEWS, write_table


def test_a_folder_names_several_splits_and_validation_is_the_default(tmp_path):
    write_table(tmp_path / "train.csv")
    write_table(tmp_path / "dev.csv", REVIEWS[:1])
    task = ls.task(tmp_path)
    assert set(task.splits) == {"train", "validation"}
    assert len(task.split()) == 1
    assert len(task.split(learning=True)) == 4
    assert task.split().label_names == ("neg", "pos")  # from all splits, not only from this one
    with pytest.raises(InputError, match=r"no split 'vaildation'; it has .* Did you mean 'validation'"):
        task.split("vaildation")


def test_data_beside_the_splits_of_a_folder_is_not_left_out_in_silence(tmp_path, caplog):
    write_table(tmp_path / "train.csv")
    write_table(tmp_path / "dev_matched.csv")
    (tmp_path / "README.txt").write_text("Not a split.")
    assert set(ls.task(tmp_path).splits) == {"train", "validation_matched"}
    assert not caplog.text
    write_table(tmp_path / "eval.csv")
    assert set(ls.task(tmp_path).splits) == {"train", "validation_matched"}
    assert "eval.csv. The names of splits begin with train, validation (or dev) or test" in caplog.text


def test_a_mapping_names_several_splits(tmp_path):
    task = ls.task({"one": write_table(tmp_path / "a.csv"), "two": write_table(tmp_path / "b.parquet")})
    assert task.splits == ("one", "two")
    with pytest.raises(InputError, match="choose one of one, two"):
        task.split()


def test_two_files_for_one_split_are_refused(tmp_path):
    write_table(tmp_path / "dev.csv")
    write_table(tmp_path / "validation.parquet")
    with pytest.raises(DataError, match="two files for split 'validation'"):
        ls.task(tmp_path)


def test_paths_and_tables_mix_and_data_sets_are_tables(tmp_path):
    import datasets

    features = datasets.Features({"text": datasets.Value("string"), "label": datasets.ClassLabel(names=["b", "a"])})
    data = datasets.Dataset.from_dict({"text": ["a b"], "label": [1]}, features=features)
    assert ls.task(datasets.DatasetDict({"train": data})).split().label_names == ("b", "a")
    task = ls.task(
        {"train": write_table(tmp_path / "a.csv"), "validation": pandas.DataFrame(REVIEWS, columns=["text", "label"])}
    )
    assert task.split().labels.tolist() == task.split("train").labels.tolist()


def test_without_mirror_and_hub_the_error_says_both_ways(monkeypatch):
    monkeypatch.delenv("LAYERSCOPE_DATA", raising=False)
    monkeypatch.setenv("HF_DATASETS_OFFLINE", "1")
    with pytest.raises(
        DataError, match=r"nyu-mll/glue \(sst2\).*network, or set LAYERSCOPE_DATA .*sst2/validation.parquet"
    ):
        ls.task("sst2").split()
    with pytest.raises(DataError, match=r"a folder that holds sst2/test\.parquet"):
        ls.task("sst2").split("test")


def test_the_hub_is_asked_for_the_right_data_set(monkeypatch):
    """The call that reaches the hub's client, and what becomes of its answer."""
    import datasets

    calls = []

    def load_dataset(**arguments):
        calls.append(arguments)
        return datasets.Dataset.from_dict({"premise": ["a b"], "hypothesis": ["c d"], "label": [2], "idx": [0]})

    monkeypatch.delenv("LAYERSCOPE_DATA", raising=False)
    monkeypatch.setattr(datasets, "load_dataset", load_dataset)
    assert ls.task("mnli").split().labels.tolist() == [2]
    assert calls == [{"path": "nyu-mll/glue", "name": "mnli", "split": "validation_matched"}]


def test_a_hub_id_of_ones_own(monkeypatch):
    import datasets

    calls = []
    features = datasets.Features({"text": datasets.Value("string"), "label": datasets.ClassLabel(names=["y", "x"])})
    data = datasets.Dataset.from_dict({"text": ["a b", "c d"], "label": [1, 0]}, features=features)
    monkeypatch.setattr(datasets, "get_dataset_split_names", lambda *a, **k: calls.append((a, k)) or ["train"])
    monkeypatch.setattr(datasets, "load_dataset", lambda **k: calls.append(k) or data)
    examples = ls.task("someone/things@v2", config="hard").split()
    assert examples.label_names == ("y", "x")  # the data set's order, not the alphabet's
    assert examples.labels.tolist() == [1, 0]
    assert calls[0] == (("someone/things", "hard"), {"revision": "v2"})
    assert calls[-1] == {"path": "someone/things", "name": "hard", "revision": "v2", "split": "train"}


def test_lists_and_missing_numbers_of_the_hub_are_read(monkeypatch):
    import datasets

    data = datasets.Dataset.from_dict(
        {"ctx": ["a b", "c d"], "endings": [["a", "b", "c", "d"]] * 2, "label": ["1", "3"], "source": ["x", "y"]}
    )
    monkeypatch.delenv("LAYERSCOPE_DATA", raising=False)
    monkeypatch.setattr(datasets, "load_dataset", lambda **_: data)
    examples = ls.task("hellaswag").split()
    assert examples.choices == [["a", "b", "c", "d"]] * 2
    assert examples.labels.tolist() == [1, 3]


def test_a_treebank_of_the_hub(monkeypatch):
    import datasets

    data = datasets.Dataset.from_dict(
        {"idx": ["a-1"], "text": ["Go on."], "tokens": [["Go", "on", "."]], "upos": [[1]]}
    )
    monkeypatch.setattr(datasets, "get_dataset_split_names", lambda *_, **__: ["train"])
    monkeypatch.setattr(datasets, "load_dataset", lambda **_: data)
    examples = ls.task("someone/treebank", config="en").split()
    assert examples.words == [["Go", "on", "."]]
    assert examples.texts == ["Go on."]


def test_a_split_that_the_mirror_lacks_is_asked_of_the_hub(tmp_path, monkeypatch):
    import datasets

    calls = []
    data = datasets.Dataset.from_dict({"sentence": ["a b"], "label": [-1], "idx": [0]})
    monkeypatch.setattr(datasets, "load_dataset", lambda **k: calls.append(k) or data)
    monkeypatch.setenv("LAYERSCOPE_DATA", str(tmp_path))
    (tmp_path / "sst2").mkdir()
    pandas.DataFrame({"sentence": ["a b"], "label": [1]}).to_parquet(tmp_path / "sst2" / "validation.parquet")
    task = ls.task("sst2")
    assert task.splits == ("validation", "train", "test")
    assert task.split().labels.tolist() == [1]
    assert calls == []
    assert task.split("test").labels is None
    assert calls == [{"path": "nyu-mll/glue", "name": "sst2", "split": "test"}]
