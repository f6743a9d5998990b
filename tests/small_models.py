"""Small networks over a few labelled texts, and the key of their rows."""

import pandas
import zoo

import layerscope as ls
from layerscope.store import keys_of

SMALL = {"num_hidden_layers": 2, "hidden_size": 16, "num_attention_heads": 2, "intermediate_size": 16}
TEXTS = {"text": ["a file", "the list of an object", "not this value", "return"] * 4, "label": [0, 1] * 8}


def model(family="bert", tokenizer=None, **options):
    network = zoo.network(family, "encoder", **{**SMALL, **options})
    return ls.load(network, tokenizer=tokenizer or zoo.tokenizer(family))


def table():
    return ls.task(pandas.DataFrame(TEXTS))


def key(opened):
    return keys_of(lambda: ls.extract(opened, table()))
