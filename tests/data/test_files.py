"""A user's own data: every format, every guess, every mistake."""

import gzip
import json

import numpy as np
import pandas
import pytest

import layerscope as ls
from layerscope.errors import DataError, InputError, UnknownNameError

ROWS = [("good film", "pos"), ("bad film", "neg"), ('it said "no", twice', "neg"), ("fine\nbut long", "pos")]


def write(path, rows=ROWS, header=("text", "label")):
    frame = pandas.DataFrame(rows, columns=list(header))
    kind = path.name.removesuffix(".gz").split(".")[-1]
    if kind == "csv":
        frame.to_csv(path, index=False)
    elif kind == "tsv":
        frame.replace("\n", " ", regex=True).to_csv(path, index=False, sep="\t", quoting=3, escapechar="\\")
    elif kind == "jsonl":
        frame.to_json(path, orient="records", lines=True)
    else:
        frame.to_parquet(path)
    return path


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


def test_a_folder_names_several_splits_and_validation_is_the_default(tmp_path):
    write(tmp_path / "train.csv")
    write(tmp_path / "dev.csv", ROWS[:1])
    task = ls.task(tmp_path)
    assert set(task.splits) == {"train", "validation"}
    assert len(task.split()) == 1
    assert len(task.split(learning=True)) == 4
    assert task.split().label_names == ("neg", "pos")  # from all splits, not only from this one
    with pytest.raises(InputError, match=r"no split 'vaildation'; it has .* Did you mean 'validation'"):
        task.split("vaildation")


def test_a_mapping_names_several_splits(tmp_path):
    task = ls.task({"one": write(tmp_path / "a.csv"), "two": write(tmp_path / "b.parquet")})
    assert task.splits == ("one", "two")
    with pytest.raises(InputError, match="choose one of one, two"):
        task.split()


def test_a_pandas_table_is_a_task():
    task = ls.task(pandas.DataFrame({"text": ["a b", "c d"], "label": [0.5, 1.25]}))
    assert task.regression
    assert task.metric == "pearson_spearman"
    assert task.split().labels.tolist() == [0.5, 1.25]


@pytest.mark.parametrize(
    ("columns", "expected"),
    [
        ({"sentence1": ["a b"], "sentence2": ["c d"], "label": [1]}, "pair"),
        ({"premise": ["a b"], "hypothesis": ["c d"], "gold": [1]}, "pair"),
        ({"id": ["7"], "comment": ["a b"], "label": [1]}, "single"),
        ({"words": [["a", "b"]]}, "single"),
    ],
)
def test_columns_are_guessed_where_only_one_reading_is_possible(columns, expected):
    task = ls.task(pandas.DataFrame(columns))
    assert task.kind == expected
    assert task.split().texts[0] == "a b"


def test_columns_that_could_be_read_two_ways_are_asked_for():
    frame = pandas.DataFrame({"title": ["a b"], "body": ["c d"]})
    with pytest.raises(DataError, match=r"not clear; it has 'title', 'body'.*text='\.\.\.'"):
        ls.task(frame).split()
    assert ls.task(frame, text="body").split().texts == ["c d"]
    assert ls.task(frame, text="title", text_pair="body").split().pairs == ["c d"]


def test_columns_that_are_not_there_are_named_with_the_near_ones(tmp_path):
    path = write(tmp_path / "a.csv", header=("review", "stars"))
    with pytest.raises(
        DataError, match=r"no column 'reveiw' for the text; it has 'review', 'stars'. Did you mean 'review'"
    ):
        ls.task(path, text="reveiw").split()
    with pytest.raises(DataError, match="no column 'star' for the label"):
        ls.task(path, text="review", label="star").split()


def test_choices_are_a_column_of_lists_or_several_columns():
    lists = pandas.DataFrame({"text": ["q r"], "endings": [["a", "b", "c"]], "label": [2]})
    assert ls.task(lists, choices="endings").split().choices == [["a", "b", "c"]]
    columns = pandas.DataFrame({"text": ["q r"], "x": ["a"], "y": ["b"], "label": [1]})
    task = ls.task(columns, text="text", choices=["x", "y"])
    assert task.kind == "choice"
    assert task.split().choices == [["a", "b"]]


def bad_csv(tmp_path):
    path = tmp_path / "bad.csv"
    path.write_text('text,label\ngood,1\n,0\n"two\nlines",0\ntoo,many,fields\nfine,\nlast,1\n')
    return path


def test_bad_rows_are_counted_and_placed(tmp_path):
    with pytest.raises(DataError) as error:
        ls.task(bad_csv(tmp_path)).split()
    message = str(error.value)
    assert "3 of 6 rows" in message
    assert "line 3, column 'text': the text is missing" in message
    assert "line 6: 3 fields where the header has 2" in message
    assert "line 7, column 'label': the label is missing" in message
    assert "skip_bad=True" in message


def test_bad_rows_are_left_out_on_request_and_the_others_keep_their_numbers(tmp_path, caplog):
    examples = ls.task(bad_csv(tmp_path), skip_bad=True).split()
    assert list(examples.texts) == ["good", "two\nlines", "last"]
    assert examples.rows.tolist() == [0, 2, 5]
    assert examples.skipped == 3
    assert "3 of 6 rows" in caplog.text


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


def test_two_files_for_one_split_are_refused(tmp_path):
    write(tmp_path / "dev.csv")
    write(tmp_path / "validation.parquet")
    with pytest.raises(DataError, match="two files for split 'validation'"):
        ls.task(tmp_path)


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


def test_the_fingerprint_changes_with_any_text_or_label(tmp_path):
    def of(**columns):
        return ls.task(pandas.DataFrame({"text": ["a b", "c d"], "label": [0, 1], **columns})).split().fingerprint

    assert of() == of()
    assert len({of(), of(text=["a b", "c e"]), of(text=["ab", " c d"]), of(label=[1, 0])}) == 4


def test_taking_some_keeps_identity(tmp_path):
    examples = ls.task(write(tmp_path / "a.csv")).split()
    part = examples.take(np.array([1, 3]))
    assert part.rows.tolist() == [1, 3]
    assert part.labels.tolist() == [0, 1]
    assert part.fingerprint == examples.fingerprint


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


def test_paths_and_tables_mix_and_data_sets_are_tables(tmp_path):
    import datasets

    features = datasets.Features({"text": datasets.Value("string"), "label": datasets.ClassLabel(names=["b", "a"])})
    data = datasets.Dataset.from_dict({"text": ["a b"], "label": [1]}, features=features)
    assert ls.task(datasets.DatasetDict({"train": data})).split().label_names == ("b", "a")
    task = ls.task(
        {"train": write(tmp_path / "a.csv"), "validation": pandas.DataFrame(ROWS, columns=["text", "label"])}
    )
    assert task.split().labels.tolist() == task.split("train").labels.tolist()


def test_options_that_cannot_apply_are_refused(tmp_path):
    task = ls.task(write(tmp_path / "a.csv"))
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
