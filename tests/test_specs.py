"""Specs: every part of a task, of examples, readings, plans and strategies changes what they are called in keys.

Those of networks and tokenizers are in models/test_scanning.py and models/test_identity.py.
"""

import dataclasses
import json

import numpy as np
import pytest
import torch

import layerscope as ls
from layerscope.extraction.pooling import Reading
from layerscope.store import keys_of
from tests.helpers.data import two_class_frame, two_class_task
from tests.helpers.models import shared_encoder


def test_the_spec_of_a_task_has_its_kind_its_classes_in_order_and_its_metric():
    frame = two_class_frame(30, 0).assign(other="the list", label=lambda f: f["label"].map({0: "no", 1: "yes"}))
    numbers = two_class_frame(30, 0).assign(label=np.linspace(0, 1, 30))
    base = ls.task(frame, text="text", label="label")
    others = [
        base.with_metric("f1"),
        ls.task(frame.assign(label=frame["label"].map({"no": "yes", "yes": "never"})), text="text", label="label"),
        ls.task(frame, text="text", text_pair="other", label="label"),
        ls.task(numbers, text="text", label="label", regression=True),
    ]
    assert base.spec() == ls.task(frame, text="text", label="label").spec() == base.with_metric("accuracy").spec()
    assert all(json.dumps(other.spec()) != json.dumps(base.spec()) for other in others)


def test_the_order_of_the_labels_makes_another_key():
    import datasets

    def task_of(names):
        features = datasets.Features({"text": datasets.Value("string"), "label": datasets.ClassLabel(names=names)})
        data = {"text": list(two_class_frame(40, 0)["text"]), "label": [k % 2 for k in range(40)]}
        return ls.task({"train": datasets.Dataset.from_dict(data, features=features)})

    one, other = task_of(["no", "yes"]), task_of(["yes", "no"])
    assert one.label_names == ("no", "yes")
    assert one.spec() != other.spec()
    assert keys_of(lambda: ls.tune(shared_encoder(), one)) != keys_of(lambda: ls.tune(shared_encoder(), other))


EXAMPLES = {
    "task": "other",
    "split": "test",
    "texts": lambda e: [*e.texts[:-1], "another text"],
    "rows": lambda e: e.rows + 1,
    "pairs": lambda e: list(e.texts),
    "choices": lambda e: [[text, text] for text in e.texts],
    "words": lambda e: [text.split() for text in e.texts],
    "tags": lambda e: [np.zeros(len(text.split()), np.int64) for text in e.texts],
    "prompts": lambda e: list(e.texts),
    "labels": lambda e: 1 - e.labels,
    "label_names": ("b", "a"),
    "words_by": r"\w+",
}


@pytest.mark.parametrize("part", EXAMPLES)
def test_every_part_of_examples_changes_their_spec(part):
    examples = two_class_task().split("train")
    value = EXAMPLES[part]
    edited = dataclasses.replace(examples, **{part: value(examples) if callable(value) else value})
    assert edited.spec() != examples.spec()
    some = examples.take(slice(20))
    edited = dataclasses.replace(some, **{part: value(some) if callable(value) else value})
    assert edited.spec() != some.spec()
    assert edited.take(slice(10)).spec() != some.take(slice(10)).spec()


def test_every_field_of_examples_is_edited_above():
    from layerscope.data import Examples

    assert {f.name for f in dataclasses.fields(Examples)} == {
        *EXAMPLES,
        "skipped",
        "lines",
        "counted",
        "_whole",
        "_ranks",
    }


def test_examples_are_those_of_their_split_however_they_were_taken():
    examples = two_class_task().split("train")
    assert dataclasses.replace(examples).spec() == examples.spec() == examples.take(slice(None)).spec()
    assert examples.take(slice(20)).take(slice(10)).spec() == examples.take(slice(10)).spec()
    assert examples.take(slice(10)).spec() != examples.take(slice(10, 20)).spec()


def test_lists_that_join_to_the_same_text_are_not_alike():
    examples = two_class_task().split("train").take([0])
    words = [dataclasses.replace(examples, words=[split]) for split in (["ab", "c"], ["a", "bc"], ["abc"])]
    numbers = [dataclasses.replace(examples, labels=np.zeros(1, kind)) for kind in ("int64", "float64")]
    assert len({e.fingerprint for e in [*words, *numbers]}) == 5


def test_edited_examples_are_extracted_anew():
    examples = two_class_task().split("validation").take(slice(12))
    edited = dataclasses.replace(examples, texts=[f"not {text}" for text in examples.texts])
    first, second = ls.extract(shared_encoder(), examples), ls.extract(shared_encoder(), edited)
    assert not torch.equal(first[2], second[2])
    assert torch.equal(ls.extract(shared_encoder(), edited, store=False)[2], second[2])


READINGS = {
    "pool": ({}, {"pool": "mean"}),
    "subword": ({"pool": "words"}, {"pool": "words", "subword": "first"}),
    "special": ({"pool": "tokens"}, {"pool": "tokens", "special": True}),
    "max_length": ({}, {"max_length": 64}),
    "final_norm": ({}, {"final_norm": True}),
    "autocast": ({}, {"autocast": "bfloat16"}),
}
PLANS = {"keep": ({"keep": [1, 2, 3]}, {"keep": [1, 3]}), "head": ({"keep": [1, 2, 3]}, {"keep": [1, 2, 3], "head": 2})}
_WHOLE = {"bottom": 1, "top": 2, "head": 3}
STRATEGIES = {
    "bottom": (_WHOLE, {**_WHOLE, "bottom": 2}),
    "top": (_WHOLE, {**_WHOLE, "top": 3}),
    "head": (_WHOLE, {**_WHOLE, "head": 2}),
    "embeddings": (_WHOLE, {**_WHOLE, "embeddings": True}),
}


@pytest.mark.parametrize(("noun", "changes"), [(Reading, READINGS), (ls.LayerPlan, PLANS), (ls.Strategy, STRATEGIES)])
def test_every_field_of_a_value_changes_its_spec(noun, changes):
    assert {field.name for field in dataclasses.fields(noun)} == set(changes)
    for one, other in changes.values():
        assert noun(**one).spec() == noun(**one).spec() != noun(**other).spec()
        json.dumps(noun(**other).spec(), allow_nan=False)
