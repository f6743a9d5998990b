"""Examples know what they are, whole or in part."""

import numpy as np
import pandas
import pytest

import layerscope as ls
from layerscope.errors import DataError
from tests.helpers.data import write_table


def test_the_fingerprint_changes_with_any_text_or_label(tmp_path):
    def of(**columns):
        return ls.task(pandas.DataFrame({"text": ["a b", "c d"], "label": [0, 1], **columns})).split().fingerprint

    assert of() == of()
    assert len({of(), of(text=["a b", "c e"]), of(text=["ab", " c d"]), of(label=[1, 0])}) == 4


def test_taking_some_keeps_identity(tmp_path):
    examples = ls.task(write_table(tmp_path / "a.csv")).split()
    part = examples.take(np.array([1, 3]))
    assert part.rows.tolist() == [1, 3]
    assert part.labels.tolist() == [0, 1]
    assert part.fingerprint == examples.fingerprint


def test_a_part_of_a_part_is_of_the_whole():
    examples = ls.task(pandas.DataFrame({"text": list("abcd"), "label": [0, 1, 0, 1]})).split()
    part = examples.take(slice(1, None)).take([2, 0])
    assert list(part.texts) == ["d", "b"]
    assert part.rows.tolist() == [3, 1]
    assert part.fingerprint == examples.fingerprint
    assert part.spec() != examples.spec()  # which rows of it
    assert part.described() == {**examples.described(), "n": 2}


def test_bad_rows_are_counted_in_what_is_said_of_them():
    frame = pandas.DataFrame({"text": ["a", None, "c"], "label": [0, 1, 0]})
    examples = ls.task(frame, skip_bad=True).split()
    assert (examples.described()["n"], examples.described()["skipped"]) == (2, 1)


@pytest.mark.parametrize(
    ("name", "place"),
    [("a.csv", "line 6"), ("a.jsonl", "line 4"), ("a.parquet", "row 4"), (None, "row 4")],
)
def test_every_message_says_where_a_row_stands_in_the_same_way(name, place, tmp_path):
    """A text breaks over two lines of a CSV file, whose first line is a header; Parquet and pandas have rows."""
    rows = [("good film", "pos"), ("fine\nbut long", "pos"), ("bad film", "neg"), ("\u200b", "neg")]
    path = tmp_path / "frame" if name is None else write_table(tmp_path / name, rows)
    source = pandas.DataFrame(rows, columns=["text", "label"]) if name is None else path
    task = ls.task(source)
    assert task.split().take(slice(2, None)).place(1) == f"{place} of {task.name} (all)"
    with pytest.raises(DataError, match=rf"only special tokens .* in {place} of {task.name} \(all\)"):
        ls.extract("garden:bert-s0", task, pool="mean", store=False)
    with pytest.raises(DataError, match=rf"have no word by .*, such as {place} of {task.name} \(all\)"):
        ls.task(source, words_by=r"[a-z]+").split().in_words()
    bad = [*rows[:3], (None, "neg")]
    source = pandas.DataFrame(bad, columns=["text", "label"]) if name is None else write_table(path, bad)
    with pytest.raises(DataError, match=rf"{place}, column 'text'"):
        ls.task(source).split()


def sorted_table(n=200):
    """Texts whose labels are in order, as many files have them: three quarters are of the first class."""
    labels = ["a"] * (3 * n // 4) + ["b"] * (n - 3 * n // 4)
    return pandas.DataFrame({"text": [f"text number {k}" for k in range(n)], "label": labels})


def test_a_sampled_task_draws_from_the_whole_split_with_classes_in_proportion():
    task = ls.task({"train": sorted_table(), "validation": sorted_table(80)})
    assert set(task.split(limit=40).labels) == {0}  # the first rows
    drawn = task.sampled(3)
    part = drawn.split(limit=40)
    assert np.bincount(part.labels).tolist() == [30, 10]
    assert (np.diff(part.rows) > 0).all()  # in the data's order
    assert np.bincount(drawn.split("train", limit=100).labels).tolist() == [75, 25]
    assert part.spec() != drawn.sampled(4).split(limit=40).spec()
    assert (part.rows == task.sampled(3).split(limit=40).rows).all()
    assert drawn.split().spec() == task.split().spec()  # all rows are the split as it is
    assert drawn.split(limit=80).spec() == task.split(limit=80).spec()


def test_smaller_samples_are_part_of_larger_ones_and_of_what_is_left():
    whole = ls.task(sorted_table()).sampled(0).split()
    samples = [set(whole.first(n).rows.tolist()) for n in (20, 50, 120)]
    assert samples[0] < samples[1] < samples[2]
    rest = whole.take(slice(100, None))
    assert set(rest.first(30).rows.tolist()) < set(range(100, 200))
    assert set(rest.first(50).labels) == {0, 1}
    assert whole.take(slice(5)).rows.tolist() == [0, 1, 2, 3, 4]  # what is named by its place stays there


def test_neighbours_of_running_text_are_drawn_together():
    texts = pandas.DataFrame({"text": [f"{k:03d} " + "word " * 99 for k in range(100)]})  # 5 make a run
    drawn = ls.task(texts, kind="text").sampled(1).split(limit=25).rows
    assert len(drawn) == 25
    assert sorted(set((drawn // 5).tolist())) == sorted({k for k in range(20) if (drawn // 5 == k).sum() == 5})
    assert (drawn // 5).max() > 5  # and they come from the whole text


def test_rows_that_were_learned_from_are_known_in_a_sample(tmp_path):
    from types import SimpleNamespace

    from layerscope.models.lineage import held_out, known_rows, learn

    task = ls.task(sorted_table()).sampled(0)
    network = SimpleNamespace()
    learn(network, ls.task(sorted_table()).split(limit=100))
    model = SimpleNamespace(network=network, name="mine")
    assert known_rows([model], task.split()).sum() == 100
    chosen, _ = held_out([model], task.split(), limit=40)
    assert len(chosen) == 40
    assert chosen.rows.min() >= 100
    assert set(chosen.labels) == {0, 1}
