"""How texts are read, as a value: plain, whole, and refused where an option would be ignored."""

from dataclasses import fields, replace

import pytest

from layerscope.errors import InputError
from layerscope.extraction.pooling import POOLS, Reading


@pytest.mark.parametrize(
    ("options", "sentence"),
    [
        ({"pool": "max"}, "no pool 'max'; allowed: cls, mean"),
        ({"pool": "words", "subword": "middle"}, "no sub-word choice 'middle'"),
        ({"autocast": "int8"}, "no autocast type 'int8'; allowed: bfloat16, float16"),
        ({"special": True}, "special=True is for the pools mean and tokens; the pool 'cls' has no use for it"),
        ({"subword": "first"}, "subword='first' is for the pool words; the pool 'cls' has no use for it"),
        ({"max_length": 2}, "max_length is 2; a whole number of at least 3 tokens is needed"),
        ({"max_length": 16.0}, "max_length is 16.0; a whole number of at least 3 tokens is needed"),
    ],
)
def test_what_cannot_be_is_a_sentence(options, sentence):
    with pytest.raises(InputError, match=sentence):
        Reading(**options)


def test_its_spec_is_every_field():
    spec = Reading().spec()
    assert list(spec) == [field.name for field in fields(Reading)]
    assert Reading(**spec) == Reading()
    changes = [{"pool": "mean"}, {"max_length": 64}, {"final_norm": True}, {"autocast": "bfloat16"}]
    assert len({str(Reading(**change).spec()) for change in changes} | {str(spec)}) == 5


@pytest.mark.parametrize("pool", POOLS)
def test_every_pool_is_a_value(pool):
    assert Reading(pool) == Reading(pool=pool)
    assert hash(Reading(pool)) == hash(replace(Reading(), pool=pool))
    with pytest.raises(AttributeError):
        Reading(pool).pool = "cls"
