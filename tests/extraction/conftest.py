import pytest

import layerscope as ls
from tests.helpers.models import random_network, word_tokenizer

SENTENCES = [
    "the file is a list of value s",
    "return this string",
    "a",
    "not an object, but a (very) long and winding sentence: with 12 marks of punctuation!",
    "from the list to the file in this object",
    "value; value; value",
    "is that it?",
]


@pytest.fixture
def task(tmp_path):
    import pandas

    frame = pandas.DataFrame({"text": SENTENCES, "label": list("abcabca")})
    return ls.task(frame)


@pytest.fixture
def corpus(tmp_path):
    path = tmp_path / "corpus.txt"
    path.write_text("\n".join(SENTENCES) + "\n")
    return ls.task(path)


@pytest.fixture
def reps(task):
    model = ls.load(random_network("bert", "encoder"), tokenizer=word_tokenizer())
    return ls.extract(model, task, pool="mean", store=False)
