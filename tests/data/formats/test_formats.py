"""A user's own files: every format, every mistake."""

import csv
import gzip
import json
import os
import tracemalloc
from collections import Counter

import pandas
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import layerscope as ls
from layerscope.data.formats import counts, read
from layerscope.errors import DataError, InputError
from tests.helpers.data import REVIEWS, write_table


@pytest.mark.parametrize("ending", ["csv", "csv.gz", "jsonl", "jsonl.gz", "parquet"])
def test_every_format_gives_the_same_examples(ending, tmp_path):
    task = ls.task(write_table(tmp_path / f"data.{ending}"))
    examples = task.split()
    assert list(examples.texts) == [text for text, _ in REVIEWS]
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
        ("a.csv", b"text,label\n\xff\xfe,1\n", "not UTF-8 .* iconv -f latin1 "),
        ("a.csv", "text,label\na b,1\n".encode("utf-16"), "not UTF-8 .* iconv -f utf-16 "),
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


DEEP = '{"text": ' + "[" * 100_000
GZIP = gzip.compress(b"text,label\n" + b"good film,1\n" * 500, mtime=0)


@pytest.mark.parametrize(
    ("name", "content", "sentence"),
    [
        ("a.csv", b'"text,label\na,1\n', "the header cannot be read .*is a quote in it not closed"),
        (
            "a.csv",
            b'te"xt"y,"la"bel\na,1\n',
            "the header cannot be read|no usable row|text is not clear|holds the text",
        ),
        ("a.csv", b"\xef\xbb\xbf", "is empty"),
        ("a.tsv", b"\xef\xbb\xbf", "is empty"),
        ("a.txt", b"\xef\xbb\xbf", "holds no rows"),
        ("a.jsonl", b"\xef\xbb\xbf", "holds no rows"),
        ("a.csv.gz", GZIP[:40], "cannot be read"),
        ("a.csv.gz", GZIP[:20] + bytes(20) + GZIP[40:], "cannot be read"),
        ("a.csv.gz", GZIP[:-8] + bytes(8), "cannot be read"),
        ("a.jsonl", DEEP.encode(), "broken JSON .*nested more than 64 deep"),
        ("a.jsonl", b'{"text": "a", "label": 1' + b"0" * 400 + b"}", "a whole number of 401 digits"),
        ("a.jsonl", b'{"text": "a", "label": 1' + b"0" * 5000 + b"}", "a whole number of 5001 digits"),
        ("a.jsonl", b'{"text": "a \\ud800", "label": 1}', "half a character"),
        ("a.jsonl", b'{"words": ["a", 3], "label": 1}', "3 is not a word"),
        ("a.jsonl", b'{"words": ["a", "b"], "label": 1}\n{"words": 3, "label": 0}', "3 is not a list of words"),
        ("a.jsonl", b'{"words": ["a", "b"], "label": 1}\n{"words": "ab", "label": 0}', "'ab' is not a list of words"),
        ("a.jsonl", b'{"words": ["a", null], "label": 1}', "one of them is empty"),
    ],
    ids=str,
)
def test_broken_files_are_a_sentence(name, content, sentence, tmp_path):
    (tmp_path / name).write_bytes(content)
    with pytest.raises(DataError, match=sentence) as caught:
        ls.task(tmp_path / name).split()
    assert len(str(caught.value)) < 2000


def test_a_label_of_many_digits_is_one(tmp_path):
    (tmp_path / "a.csv").write_text(f"text,label\na b,{'1' * 400}\nc d,{'2' * 400}\n")
    with pytest.raises(DataError, match=r"is not a number") as caught:
        ls.task(tmp_path / "a.csv").split()
    assert len(str(caught.value)) < 2000
    frame = pandas.DataFrame({"text": ["a", "b"], "label": [10**400, 10**401]}, dtype=object)
    assert len(ls.task(frame).split()) == 2  # classes, however long their names


@pytest.mark.parametrize("ending", ["csv", "tsv", "jsonl", "txt", "parquet", "conllu"])
def test_a_field_that_is_too_long_is_a_sentence(ending, tmp_path):
    path = tmp_path / f"a.{ending}"
    long = "word " * 2000
    if ending in ("csv", "tsv", "jsonl", "parquet"):
        write_table(path, [("short text", "a"), (long, "b")])
    else:
        path.write_text(f"{long}\n" if ending == "txt" else f"# text = {long}\n1\t{long}\t" + "_\t" * 7 + "_\n\n")
    assert ls.task(path).split()
    assert ls.task(path, max_field=10_100).split()
    with pytest.raises(DataError, match=r"max_field=.*--max-field"):
        ls.task(path, max_field=1000).split()
    for wrong in (0, -1, 1 << 31, True, "x"):
        with pytest.raises(InputError, match="max_field"):
            ls.task(path, max_field=wrong)


@pytest.mark.parametrize("ending", ["csv.gz", "jsonl.gz", "txt.gz", "conllu.gz"])
def test_a_small_file_that_unpacks_to_one_huge_field_takes_little_memory(ending, tmp_path):
    path = tmp_path / f"a.{ending}"
    with gzip.open(path, "wb", compresslevel=1) as file:
        file.write(b'{"text": "' if "jsonl" in ending else b"text,label\n" if "csv" in ending else b"")
        for _ in range(100):
            file.write(b"x" * (1 << 20))
    tracemalloc.start()
    try:
        with pytest.raises(DataError, match=r"--max-field"):
            ls.task(path, max_field=1_000_000).split()
        assert tracemalloc.get_traced_memory()[1] < 60 << 20
    finally:
        tracemalloc.stop()


