"""A task is whatever a user names: a table, a file, a name of the registry; the rest is a sentence."""

import pandas
import pytest

import layerscope as ls
from layerscope.errors import DataError, InputError, UnknownNameError
from tests.helpers.data import write_table


def test_a_pandas_table_is_a_task():
    task = ls.task(pandas.DataFrame({"text": ["a b", "c d"], "label": [0.5, 1.25]}))
    assert task.regression
    assert task.metric == "pearson_spearman"
    assert task.split().labels.tolist() == [0.5, 1.25]


def test_names_that_lead_nowhere(tmp_path):
    with pytest.raises(UnknownNameError, match=r"no task 'SST2'. Did you mean 'sst2'"):
        ls.task("SST2")
    with pytest.raises(InputError, match="An empty task was given"):
        ls.task("")
    with pytest.raises(DataError, match="name the task 'sst2', which is known"):
        ls.task("glue/sst2").split()
    with pytest.raises(UnknownNameError, match=r"no task 'sst-2'. Did you mean 'sst2'"):
        ls.task("sst-2")
    with pytest.raises(DataError, match=r"There is no file .*absent\.csv"):
        ls.task(tmp_path / "absent.csv").split()
    with pytest.raises(DataError, match="holds no data file"):
        ls.task(tmp_path)
    with pytest.raises(InputError, match="a int was given"):
        ls.task(3)
    with pytest.raises(InputError, match="empty mapping"):
        ls.task({})


def test_options_that_cannot_apply_are_refused(tmp_path):
    task = ls.task(write_table(tmp_path / "a.csv"))
    with pytest.raises(InputError, match="belong to the call that made it"):
        ls.task(task, label="other")
    with pytest.raises(InputError, match="which only a hub data set has"):
        ls.task(tmp_path / "a.csv", config="x")
    with pytest.raises(InputError, match="cannot be changed"):
        ls.task("sst2", regression=True)
    with pytest.raises(InputError, match="no metric 'bleu'"):
        ls.task("sst2", metric="bleu")
    assert ls.task("sst2", metric="f1").metric == "f1"
    with pytest.raises(DataError, match="no file or folder /no/such/place"):
        ls.task("/no/such/place")


def test_one_split_alone_keeps_the_classes_of_all():
    frames = {"train": pandas.DataFrame({"text": ["a", "b"], "label": ["x", "z"]})}
    frames["validation"] = pandas.DataFrame({"text": ["c"], "label": ["y"]})
    task = ls.task(frames)
    alone = task.only("train")
    assert alone.splits == ("train",)
    assert alone.label_names == ("x", "y", "z")
    assert alone.split().labels.tolist() == [0, 2]
    assert task.splits == ("train", "validation")
