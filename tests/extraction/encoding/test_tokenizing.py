"""Flat tokens are what the tokenizer itself gives, by whichever way they are read."""

import numpy as np
import pytest

from layerscope.extraction import encoding
from layerscope.extraction.encoding import tokenize
from tests.helpers.models import random_model, word_tokenizer

TEXTS = ["the file is a list of value s", "a", "return this (very) long string, in this object", "", "not an object"]
PAIRS = ["a list", "the file of the value", "is that it?", "this", "string"]


@pytest.mark.parametrize("family", ["bert", "xlnet", "gpt2"])
@pytest.mark.parametrize("pairs", [None, PAIRS])
@pytest.mark.parametrize("limit", [6, 64])
def test_as_the_tokenizer_itself_says(family, pairs, limit):
    model = random_model(family)
    tokenizer = model.tokenizer
    assert encoding._is_plain(tokenizer)
    tokens = tokenize(model, TEXTS, pairs, limit, with_spans=True)
    usual = tokenizer(
        TEXTS, pairs, truncation=True, max_length=limit, return_special_tokens_mask=True, return_offsets_mapping=True
    )
    for i, start in enumerate(tokens.starts):
        own = slice(start, start + tokens.lengths[i])
        assert tokens.ids[own].tolist() == usual["input_ids"][i]
        assert tokens.special[own].tolist() == [bool(x) for x in usual["special_tokens_mask"][i]]
        assert [tuple(span) for span in tokens.spans[own].tolist()] == usual["offset_mapping"][i]
        assert tokens.owner[own].tolist() == [i] * len(usual["input_ids"][i])
        if tokens.types is not None:
            assert tokens.types[own].tolist() == usual["token_type_ids"][i]
        whole = tokenizer(TEXTS[i], None if pairs is None else pairs[i])["input_ids"]
        assert tokens.truncated[i] == (len(whole) > limit)
        assert (tokens.cut_lengths[i] > 0) == tokens.truncated[i]
    assert (tokens.types is None) == (family == "gpt2")


def test_a_class_with_reading_of_its_own_is_asked_itself():
    from transformers import PreTrainedTokenizerFast

    class Loud(PreTrainedTokenizerFast):
        def _encode_plus(self, text, *args, **kwargs):
            return super()._encode_plus([t.upper() for t in text] if isinstance(text, list) else text, *args, **kwargs)

    plain = word_tokenizer()
    backend = plain.backend_tokenizer
    names = {n: getattr(plain, n) for n in ("unk_token", "pad_token", "cls_token", "sep_token", "mask_token")}
    loud = Loud(tokenizer_object=backend, **names)
    assert not encoding._is_plain(loud)
    model = random_model("bert")
    model.tokenizer = loud
    upper = tokenize(model, TEXTS, None, 64)
    assert upper.ids[: upper.lengths[0]].tolist() == plain(TEXTS[0].upper())["input_ids"]


def test_no_text_gives_no_token():
    tokens = tokenize(random_model("bert"), [], None, 8)
    assert len(tokens.ids) == len(tokens.lengths) == 0
    assert tokens.lengths.dtype == np.int64
