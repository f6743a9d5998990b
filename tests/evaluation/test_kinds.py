"""Where a task and a head meet."""

import language
import pandas
import pytest
import zoo

import layerscope as ls
from layerscope.errors import InputError
from layerscope.evaluation.kinds import meeting

TEXT = ls.task(language.frame(), kind="text")
SINGLE = ls.task(language.frame().assign(label=[0, 1] * 6))
PAIR = ls.task(pandas.DataFrame({"sentence1": ["a"] * 4, "sentence2": ["b"] * 4, "label": [0.5, 1.5, 2.5, 0.1]}))
CHOICE = ls.task(pandas.DataFrame({"text": ["a"] * 2, "endings": [["b", "c"]] * 2, "label": [0, 1]}), choices="endings")
TAGS = ls.task(pandas.DataFrame({"words": [["a"], ["b"]], "pos": [["X"], ["Y"]]}), tags="pos")
BARE = ls.task(language.frame())


@pytest.mark.parametrize(
    ("family", "kind", "task", "asked"),
    [
        ("bert", "classifier", SINGLE, "classes"),
        ("bert", "classifier", PAIR, "classes"),
        ("bert", "choice", CHOICE, "classes"),
        ("bert", "tags", TAGS, "tags"),
        ("llama", "next", TEXT, "running"),
        ("llama", "next", BARE, "running"),
        ("llama", "next", CHOICE, "likelihood"),
        ("bert", "masked", BARE, "masked"),
        ("bert", "encoder", PAIR, "embeddings"),
    ],
)
def test_what_is_asked(family, kind, task, asked):
    assert meeting(ls.load(zoo.network(family, kind)), task)[0] == asked


@pytest.mark.parametrize(
    ("family", "kind", "task", "sentence"),
    [
        ("bert", "spans", SINGLE, "gives the place of an answer in a text. Such a task goes with a classifier"),
        ("electra", "pretraining", TEXT, "tells which tokens of a text were replaced. .* a causal or a masked"),
        ("xlnet", "next", TEXT, "in any order"),
        ("bert", "masked", CHOICE, "a head for choices, or a causal language model"),
        ("llama", "next", TAGS, "token classification"),
    ],
)
def test_what_would_do_is_said(family, kind, task, sentence):
    with pytest.raises(InputError, match=sentence):
        meeting(ls.load(zoo.network(family, kind)), task)
