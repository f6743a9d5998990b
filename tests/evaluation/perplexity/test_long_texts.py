"""A long text in pieces: the tokens and places of the whole, or the whole itself."""

import numpy as np
import pytest
from tokenizers import Tokenizer, models, pre_tokenizers, trainers
from transformers import PreTrainedTokenizerFast

from layerscope.evaluation import perplexity
from layerscope.evaluation.perplexity import tokens_in_pieces
from tests.helpers.data import random_texts
from tests.helpers.models import word_tokenizer

TEXT = "\n\n".join([*random_texts(300, most=40), "über größe naïve 日本語 \U0001f600 " * 40, "x" * 300])


def byte_level():
    """A byte-level BPE, as GPT-2's is."""
    backend = Tokenizer(models.BPE())
    backend.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    trainer = trainers.BpeTrainer(vocab_size=400, initial_alphabet=pre_tokenizers.ByteLevel.alphabet())
    backend.train_from_iterator([TEXT], trainer)
    return PreTrainedTokenizerFast(tokenizer_object=backend)


@pytest.mark.parametrize("make", [byte_level, word_tokenizer, lambda: word_tokenizer("llama")])
@pytest.mark.parametrize("piece", [1200, 1777, 5000])
def test_pieces_are_the_whole(make, piece, monkeypatch):
    tokenizer = make()
    whole = tokenizer(TEXT, add_special_tokens=False, return_offsets_mapping=True)
    monkeypatch.setattr(perplexity, "LONG", 1000)
    monkeypatch.setattr(perplexity, "_PIECE", piece)
    monkeypatch.setattr(perplexity, "_OVERLAP", 400)
    joined = perplexity._in_pieces(tokenizer, TEXT)
    ids, spans = tokens_in_pieces(tokenizer, TEXT)
    assert ids.tolist() == whole["input_ids"]
    assert spans.tolist() == [list(span) for span in whole["offset_mapping"]]
    assert joined is not None or "x" * 300 in TEXT  # a word longer than what is shared cannot be joined in


def test_a_tokenizer_that_sees_pieces_otherwise_reads_the_whole(monkeypatch):
    monkeypatch.setattr(perplexity, "LONG", 1000)
    monkeypatch.setattr(perplexity, "_PIECE", 1000)
    monkeypatch.setattr(perplexity, "_OVERLAP", 200)

    def counting(texts, **_):
        """Every token is numbered from the start of its text."""
        spans = [[(k, k + 1) for k in range(len(text))] for text in texts]
        return {"input_ids": [list(range(len(text))) for text in texts], "offset_mapping": spans}

    ids, _ = tokens_in_pieces(counting, "a" * 5000)
    np.testing.assert_array_equal(ids, np.arange(5000))
