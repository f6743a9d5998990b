"""Small models, texts and healings for tests of healing."""

import language
import pandas
import quick
import zoo

import layerscope as ls

SMALL = {"num_hidden_layers": 3, "hidden_size": 16, "intermediate_size": 16, "num_attention_heads": 2}
LLAMA = {**SMALL, "num_key_value_heads": 2}
PLAN = ls.LayerPlan([1, 3])
FEW = {"steps": 6, "batch": 4, "max_length": 16, "learning_rate": 1e-2}


def decoder(**changes):
    return language.model("llama", **{**LLAMA, **changes})


def masked():
    return language.model("bert", "masked", **SMALL)


def classifier(labels=3):
    return ls.load(zoo.network("bert", labels=labels, **SMALL), tokenizer=zoo.tokenizer())


def encoder():
    return ls.load(zoo.network("bert", "encoder", **SMALL), tokenizer=zoo.tokenizer())


def running(count=40, held=10):
    """Running text with a split to learn from and one to hold out."""
    return ls.task({"train": language.frame(count, most=20), "validation": language.frame(held, seed=1)}, kind="text")


def labelled(labels=True):
    """Short texts of three classes, or the same without their labels."""
    parts = {"train": quick.rows(32, 0), "validation": quick.rows(16, 1)}
    return ls.task(parts if labels else {name: part[["text"]] for name, part in parts.items()})


def pairs(count=24):
    """Pairs of texts with a number."""
    texts = language.texts(2 * count, most=8)
    return pandas.DataFrame({"a": texts[:count], "b": texts[count:], "score": [k % 6 + 0.5 for k in range(count)]})
