"""A task is whatever a user names: a table, a file, a name of the registry; the rest is a sentence."""

import pandas
import pytest

import layerscope as ls
from layerscope.data.sources import LocalSource
from layerscope.errors import DataError, InputError, UnknownNameError
from layerscope.extraction.extract import examples_of
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


ROWS = 3_500


def many_rows():
    """More rows than are read together, and a class that only the last one has."""
    labels = ["b" if k % 2 else "a" for k in range(ROWS - 1)] + ["B"]
    return pandas.DataFrame({"text": [f"text {k}" for k in range(ROWS)], "label": labels})


def written(tmp_path, kind):
    import datasets

    frame = many_rows()
    if kind == "pandas":
        return frame
    if kind == "datasets":
        return {"all": datasets.Dataset.from_pandas(frame)}
    path = tmp_path / f"many.{kind}"
    if kind == "txt":
        path.write_text("\n".join(frame["text"]))
    elif kind == "conllu":
        path.write_text("\n".join(f"1\t{text}" + "\t_" * 8 + "\n" for text in frame["text"]))
    else:
        write_table(path, list(frame.itertuples(index=False)))
    return path


@pytest.fixture
def read(monkeypatch):
    """How many rows of which columns were read: (columns asked for, rows)."""
    counted, before = [], LocalSource.tables

    def tables(self, split, columns=None):
        for table in before(self, split, columns):
            counted.append((None if columns is None else tuple(columns), tuple(table.columns), len(table)))
            yield table

    monkeypatch.setattr(LocalSource, "tables", tables)
    return counted


@pytest.mark.parametrize("kind", ["csv", "csv.gz", "tsv", "jsonl", "parquet", "txt", "conllu", "pandas", "datasets"])
def test_a_limit_reads_the_first_rows_and_the_names_of_all_classes(kind, tmp_path, read):
    source = written(tmp_path, kind)
    part = examples_of(ls.task(source), None, 100)
    labelled = kind not in ("txt", "conllu")
    assert sum(rows for columns, _, rows in read if columns is None) <= 2_000  # to guess columns, and to take rows
    assert {found for columns, found, _ in read if columns is not None} <= ({("label",)} if labelled else set())
    whole = ls.task(source).split()
    assert list(part.texts) == list(whole.texts[:100]) == [f"text {k}" for k in range(100)]
    assert part.rows.tolist() == list(range(100))
    assert part.label_names == whole.label_names == (("B", "a", "b") if labelled else None)
    if labelled:
        assert part.labels.tolist() == whole.labels[:100].tolist() == [1, 2] * 50


def test_examples_are_known_by_what_was_read(tmp_path):
    path = write_table(tmp_path / "many.csv", list(many_rows().itertuples(index=False)))

    def fingerprint(limit, task=None):
        return (task or ls.task(path)).split(limit=limit).fingerprint

    assert fingerprint(10) == fingerprint(999) != fingerprint(1001) == fingerprint(2000)
    assert len({fingerprint(10), fingerprint(1001), fingerprint(3001), fingerprint(None)}) == 3
    assert fingerprint(3001) == fingerprint(None)  # all of it was read
    task = ls.task(path)
    assert fingerprint(None, task) == fingerprint(None)
    assert fingerprint(10, task) == fingerprint(10)  # whatever was read before
    changed = many_rows()
    changed.loc[500, "text"] = "another"
    assert fingerprint(10, ls.task(changed)) != fingerprint(10)


def test_a_limit_counts_rows_that_can_be_used():
    frame = many_rows()
    frame.loc[50:1_999, "text"] = None
    part = ls.task(frame, skip_bad=True).split(limit=60)
    assert part.rows.tolist() == [*range(50), *range(2_000, 2_010)]
    assert len(ls.task(frame, skip_bad=True).split(limit=10_000)) == ROWS - 1_950
    frame.loc[50:, "text"] = "same"
    frame.loc[3_000, "text"] = None
    assert len(ls.task(frame).split(limit=60)) == 60
    with pytest.raises(DataError, match=r"row 3001, column 'text': the text is missing"):
        ls.task(frame).split()


def test_what_labels_mean_is_judged_by_all_rows_whatever_the_limit():
    frame = many_rows()
    frame["label"] = [-1.0] * 1_000 + [0.5] * 2_500
    part = ls.task(frame).split(limit=10)
    assert part.label_names is None
    assert part.labels.tolist() == [-1.0] * 10  # these rows alone would look like a split that hides its labels
    frame["label"] = ["x", "2"] * 1_000 + ["y", "1.5"] * 750
    assert ls.task(frame).split(limit=10).label_names == ("1.5", "2", "x", "y")
    frame["label"] = ["1", "2"] * 1_000 + ["1.5", "3"] * 750
    assert ls.task(frame).regression
