"""Texts to tokens: ids, and for each row to come the tokens that it is made of."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from layerscope.data import Examples
from layerscope.errors import DataError, InputError, ModelError, first_line
from layerscope.extraction.reading import Reading
from layerscope.models import Model
from layerscope.models.checkpoints import quiet


@dataclass
class Item:
    """One text (or one choice of it) as a model sees it."""

    ids: np.ndarray  # (t,) token ids, special tokens included, no padding
    types: np.ndarray | None  # (t,) token type ids
    take: np.ndarray  # positions of the tokens that make up the rows
    segment: np.ndarray  # (len(take),) the row of this item that each belongs to
    unit: np.ndarray  # (rows,) the word or token number of each row
    truncated: bool
    special: np.ndarray  # (t,) whether the tokenizer added the token, as a separator or the like
    targets: np.ndarray | None = None  # (len(take),) what a head is to give there: a token, or a class

    def __len__(self) -> int:
        return len(self.ids)

    def keep(self, units: np.ndarray) -> None:
        """Keep only the rows of these units (words that every model has)."""
        wanted = np.isin(self.unit, units)
        renumbered = np.cumsum(wanted) - 1
        chosen = wanted[self.segment]
        self.take, self.segment = self.take[chosen], renumbered[self.segment[chosen]]
        self.unit = self.unit[wanted]


def encode(model: Model, examples: Examples, reading: Reading) -> list[Item]:
    """The items of the examples in order: one a text, or one a choice."""
    tokenizer = model.require_tokenizer()
    limit = min(reading.max_length, model.positions or reading.max_length)
    texts, pairs, words = _flatten(examples, reading)
    if words is not None and not getattr(tokenizer, "is_fast", False):
        raise InputError(
            f"The pool 'words' needs a fast tokenizer, which knows where in the text each token stands; "
            f"{model.name} has a {type(tokenizer).__name__}."
        )
    try:
        batch = tokenizer(
            texts,
            pairs,
            truncation=True,
            max_length=limit,
            padding=False,
            return_special_tokens_mask=True,
            return_attention_mask=False,
        )
    except Exception as error:  # settings of a wrong type, say, which it opens with all the same
        raise ModelError(
            f"The tokenizer of {model.name} cannot read texts ({first_line(error)}); its files are damaged or not for "
            "this transformers; save it again with save_pretrained."
        ) from error
    full: dict[int, Any] = {}
    if not batch.encodings:  # a slow tokenizer does not say what it cut off
        for i in (i for i, ids in enumerate(batch["input_ids"]) if len(ids) >= limit):
            with quiet():  # about texts that are too long for the model, which these may well be
                full[i] = tokenizer(texts[i], None if pairs is None else pairs[i])["input_ids"]
    items = [_item(model, batch, i, reading, full.get(i), words[i] if words else None) for i in range(len(texts))]
    _check(model, examples, items, reading)
    return items


def choices_of(examples: Examples) -> np.ndarray | None:
    """For every item the number of its choice, or None if the task has no choices."""
    if examples.choices is None:
        return None
    return np.concatenate([np.arange(len(c)) for c in examples.choices])


def texts_of(examples: Examples) -> np.ndarray:
    """For every item the position of its example."""
    if examples.choices is None:
        return np.arange(len(examples))
    return np.repeat(np.arange(len(examples)), [len(c) for c in examples.choices])


def _flatten(examples: Examples, reading: Reading) -> tuple[list[str], list[str] | None, list[Sequence[str]] | None]:
    if reading.pool == "words":
        in_words = list(examples.in_words().words or ())
        return [" ".join(words) for words in in_words], None, in_words
    if examples.choices is None:
        return list(examples.texts), None if examples.pairs is None else list(examples.pairs), None
    texts = [examples.texts[i] for i in texts_of(examples)]
    return texts, [choice for choices in examples.choices for choice in choices], None


def _item(
    model: Model, batch: Any, i: int, reading: Reading, whole: Sequence[int] | None, words: Sequence[str] | None
) -> Item:
    """One text as the model sees it; `whole` is what it was before it was cut, where the tokenizer does not say."""
    ids = np.asarray(batch["input_ids"][i], dtype=np.int64)
    special = np.asarray(batch["special_tokens_mask"][i], dtype=bool)
    types = np.asarray(batch["token_type_ids"][i], dtype=np.int64) if "token_type_ids" in batch else None
    if model.token_types in (0, 1):  # it tells no types apart, whatever the tokenizer says
        types = None
    encoding = batch.encodings[i] if batch.encodings else None
    truncated = bool(encoding.overflowing) if encoding is not None else whole is not None and len(whole) > len(ids)
    if words is not None:
        take, segment, unit = _word_tokens(encoding, special, words, reading.subword)
    else:
        take = _tokens(model, ids, special, reading)
        segment = np.zeros(len(take), np.int64) if reading.pool == "mean" else np.arange(len(take))
        unit = take if reading.pool == "tokens" else np.zeros(min(len(take), 1), np.int64)
    return Item(ids, types, take, segment, unit, truncated, special)


def _tokens(model: Model, ids: np.ndarray, special: np.ndarray, reading: Reading) -> np.ndarray:
    """The positions that a pool takes."""
    if reading.pool in ("mean", "tokens"):
        return np.arange(len(ids)) if reading.special else np.flatnonzero(~special)
    first = reading.pool == "cls" and model.anatomy.summary == "first"
    return np.asarray([0 if first else len(ids) - 1]) if len(ids) else np.empty(0, np.int64)


def _word_tokens(
    encoding: Any, special: np.ndarray, words: Sequence[str], subword: str
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Positions, row of each, and word number of each row, for the words that are whole.

    The words are joined by spaces and the tokenizer's offsets lead back to them, because tokenizers treat a text
    that comes as a list of words unlike running text (no leading space for byte-level and SentencePiece models).
    """
    starts = np.cumsum([0] + [len(word) + 1 for word in words[:-1]])
    of_token = _words_at(encoding.offsets, starts)
    of_token[special] = -1
    cut = {word for rest in encoding.overflowing for word in _words_at(rest.offsets, starts).tolist()}
    positions = np.flatnonzero(of_token >= 0)
    positions = positions[~np.isin(of_token[positions], list(cut))]
    unit, segment, counts = np.unique(of_token[positions], return_inverse=True, return_counts=True)
    if subword == "mean":
        return positions, segment, unit
    ends = np.cumsum(counts)
    order = np.argsort(segment, kind="stable")
    chosen = positions[order][ends - 1 if subword == "last" else ends - counts]
    return chosen, np.arange(len(unit)), unit


