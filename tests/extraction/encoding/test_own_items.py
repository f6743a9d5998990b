"""Which places of a text make up its rows, where a network reads by itself."""

from dataclasses import replace

import numpy as np
import pytest

from layerscope.errors import DataError, InputError
from layerscope.extraction.encoding import wrapped_items
from layerscope.extraction.pooling import Reading
from layerscope.models.text_reader import ReadText, TextReader
from tests.helpers.data import some_examples


class Pieces(TextReader):
    """A mark, then two pieces for every word but the last, which has one."""

    def read(self, texts, max_length):
        self.given = list(texts)
        words = [-1, 0, 0, 1, 1, 2]
        at = np.asarray(words[:max_length])
        return [ReadText(np.arange(len(at)), at, at < 0, max_length < len(words)) for _ in texts]

    def batch(self, ids):
        raise NotImplementedError


class Model:
    name, tokenizer = "pieces", Pieces()

    @staticmethod
    def require_summary():
        return "first"


def rows(pool, **options):
    (item,) = wrapped_items(Model, some_examples(1), Reading(pool, **options))
    return item.take.tolist(), item.segment.tolist(), item.unit.tolist()


@pytest.mark.parametrize(
    ("pool", "options", "expected"),
    [
        ("words", {}, ([2, 4, 5], [0, 1, 2], [0, 1, 2])),
        ("words", {"subword": "first"}, ([1, 3, 5], [0, 1, 2], [0, 1, 2])),
        ("words", {"subword": "mean"}, ([1, 2, 3, 4, 5], [0, 0, 1, 1, 2], [0, 1, 2])),
        ("tokens", {}, ([1, 2, 3, 4, 5], [0, 1, 2, 3, 4], [1, 2, 3, 4, 5])),
        ("tokens", {"special": True}, ([0, 1, 2, 3, 4, 5], [0, 1, 2, 3, 4, 5], [0, 1, 2, 3, 4, 5])),
        ("mean", {}, ([1, 2, 3, 4, 5], [0] * 5, [0])),
        ("last", {}, ([5], [0], [0])),
        ("cls", {}, ([0], [0], [0])),
    ],
)
def test_the_places_of_every_pool(pool, options, expected):
    assert rows(pool, **options) == expected


def test_words_are_given_where_rows_are_words():
    examples = some_examples(2)
    wrapped_items(Model, examples, Reading("words"))
    assert Model.tokenizer.given == [text.split() for text in examples.texts]
    wrapped_items(Model, examples, Reading("mean"))
    assert Model.tokenizer.given == list(examples.texts)


def test_what_cannot_be_read_is_said():
    examples = some_examples(2)
    with pytest.raises(InputError, match="has two texts"):
        wrapped_items(Model, replace(examples, pairs=examples.texts), Reading("mean"))
    with pytest.raises(InputError, match="has several choices"):
        wrapped_items(Model, replace(examples, choices=[["a", "b"]] * 2), Reading("mean"))

    class Silent(Pieces):
        def read(self, texts, max_length):
            return [ReadText(np.arange(2), None, np.ones(2, bool)) for _ in texts]

    class Other(Model):
        tokenizer = Silent()

    with pytest.raises(InputError, match="gives no 'words'"):
        wrapped_items(Other, examples, Reading("words"))
    with pytest.raises(DataError, match=r"pieces finds no word within .* in row "):
        wrapped_items(Other, examples, Reading("mean"))
