"""Texts to tokens, many at a time: flat arrays, made without a loop in Python over tokens."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import chain
from typing import Any

import numpy as np

from layerscope.errors import ModelError, first_line
from layerscope.models import Model
from layerscope.models.checkpoints import quiet

_PLAIN = ("transformers.tokenization_utils_tokenizers", "transformers.tokenization_utils_base")


@dataclass
class Tokens:
    """The tokens of n texts, end to end."""

    ids: np.ndarray  # (all tokens,)
    types: np.ndarray | None  # (all tokens,)
    special: np.ndarray  # (all tokens,)
    lengths: np.ndarray  # (n,)
    truncated: np.ndarray  # (n,)
    spans: np.ndarray | None = None  # (all tokens, 2) the characters of its text that each stands for
    cut_spans: np.ndarray | None = None  # (tokens that were cut off, 2)
    cut_lengths: np.ndarray | None = None  # (n,) how many of them are each text's

    @property
    def starts(self) -> np.ndarray:
        """(n,) the place of each text's first token."""
        return np.cumsum(self.lengths) - self.lengths

    @property
    def owner(self) -> np.ndarray:
        """(all tokens,) the text of each."""
        return np.repeat(np.arange(len(self.lengths)), self.lengths)


def tokenized(
    model: Model, texts: Sequence[str], pairs: Sequence[str] | None, limit: int, *, with_spans: bool = False
) -> Tokens:
    """The tokens of texts, or of pairs of them, cut off at `limit`; with the characters they stand for if asked."""
    if not len(texts):
        none = np.empty(0, np.int64)
        return Tokens(
            none, None, none.astype(bool), none, none.astype(bool), none.reshape(0, 2), none.reshape(0, 2), none
        )
    try:
        return _tokens(model, texts, pairs, limit, with_spans)
    except Exception as error:  # settings of a wrong type, say, which it opens with anyway
        raise ModelError(
            f"The tokenizer of {model.name} cannot read texts ({first_line(error)}); its files are damaged or not "
            "for this transformers; save it again with save_pretrained."
        ) from error


def _tokens(model: Model, texts: Sequence[str], pairs: Sequence[str] | None, limit: int, with_spans: bool) -> Tokens:
    tokenizer = model.require_tokenizer()
    quick = _is_plain(tokenizer) and len(texts) > 1
    # Asked for one text, it sets its fast part to what is asked for, which then reads all of them.
    batch = tokenizer(
        list(texts[:1] if quick else texts),
        None if pairs is None else list(pairs[:1] if quick else pairs),
        truncation=True,
        max_length=limit,
        padding=False,
        return_special_tokens_mask=True,
        return_attention_mask=False,
    )
    # A model that tells no types apart gets none, whatever its tokenizer says.
    typed = "token_type_ids" in batch and model.token_types not in (0, 1)
    encodings = batch.encodings
    if quick:
        backend = tokenizer.backend_tokenizer
        encodings = backend.encode_batch(list(texts) if pairs is None else list(zip(texts, pairs, strict=True)))
    if not encodings:
        return _of_slow(tokenizer, batch, typed, texts, pairs, limit)
    ids, lengths = _flat([encoding.ids for encoding in encodings], np.int64)
    tokens = Tokens(
        ids,
        _flat([encoding.type_ids for encoding in encodings], np.int64)[0] if typed else None,
        _flat([encoding.special_tokens_mask for encoding in encodings], bool)[0],
        lengths,
        np.fromiter((bool(encoding.overflowing) for encoding in encodings), bool, len(encodings)),
    )
    if with_spans:
        tokens.spans = _spans(encoding.offsets for encoding in encodings)
        tokens.cut_lengths = np.zeros(len(encodings), np.int64)
        cut = [
            [span for rest in encodings[i].overflowing for span in rest.offsets]
            for i in np.flatnonzero(tokens.truncated).tolist()
        ]
        tokens.cut_spans, tokens.cut_lengths[tokens.truncated] = _spans(cut), [len(spans) for spans in cut]
    return tokens


def _is_plain(tokenizer: Any) -> bool:
    """Whether the fast part alone decides the tokens: nothing of the class's own stands before it."""
    if not getattr(tokenizer, "is_fast", False):
        return False
    methods = [getattr(type(tokenizer), name, None) for name in ("_encode_plus", "__call__")]
    return all(getattr(method, "__module__", None) in _PLAIN for method in methods)


def _of_slow(
    tokenizer: Any, batch: Any, typed: bool, texts: Sequence[str], pairs: Sequence[str] | None, limit: int
) -> Tokens:
    """From a tokenizer that gives lists of numbers and does not say what it cut off."""
    ids, lengths = _flat(batch["input_ids"], np.int64)
    truncated = np.zeros(len(lengths), bool)
    for i in np.flatnonzero(lengths >= limit).tolist():
        with quiet():  # about texts that are too long for the model, which these may well be
            whole = tokenizer(texts[i], None if pairs is None else pairs[i])["input_ids"]
        truncated[i] = len(whole) > lengths[i]
    types = _flat(batch["token_type_ids"], np.int64)[0] if typed else None
    return Tokens(ids, types, _flat(batch["special_tokens_mask"], bool)[0], lengths, truncated)


def _flat(lists: Sequence[Sequence[int]], dtype: Any) -> tuple[np.ndarray, np.ndarray]:
    """The numbers of all lists end to end, and how many each has."""
    lengths = np.fromiter(map(len, lists), np.int64, len(lists))
    return np.fromiter(chain.from_iterable(lists), dtype, int(lengths.sum())), lengths


def _spans(lists: Iterable[Sequence[tuple[int, int]]]) -> np.ndarray:
    numbers = chain.from_iterable(chain.from_iterable(lists))
    return np.fromiter(numbers, np.int64).reshape(-1, 2)