def _words_at(offsets: Sequence[tuple[int, int]], starts: np.ndarray) -> np.ndarray:
    """The word that each token ends in, or -1 for a token that covers no character of a word."""
    spans = np.asarray(offsets, dtype=np.int64).reshape(-1, 2)
    word = np.searchsorted(starts, spans[:, 1] - 1, side="right") - 1
    following = np.append(starts[1:], np.iinfo(np.int64).max)[word]
    is_gap = (spans[:, 1] == following) & (spans[:, 1] - spans[:, 0] == 1)  # the space after the word, and no more
    word[(spans[:, 0] == spans[:, 1]) | is_gap] = -1
    return word


def _check(model: Model, examples: Examples, items: Sequence[Item], reading: Reading) -> None:
    """Every id and type has an embedding, and every text has at least one token."""
    vocabulary = model.vocabulary
    of_text = texts_of(examples)
    for i, item in enumerate(items):
        row = examples.rows[of_text[i]]
        if len(item.ids) and int(item.ids.max()) >= vocabulary:
            raise InputError(
                f"The tokenizer of {model.name} gives token {int(item.ids.max())} for row {row} of {examples.task} "
                f"({examples.split}), and the model has {vocabulary} token embeddings; they do not belong together."
            )
        if model.token_types and item.types is not None and int(item.types.max(initial=0)) >= model.token_types:
            raise InputError(
                f"The tokenizer of {model.name} gives token type {int(item.types.max())} for row {row} of "
                f"{examples.task} ({examples.split}), and the model knows {model.token_types} types, counted from 0; "
                "they do not belong together."
            )
        if not len(item.take) and reading.pool != "words":
            raise DataError(
                f"Row {row} of {examples.task} ({examples.split}) has no token but special ones for {model.name} "
                f"within {reading.max_length} tokens: {examples.texts[of_text[i]][:40]!r}. Leave that row out."
            )
