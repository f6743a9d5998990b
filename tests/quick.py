"""Small texts, models and trainings for tests of tuning."""

import numpy as np
import pandas
import zoo

import layerscope as ls

WORDS = ["file", "list", "value", "return", "object", "string", "and", "the", "of", "in", "this", "that", "not"]


QUICK = {"epochs": 2, "batch": 8, "learning_rate": 1e-2}


def rows(count, seed):
    """Texts whose class is a word that stands in them."""
    generator = np.random.default_rng(seed)
    labels = generator.integers(0, 3, count)
    texts = [" ".join([*generator.choice(WORDS[3:], size=generator.integers(1, 7)), WORDS[k]]) for k in labels]
    return pandas.DataFrame({"text": texts, "label": labels})


def model(family="bert", kind="encoder", **options):
    return ls.load(zoo.network(family, kind, **options), tokenizer=zoo.tokenizer(family))
