"""What a user's encode gives becomes places and batches; what it does not give is said."""

import numpy as np
import pytest
import torch

from layerscope.errors import InputError
from layerscope.models.text_reader import FunctionReader, moved
from tests.helpers.models import by_words


def test_places_are_those_of_the_mask():
    reader = FunctionReader(by_words)
    first, second = reader.read(["a b c", ["d"]], 10)
    assert first.words.tolist() == [0, 1, 2]
    assert len(first.ids) == 3
    assert second.words.tolist() == [0]
    assert not first.special.any()
    batch = reader.batch([second.ids, first.ids])
    assert batch.mask.tolist() == [[1, 0, 0], [1, 1, 1]]
    assert torch.equal(batch.args[0], by_words(["d", "a b c"])["inputs"])


def test_padding_may_stand_on_the_left():
    def left(texts):
        batch = by_words(texts)
        return {name: value.flip(1) for name, value in batch.items()}

    (read, _) = FunctionReader(left).read(["a b", "a b c d"], 10)
    assert read.words.tolist() == [1, 0]


def test_max_length_goes_to_a_function_that_takes_it():
    assert [len(r.ids) for r in FunctionReader(by_words).read(["a b c d e", "a"], 3)] == [3, 1]
    with pytest.raises(InputError, match="let encode take max_length="):
        FunctionReader(lambda texts: by_words(texts, 9)).read(["a b c d e"], 3)


@pytest.mark.parametrize(
    ("encode", "sentence"),
    [
        (lambda texts: texts[0].nothing, r"cannot read texts such as 'a b' \(AttributeError"),
        (lambda texts: [1], "a dict with 'inputs' and 'mask'; it gave list"),
        (lambda texts: {"inputs": 1}, r"it gave \['inputs'\]"),
        (lambda texts: {"inputs": 1, "mask": torch.ones(2)}, r"must be \(texts, time\)"),
        (lambda texts: {"inputs": 1, "mask": torch.ones(1, 2), "word": 1}, "nothing reads; known"),
        (lambda texts: {"inputs": 1, "mask": torch.ones(1, 2), "words": [[1]]}, "as large as its mask"),
    ],
)
def test_what_is_wrong_is_said(encode, sentence):
    with pytest.raises(InputError, match=sentence):
        FunctionReader(encode).read(["a b"], 10)


def test_special_and_truncated_are_kept():
    def encode(texts):
        mask = torch.ones(len(texts), 3)
        return {"inputs": mask, "mask": mask, "special": [[1, 0, 0]] * len(texts), "truncated": [True] * len(texts)}

    (read,) = FunctionReader(encode).read(["a"], 10)
    assert read.special.tolist() == [True, False, False]
    assert read.truncated
    assert read.words is None
    assert read.ids.dtype == np.int64


def test_inputs_may_be_named_or_several():
    mask = torch.ones(1, 2)
    named = FunctionReader(lambda texts: {"inputs": {"x": mask}, "mask": mask})
    batch = named.batch([named.read(["a"], 9)[0].ids]).on(torch.device("cpu"))
    assert list(batch.kwargs) == ["x"]
    assert batch.args == ()
    several = FunctionReader(lambda texts: {"inputs": [mask, 3], "mask": mask})
    assert several.batch([several.read(["a"], 9)[0].ids]).args[1] == 3


def test_values_are_moved_through_containers():
    there = moved({"a": (torch.ones(1), [2, torch.ones(1)])}, torch.device("meta"))
    assert there["a"][0].is_meta
    assert there["a"][1][1].is_meta
    assert there["a"][1][0] == 2
