"""A user's own files: every format, every mistake."""

import gzip
import json

import pandas
import pytest
from own_data import ROWS, write

import layerscope as ls
from layerscope.errors import DataError, InputError


@pytest.mark.parametrize("ending", ["csv", "csv.gz", "jsonl", "jsonl.gz", "parquet"])
def test_every_format_gives_the_same_examples(ending, tmp_path):
    task = ls.task(write(tmp_path / f"data.{ending}"))
    examples = task.split()
    assert list(examples.texts) == [text for text, _ in ROWS]
    assert task.label_names == ("neg", "pos")  # sorted
    assert examples.labels.tolist() == [1, 0, 0, 1]
    assert task.splits == ("all",)
    assert task.metric == "accuracy"
    assert examples.rows.tolist() == [0, 1, 2, 3]


def test_tsv_takes_quotes_as_they_are(tmp_path):
    path = tmp_path / "a.tsv"
    path.write_text('text\tlabel\nhe said "hi\t1\nbye"\t0\n')
    assert list(ls.task(path).split().texts) == ['he said "hi', 'bye"']


def test_broken_json_lines_are_placed(tmp_path):
    path = tmp_path / "a.jsonl"
    path.write_text('{"text": "a b", "label": 1}\n{"text": \n[1]\n{"label": 0}\n')
    with pytest.raises(
        DataError, match=r"line 2: broken JSON.*line 3: broken JSON \(not a JSON object.*line 4, column 'text'"
    ):
        ls.task(path).split()


@pytest.mark.parametrize(
    ("name", "content", "sentence"),
    [
        ("a.csv", b"", "is empty"),
        ("a.csv", b"text,label\n", "holds no rows"),
        ("a.csv", b"text,text\na,b\n", "names a column twice"),
        ("a.csv", b"text;label\na;b\n", r"one column, 'text;label'.* separated by semicolons and not by commas"),
        ("a.csv", b"text\tlabel\na\tb\n", r"separated by tabs \(\.tsv\) and not by commas"),
        ("a.tsv", b"text,label\na,b\n", r"separated by commas \(\.csv\) and not by tabs"),
        ("a.csv", b"the file is good,1\na list,0\n", "looks like a first row; put a line with names above it"),
        ("a.jsonl", b'[{"text": "a b"}]', r"no usable row: .*line 1: .*each line must be one"),
        ("a.csv", b"text,label\n\xff\xfe,1\n", "not UTF-8"),
        ("a.csv", b'text,label\n"open,1\n', "line 2: unexpected end of data"),
        ("a.parquet", b"not parquet", "not a Parquet file"),
        ("a.csv.gz", b"not gzip", "cannot be read"),
        ("a.docx", b"x", "an ending that cannot be read; allowed: .csv"),
    ],
)
def test_files_that_cannot_be_read(name, content, sentence, tmp_path):
    path = tmp_path / name
    path.write_bytes(content)
    with pytest.raises(DataError, match=sentence):
        ls.task({"all": path}).split()


def test_spaces_around_names_and_labels_are_no_part_of_them(tmp_path):
    path = tmp_path / "a.csv"
    path.write_text("text, label\nthe file, a\n the list,b\nan object, \n")
    task = ls.task(path, skip_bad=True)
    assert task.label_names == ("a", "b")
    assert list(task.split().texts) == ["the file", " the list"]
    assert task.split().skipped == 1


CONLLU = """# newdoc id = email-1
# sent_id = a-1
# text = Don't go.
1-2\tDon't\t_\t_\t_\t_\t_\t_\t_\t_
1\tDo\tdo\tAUX\t_\t_\t0\troot\t_\t_
2\tn't\tnot\tPART\t_\t_\t1\tadvmod\t_\t_
3\tgo\tgo\tVERB\t_\t_\t1\tconj\t_\tSpaceAfter=No
3.1\telided\t_\t_\t_\t_\t_\t_\t_\t_
4\t.\t.\tPUNCT\t_\t_\t1\tpunct\t_\t_

# sent_id = a-2
1\tYes\tyes\tINTJ\t_\t_\t0\troot\t_\tSpaceAfter=No
2\t!\t!\tPUNCT\t_\t_\t1\tpunct\t_\t_
"""


@pytest.mark.parametrize("ending", ["conllu", "conllu.gz"])
def test_a_treebank_gives_words_without_surface_tokens_and_empty_nodes(ending, tmp_path):
    path = tmp_path / f"x.{ending}"
    path.write_bytes(gzip.compress(CONLLU.encode()) if ending.endswith("gz") else CONLLU.encode())
    examples = ls.task(path).split()
    assert examples.words == [["Do", "n't", "go", "."], ["Yes", "!"]]
    assert examples.texts == ["Don't go.", "Yes!"]
    assert examples.labels is None


def test_a_broken_treebank_line_is_placed(tmp_path):
    path = tmp_path / "x.conllu"
    path.write_text(CONLLU + "\n1\tbroken\n\n")
    with pytest.raises(DataError, match="line 15: 2 fields where CoNLL-U has 10"):
        ls.task(path).split()
    assert len(ls.task(path, skip_bad=True).split()) == 2


def test_a_sentence_a_line_is_a_corpus_of_words(tmp_path):
    path = tmp_path / "x.txt"
    path.write_text("one two\n\nthree  four .\n")
    assert ls.task(path).split().words == [["one", "two"], ["three", "four", "."]]


def test_json_numbers_and_nulls(tmp_path):
    path = tmp_path / "a.jsonl"
    path.write_text("\n".join(json.dumps({"text": t, "label": v}) for t, v in [("a b", 1), (None, 0)]))
    assert ls.task(path, skip_bad=True).split().labels.tolist() == [1]


def test_one_broken_csv_line_costs_one_row(tmp_path):
    path = tmp_path / "q.csv"
    path.write_text('text,label\ngood,a\n"bad" quote here,a\n' + "fine,b\n" * 100)
    examples = ls.task(path, skip_bad=True).split()
    assert len(examples) == 101
    assert examples.skipped == 1
    path.write_text("text,label\n" + "long " * 40000 + ",a\n")
    assert len(ls.task(path).split().texts[0]) > 150000


def test_tables_that_cannot_be_read():
    twice = pandas.DataFrame([["a b", "c d"]], columns=["text", "text"])
    with pytest.raises(DataError, match="names a column twice"):
        ls.task(twice).split()
    with pytest.raises(InputError, match="The table of split 'train' is a list"):
        ls.task({"train": ["a b"]}).split()
    with pytest.raises(DataError, match="holds the label is not clear: 'labels', 'target'"):
        ls.task(pandas.DataFrame({"text": ["a b"], "labels": [1], "target": [2]})).split()
    with pytest.raises(DataError, match=r"row 1, column 'text': 5 is not a text"):
        ls.task(pandas.DataFrame({"text": [5], "label": [1]})).split()
