"""Perturbed tasks: how often what happens, and that it depends on the seed and the row alone."""

import numpy as np
import pandas
import pytest

import layerscope as ls
from layerscope.data.perturb import damaged, typo
from layerscope.errors import LayerscopeError

N = 2000


@pytest.fixture(scope="module")
def table():
    rng = np.random.default_rng(0)
    words = np.array(["film", "plot", "actor", "scene", "sound", "light", "story", "music"])
    texts = [" ".join(rng.choice(words, 8)) for _ in range(N)]
    return pandas.DataFrame({"text": texts, "label": rng.choice(["bad", "good", "so-so"], N)})


def test_random_labels_are_as_many_as_asked_for_and_of_new_classes(table):
    whole, task = ls.task(table).split(), ls.perturb(table, random_labels=0.3)
    examples = task.split()
    assert task.label_names == ("bad", "good", "so-so", *(f"random {k}" for k in range(1, 6)))
    assert examples.label_names == task.label_names
    assert task.classes == 8
    new = examples.labels >= 3
    assert new.mean() == pytest.approx(0.3, abs=4 * np.sqrt(0.3 * 0.7 / N))
    assert np.array_equal(examples.labels[~new], whole.labels[~new])
    counts = np.bincount(examples.labels[new] - 3, minlength=5)
    assert counts.min() > 0.7 * new.sum() / 5
    for label in range(3):  # whatever the row's own class is
        assert new[whole.labels == label].mean() == pytest.approx(0.3, abs=0.08)
    assert list(examples.texts) == list(whole.texts)


def test_without_new_classes_labels_are_drawn_among_the_tasks_own(table):
    whole, examples = ls.task(table).split(), ls.perturb(table, random_labels=1.0, new_classes=0).split()
    assert examples.label_names == whole.label_names
    assert (examples.labels == whole.labels).mean() == pytest.approx(1 / 3, abs=0.05)


def test_a_shortcut_names_the_class_as_often_as_asked_for(table):
    examples = ls.perturb(table, shortcut=0.8).split()
    shown = np.array([int(text[6]) for text in examples.texts])
    right = shown == examples.labels
    assert right.mean() == pytest.approx(0.8, abs=4 * np.sqrt(0.16 / N))
    wrong = (shown - examples.labels)[~right] % 3  # one of the other two, as often as the other
    assert (wrong == 1).mean() == pytest.approx(0.5, abs=0.12)
    assert examples.texts[0].partition("] ")[2] == table["text"][0]
    never = ls.perturb(table, shortcut=0.0).split()
    assert all(int(text[6]) != label for text, label in zip(never.texts, never.labels, strict=True))


def test_damaged_words_are_as_many_as_asked_for(table):
    whole, examples = ls.task(table).split(), ls.perturb(table, damaged_words=0.5).split()
    words = [text.split() for text in examples.texts]
    assert np.mean([len(w) for w in words]) == pytest.approx(6, abs=0.2)  # of 8, of which 4 are damaged, half left out
    kept = [len(set(w) & set(t.split())) > 0 for w, t in zip(words, whole.texts, strict=True)]
    assert np.mean(kept) > 0.9
    assert np.array_equal(examples.labels, whole.labels)
    assert all(text for text in ls.perturb(table, damaged_words=1.0).split().texts)


def test_a_text_keeps_a_word_and_a_typo_is_another_word_of_about_the_length():
    for seed in range(200):
        rng = np.random.default_rng(seed)
        assert damaged("one two", 1.0, rng).strip()
        assert abs(len(typo("letters", rng)) - 7) <= 1
        assert typo("a", rng)
    assert damaged("", 0.5, rng) == ""
    assert damaged("left as it is", 0.0, rng) == "left as it is"


def test_what_happens_depends_on_the_seed_and_the_row_alone(table):
    options = {"random_labels": 0.5, "shortcut": 0.7, "damaged_words": 0.3}
    one, other = ls.perturb(table, **options), ls.perturb(table, **options)
    first, few = one.split(), other.split(limit=50)
    assert list(first.texts[:50]) == list(few.texts)
    assert np.array_equal(first.labels[:50], few.labels)
    assert list(ls.perturb(table, **options, seed=1).split(limit=50).texts) != list(few.texts)
    # One kind of damage does not change where another falls.
    labels = ls.perturb(table, random_labels=0.5).split().labels
    assert np.array_equal(labels, first.labels)


def test_every_split_is_perturbed_and_another_perturbation_is_another_task(table):
    source = {"train": table, "validation": table}
    task = ls.perturb(source, shortcut=1.0)
    assert all(task.split(name).texts[0].startswith("[CLASS") for name in ("train", "validation"))
    assert task.only("train").split().texts[0].startswith("[CLASS")
    assert task.with_metric("f1").split("train").texts[0].startswith("[CLASS")
    specs = [
        ls.perturb(source, **o).spec() for o in ({"shortcut": 1.0}, {"shortcut": 0.9}, {"shortcut": 1.0, "seed": 1})
    ]
    assert len({str(spec) for spec in specs}) == 3
    assert task.name != ls.task(source).name


def test_the_first_texts_of_pairs_are_changed_and_the_second_stay():
    pairs = pandas.DataFrame({"premise": ["a b c"] * 4, "hypothesis": ["d e"] * 4, "label": ["yes", "no"] * 2})
    examples = ls.perturb(ls.task(pairs, text="premise", text_pair="hypothesis"), shortcut=1.0).split()
    assert examples.texts[0] == "[CLASS1] a b c"
    assert list(examples.pairs) == ["d e"] * 4


@pytest.mark.parametrize(
    ("options", "reason"),
    [
        ({}, "Nothing was asked for"),
        ({"random_labels": 1.2}, "a share from 0 to 1"),
        ({"shortcut": -0.1}, "a share from 0 to 1"),
        ({"damaged_words": float("nan")}, "a share from 0 to 1"),
        ({"random_labels": 0.5, "new_classes": -1}, "new_classes is -1"),
        ({"random_labels": 0.5, "seed": -1}, "seed is -1"),
    ],
)
def test_what_cannot_be_is_a_sentence(table, options, reason):
    with pytest.raises(LayerscopeError, match=reason):
        ls.perturb(table, **options)


def test_tasks_that_cannot_be_perturbed_are_refused(table):
    numbers = table.assign(label=np.linspace(0, 1, N))
    with pytest.raises(LayerscopeError, match="numbers as labels"):
        ls.perturb(ls.task(numbers, regression=True), shortcut=1.0)
    assert ls.perturb(ls.task(numbers, regression=True), damaged_words=0.5).split().labels[3] == numbers["label"][3]
    with pytest.raises(LayerscopeError, match="one class"):
        ls.perturb(table.assign(label="bad"), shortcut=1.0)
    tags = pandas.DataFrame({"words": [["a", "b"]], "tags": [["x", "y"]]})
    with pytest.raises(LayerscopeError, match="of the kind 'tags'"):
        ls.perturb(ls.task(tags, text="words", tags="tags"), damaged_words=0.5)