def test_too_many_columns_are_a_sentence(tmp_path):
    (tmp_path / "a.csv").write_text(",".join(f"c{k}" for k in range(10_001)) + "\n" + "," * 10_000 + "\n")
    with pytest.raises(DataError, match="10,001 columns"):
        ls.task(tmp_path / "a.csv").split()


@pytest.mark.parametrize("name", ["x" * 300 + ".csv", "x/" * 3000 + "a.csv", "~nobody-here/a.csv", "a\0b.csv"])
def test_names_that_no_disk_takes_are_a_sentence(name):
    with pytest.raises(InputError, match=r"There is no file|a name in a path may have|no file can have that name"):
        ls.task(name).split()
    with pytest.raises(InputError, match=r"There is no file|a name in a path may have|no file can have that name"):
        ls.task({"all": name}).split()


def test_what_is_no_file_is_not_waited_for(tmp_path):
    os.mkfifo(tmp_path / "pipe.csv")
    with pytest.raises(DataError, match="is not a file"):
        ls.task(tmp_path / "pipe.csv").split()


@pytest.mark.parametrize("ending", ["csv", "tsv"])
def test_a_name_of_any_length_leaves_a_sentence_one(ending, tmp_path):
    separator = {"csv": ",", "tsv": "\t"}[ending]
    bad = ["x" * 200_000, "label"]
    for header in (bad, ["x" * 200_000] * 2, ["x" * 200_000, "y" * 200_000], ["a" + ";" * 200_000]):
        file = tmp_path / f"rows.{ending}"
        file.write_text(
            separator.join(header) + "\n" + separator.join(["" if header is bad else "the text"] * len(header)) + "\n"
        )
        with pytest.raises(DataError) as raised:
            ls.task(file).split()
        assert len(str(raised.value)) < 1000


def counted_by_reading(path):
    found = Counter()
    for table in read(path, columns=["label"]):
        found.update(table.columns.get("label", [None] * len(table)))
    return dict(found)


@pytest.mark.parametrize("packed", [False, True])
@pytest.mark.parametrize(
    ("ending", "text"),
    [
        (".csv", 'text,label\n"one, two",a\n"x ""y""","b c"\n\n"over\ntwo lines",a\nlast,\n'),
        (".csv", "\ufefftext , label \na,1\r\nb,2\r\n"),
        (".csv", "label,text\nNA,x\nnull,y\n 1 ,z\n"),
        (".tsv", 'text\tlabel\n"quoted\tpos\nplain\tneg"\n'),
        (".jsonl", '{"text": "a", "label": "x"}\n\n{"text": "b"}\n{"label": "\\u00e4", "text": "c", "more": [1, 2]}\n'),
        (".jsonl", '{"text": "a", "label": 3}\n{"text": "b", "label": -1}\n{"text": "b", "label": null}\n'),
    ],
)
def test_labels_are_counted_as_they_are_read(ending, text, packed, tmp_path):
    path = tmp_path / ("data" + ending + (".gz" if packed else ""))
    path.write_bytes(gzip.compress(text.encode()) if packed else text.encode())
    found = counts(path, "label")
    assert found == counted_by_reading(path)
    assert found


@pytest.mark.parametrize(
    ("ending", "text"),
    [
        (".csv", "text,label\na,b\nonly one\n"),  # a broken line
        (".csv", 'text,"la\nbel"\na,b\n'),
        (".csv", "text,other\na,b\n"),
        (".csv", "label,label\na,b\n"),
        (".csv", "text,label\n" + "".join(f"a,{k}\n" for k in range(50_001))),  # numbers, and no classes
        (".jsonl", '{"label": 1.5}\n'),
        (".jsonl", '{"label": true}\n'),
        (".jsonl", '{"label": "a"}\n{"label": 1}\n'),
        (".jsonl", '{"label": "a"}\n{broken\n'),
        (".jsonl", '{"label": ["a"]}\n'),
        (".txt", "label\n"),
    ],
)
def test_what_pyarrow_may_see_otherwise_is_read_line_by_line(ending, text, tmp_path):
    path = tmp_path / ("data" + ending)
    path.write_text(text)
    assert counts(path, "label") is None


@settings(max_examples=60, deadline=None)
@given(
    rows=st.lists(st.tuples(st.text(max_size=8), st.text(max_size=5)), min_size=1, max_size=12),
    ending=st.sampled_from([".csv", ".jsonl"]),
)
def test_any_labels_are_counted_as_they_are_read_or_not_at_all(rows, ending, tmp_path_factory):
    path = tmp_path_factory.mktemp("any") / f"data{ending}"
    with path.open("w", newline="", encoding="utf-8", errors="surrogatepass") as file:
        if ending == ".csv":
            writer = csv.writer(file)
            writer.writerows([("text", "label"), *rows])
        else:
            file.writelines(json.dumps({"text": text, "label": label}) + "\n" for text, label in rows)
    found = counts(path, "label")
    if found is not None:
        assert found == counted_by_reading(path)


@pytest.mark.parametrize("values", [["a", None, "b"], [1, 2, 2], pandas.Categorical(["x", "y", "x"])])
def test_labels_of_parquet_are_counted_as_they_are_read(values, tmp_path):
    pandas.DataFrame({"label": values, "text": ["t"] * 3}).to_parquet(tmp_path / "data.parquet")
    found = counts(tmp_path / "data.parquet", "label")
    assert found is None or found == counted_by_reading(tmp_path / "data.parquet")
    pandas.DataFrame({"label": [0.5, 1.5]}).to_parquet(tmp_path / "floats.parquet")
    assert counts(tmp_path / "floats.parquet", "label") is None
