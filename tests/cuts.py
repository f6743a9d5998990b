"""A small model and small texts to cut it on."""

import numpy as np
import pandas
import zoo

import layerscope as ls

WORDS = ["file", "list", "value", "return", "object", "string", "and", "the", "of", "in", "this", "that", "not"]


def model(family, kind="classifier"):
    return ls.load(zoo.network(family, kind), tokenizer=zoo.tokenizer(family))


def table(count=40):
    generator = np.random.default_rng(0)
    texts = [" ".join(generator.choice(WORDS, size=generator.integers(1, 12))) for _ in range(count)]
    return pandas.DataFrame({"text": texts, "label": np.arange(count) % 3})
