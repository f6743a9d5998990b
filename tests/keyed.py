"""What calls that use the store are made of: small models, texts whose class is their last word, and rows."""

from functools import cache

import numpy as np
import pandas
import zoo

import layerscope as ls

SMALL = {"num_hidden_layers": 3, "hidden_size": 16, "num_attention_heads": 2, "intermediate_size": 16}
WORDS = ["file", "list", "value", "return", "object", "string", "and", "the", "of", "in", "this", "that", "not"]


@cache
def classifier(seed=0):
    return ls.load(zoo.network("bert", seed=seed, labels=2, **SMALL), tokenizer=zoo.tokenizer())


@cache
def encoder(seed=0):
    return ls.load(zoo.network("bert", "encoder", seed=seed, **SMALL), tokenizer=zoo.tokenizer())


@cache
def speaker():
    return ls.load(zoo.network("bert", "masked", **SMALL), tokenizer=zoo.tokenizer())


@cache
def texts():
    return ls.task({"train": rows(20, 0)[["text"]], "validation": rows(12, 1)[["text"]]}, kind="text")


def rows(count, seed):
    """Texts whose class is the word that they end with."""
    generator = np.random.default_rng(seed)
    labels = generator.integers(0, 2, count)
    texts = [" ".join([*generator.choice(WORDS[2:], size=generator.integers(1, 7)), WORDS[k]]) for k in labels]
    return pandas.DataFrame({"text": texts, "label": labels})


@cache
def task(seed=0, metric=None):
    return ls.task(
        {"train": rows(60, seed), "validation": rows(48, seed + 1), "test": rows(44, seed + 2)}, metric=metric
    )


@cache
def cased():
    """A tokenizer that keeps the case of letters."""
    other = zoo.tokenizer()
    other.backend_tokenizer.normalizer = None
    return other


@cache
def reps(seed=0):
    draw = np.random.default_rng(seed).normal
    return ls.Representations.from_arrays([draw(size=(60, 4)), draw(size=(60, 4))], np.arange(60) % 2)
