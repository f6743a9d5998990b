import subprocess
import sys
from collections import Counter

import pytest

import layerscope as ls
from layerscope.data import pydocs
from layerscope.errors import DataError


@pytest.fixture(scope="module")
def rows():
    return list(pydocs.sentences(pydocs._library()))


def test_there_are_thousands_of_real_sentences_in_six_groups(rows):
    assert 4000 < len(rows) < 9000
    assert len({text for _, _, text in rows}) == len(rows)
    assert all(5 <= len(text.split()) <= 60 for _, _, text in rows)
    assert not any({"test", "tests", "idle_test"} & set(module.split(".")) for _, module, _ in rows)
    counts = Counter(label for label, _, _ in rows)
    assert len(counts) == 6
    assert min(counts.values()) > 200


def test_splits_are_stratified_disjoint_and_repeatable(rows):
    one, two = pydocs.divide(rows), pydocs.divide(rows)
    assert one == two
    assert pydocs.divide(rows, seed=1) != one
    assert sum(map(len, one.values())) == len(rows)
    for split, share in pydocs.SHARES.items():
        for label, total in Counter(label for label, _, _ in rows).items():
            here = sum(row[0] == label for row in one[split])
            assert abs(here / total - share) < 0.02, (split, label)


def test_the_first_rows_are_a_sample(rows):
    train = pydocs.divide(rows)["train"]
    whole, first = (Counter(row[0] for row in part) for part in (train, train[:500]))
    for label, count in whole.items():
        assert abs(first[label] / 500 - count / len(train)) < 0.06


def test_near_duplicates_of_a_package_are_on_one_side(rows):
    splits = pydocs.divide(rows)
    side = {row: split for split, members in splits.items() for row in members}
    bags = {row: set(pydocs.words_of(row[2].lower())) for row in rows}
    tkinter = [row for row in rows if row[1].startswith("tkinter")]
    pairs = [(a, b) for i, a in enumerate(tkinter) for b in tkinter[:i]]
    alike = [(a, b) for a, b in pairs if len(bags[a] & bags[b]) >= 0.6 * len(bags[a] | bags[b])]
    assert len(alike) > 50
    assert all(side[a] == side[b] for a, b in alike)


def test_the_task_has_texts_labels_words_and_the_python_in_its_identity():
    task = ls.task("pydocs")
    examples = task.split()
    assert examples.task == f"pydocs@{pydocs.edition()}"
    assert task.label_names == ("concurrency", "files", "graphics", "internet", "language", "numbers")
    assert len(examples.words) == len(examples.texts) == len(examples.labels)
    assert task.split("train").fingerprint != examples.fingerprint


def test_nothing_of_the_library_is_imported():
    code = (
        "import sys; before = set(sys.modules)\n"
        "from layerscope.data import pydocs\n"
        "n = len(list(pydocs.sentences(pydocs._library())))\n"
        "print(n, 'turtle' in sys.modules, 'antigravity' in sys.modules, 'tkinter' in sys.modules)"
    )
    out = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout.split()
    assert int(out[0]) > 4000
    assert out[1:] == ["False"] * 3


def test_a_python_without_its_library_is_told_apart():
    with pytest.raises(DataError, match="no standard library source"):
        pydocs.divide([])
