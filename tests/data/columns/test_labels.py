"""What the labels of a user's data mean: classes, numbers, choices, gaps, and none at all."""

import pandas
import pytest

import layerscope as ls
from layerscope.errors import DataError


def test_the_label_of_a_choice_is_its_number():
    frame = pandas.DataFrame({"text": ["q", "r"], "endings": [["a", "b", "c"], ["d", "e"]], "label": [2, 0]})
    assert ls.task(frame, text="text", choices="endings").split().labels.tolist() == [2, 0]
    frame["label"] = [2, 2]
    with pytest.raises(DataError, match=r"row 2, column 'label': choice 2 was named, and there are choices 0\.\.1"):
        ls.task(frame, text="text", choices="endings").split()


@pytest.mark.parametrize(
    ("values", "names", "labels"),
    [
        (["b", "a", "b"], ("a", "b"), [1, 0, 1]),
        ([0, 1, 0], ("0", "1"), [0, 1, 0]),
        (["10", "9", "10"], ("9", "10"), [1, 0, 1]),
        ([1, 5, 3], ("1", "3", "5"), [0, 2, 1]),
        ([True, False, True], ("False", "True"), [1, 0, 1]),
        ([0.5, 1.0, 2.0], None, [0.5, 1.0, 2.0]),
        (["0.5", "1", "2"], None, [0.5, 1.0, 2.0]),
    ],
)
def test_what_labels_mean(values, names, labels):
    task = ls.task(pandas.DataFrame({"text": ["a b", "c d", "e f"], "label": values}))
    assert task.label_names == names
    assert task.split().labels.tolist() == labels


def test_a_word_among_numbers_is_a_bad_row_and_makes_no_classes():
    frame = pandas.DataFrame({"text": ["a b", "c d", "e f"], "label": ["0.5", "n/a", "2"]})
    with pytest.raises(DataError, match="row 2, column 'label': 'n/a' is not a number"):
        ls.task(frame).split()
    assert ls.task(frame, skip_bad=True).split().labels.tolist() == [0.5, 2.0]
    assert ls.task(frame, regression=False).label_names == ("0.5", "2", "n/a")


@pytest.mark.parametrize("value", [[0, 1], {"a": 1}, b"1"])
def test_what_is_not_one_label_is_a_bad_row(value):
    frame = pandas.DataFrame({"text": ["a b", "c d", "e f"], "stars": ["0", value, "1"]})
    with pytest.raises(DataError, match="is not one label, a name or a number"):
        ls.task(frame, label="stars").split()
    assert ls.task(frame, label="stars", skip_bad=True).label_names == ("0", "1")


def test_a_column_of_lists_is_not_guessed_to_be_the_label():
    frame = pandas.DataFrame({"words": [["a", "b"], ["c", "d"]], "labels": [[0, 1], [1, 1]]})
    assert ls.task(frame).split().labels is None
    assert ls.task(frame, tags="labels").label_names == ("0", "1")


def test_tags_that_are_no_list_are_a_bad_row():
    frame = pandas.DataFrame({"words": [["a", "b"], ["c", "d"]], "tags": [["X", "Y"], 7]})
    with pytest.raises(DataError, match="row 2, column 'tags': 0 tags for 2 words"):
        ls.task(frame, tags="tags").split()


def test_whole_numbers_are_a_regression_if_asked():
    frame = pandas.DataFrame({"text": ["a b", "c d"], "label": [3, 7]})
    assert ls.task(frame, regression=True).split().labels.tolist() == [3.0, 7.0]


def test_a_task_without_labels_has_none():
    assert ls.task(pandas.DataFrame({"text": ["a b"]})).split().labels is None


def test_classes_that_train_lacks_are_said(tmp_path, caplog):
    task = splits(
        tmp_path,
        train={"text": ["a b", "c d"], "label": [0, 1]},
        validation={"text": ["e f", "g h"], "label": ["positive", "negative"]},
    )
    assert task.label_names == ("0", "1", "negative", "positive")
    assert "2 of the 4 classes of" in caplog.text
    assert "not in its train split, so nothing can learn them: negative, positive" in caplog.text


def test_numbers_that_are_asked_to_be_classes_are_in_train(caplog):
    frame = pandas.DataFrame({"text": ["a b", "c d"], "label": [0.5, 1.5]})
    assert ls.task({"train": frame, "validation": frame}, regression=False).label_names == ("0.5", "1.5")
    assert not caplog.text


def test_hub_labels_hidden_as_minus_one_are_no_labels(tmp_path, monkeypatch):
    (tmp_path / "cola").mkdir()
    frame = pandas.DataFrame({"sentence": ["a b"], "label": [-1], "idx": [0]})
    frame.to_parquet(tmp_path / "cola" / "test.parquet")
    monkeypatch.setenv("LAYERSCOPE_DATA", str(tmp_path))
    assert ls.task("cola").split("test").labels is None


def test_whole_numbers_with_gaps_are_still_classes():
    frame = pandas.DataFrame({"text": ["a b", "c d", "e f"], "label": [1, None, 0]})
    assert frame["label"].dtype == float
    task = ls.task(frame, skip_bad=True)
    assert task.label_names == ("0", "1")
    assert task.split().labels.tolist() == [1, 0]


def splits(tmp_path, **frames):
    for split, columns in frames.items():
        pandas.DataFrame(columns).to_csv(tmp_path / f"{split}.csv", index=False)
    return ls.task(tmp_path)


def test_labels_hidden_in_the_test_split_are_no_class(tmp_path):
    task = splits(
        tmp_path,
        train={"text": ["a b", "c d"], "label": [0, 1]},
        validation={"text": ["e f", "g h"], "label": [1, 0]},
        test={"text": ["i j"], "label": [-1]},
    )
    assert task.label_names == ("0", "1")
    assert task.split().labels.tolist() == [1, 0]
    assert task.split("test").labels is None


def test_a_test_split_without_labels_takes_nothing_from_the_others(tmp_path):
    (tmp_path / "README.txt").write_text("Not a split.")
    task = splits(
        tmp_path,
        train={"text": ["a b", "c d"], "label": ["y", "n"]},
        validation={"text": ["e f"], "label": ["y"]},
        test={"id": ["7"], "text": ["i j"]},
    )
    assert set(task.splits) == {"train", "validation", "test"}
    assert task.split().labels.tolist() == [1]
    assert task.split("test").labels is None


def test_a_class_is_named_alike_however_its_number_is_written(tmp_path):
    task = splits(
        tmp_path, train={"text": ["a b", "c d"], "label": ["0", "1"]}, validation={"text": ["e f"], "label": ["1.0"]}
    )
    assert task.label_names == ("0", "1")
    assert task.split().labels.tolist() == [1]
    assert ls.task(pandas.DataFrame({"text": ["a b", "c d"], "label": [0.0, 1.0]})).label_names == ("0", "1")


@pytest.mark.parametrize("gap", ["NaN", "nan", ""])
def test_a_gap_is_a_bad_row_not_a_class(gap, tmp_path):
    path = tmp_path / "a.csv"
    path.write_text(f"text,label\na b,0\nc d,{gap}\ne f,1\n")
    with pytest.raises(DataError, match="line 3, column 'label': the label is missing"):
        ls.task(path).split()
    assert ls.task(path, skip_bad=True).label_names == ("0", "1")


def test_pandas_gaps_of_every_kind_are_missing():
    labels = pandas.array([1, None, 0], dtype="Int64")
    task = ls.task(pandas.DataFrame({"text": ["a b", "c d", "e f"], "label": labels}), skip_bad=True)
    assert task.split().labels.tolist() == [1, 0]
