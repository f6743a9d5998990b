"""Examples to items: their tokens, and for each row to come the tokens that it is made of."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import chain

import numpy as np

from layerscope.data import Examples
from layerscope.errors import DataError, InputError
from layerscope.extraction.items import Item, Items, ranges
from layerscope.extraction.own_items import own_items
from layerscope.extraction.reading import Reading
from layerscope.extraction.tokenizing import Tokens, tokenized
from layerscope.models import Model
from layerscope.models.readers import TextReader

__all__ = ["Item", "Items", "choices_of", "encode", "texts_of"]

# Texts that are tokenised together. What a tokenizer says of a text takes many times the memory of its ids, and the
# arrays on the way to its rows take more; with few texts at once, that memory is small and is used again for the next.
_AT_ONCE = 512
_Rows = tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray, np.ndarray]  # take, segment, taken, unit, rows of `Items`


def encode(model: Model, examples: Examples, reading: Reading) -> Items:
    """The items of the examples in order: one per text, or one per choice."""
    tokenizer = model.require_tokenizer()
    if reading.pool == "cls":
        model.require_summary()
    if isinstance(tokenizer, TextReader):
        return Items.of(own_items(model, examples, reading))
    limit = min(reading.max_length, model.positions or reading.max_length)
    texts, pairs, words = _flatten(examples, reading)
    if words is not None and not getattr(tokenizer, "is_fast", False):
        raise InputError(
            f"The pool 'words' needs a fast tokenizer, which knows where in the text each token stands; "
            f"{model.name} has a {type(tokenizer).__name__}."
        )
    parts = []
    for start in range(0, max(1, len(texts)), _AT_ONCE):
        some = slice(start, start + _AT_ONCE)
        own_pairs = None if pairs is None else pairs[some]
        tokens = tokenized(model, texts[some], own_pairs, limit, with_spans=words is not None)
        rows = _rows(model, tokens, reading) if words is None else _word_rows(tokens, words[some], reading.subword)
        parts.append(Items(tokens.ids, tokens.types, tokens.special, tokens.lengths, *rows, tokens.truncated))
    items = Items.join(parts)
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


def _rows(model: Model, tokens: Tokens, reading: Reading) -> _Rows:
    """What the rows of texts are made of: a token each, or several."""
    if reading.pool in ("mean", "tokens"):
        places = np.arange(len(tokens.ids)) if reading.special else np.flatnonzero(~tokens.special)
        owner = tokens.owner[places]
        take = places - tokens.starts[owner]
        taken = np.bincount(owner, minlength=len(tokens.lengths))
        if reading.pool == "tokens":
            return take, ranges(np.zeros_like(taken), taken), taken, take, taken
    else:
        taken = np.minimum(tokens.lengths, 1)
        first = reading.pool == "cls" and model.anatomy.summary == "first"
        take = (np.zeros_like(taken) if first else tokens.lengths - 1)[taken > 0]
    rows = np.minimum(taken, 1)
    return take, np.zeros(len(take), np.int64), taken, np.zeros(int(rows.sum()), np.int64), rows


def _word_rows(tokens: Tokens, words: Sequence[Sequence[str]], subword: str) -> _Rows:
    """The same for the words that are whole.

    The words are joined by spaces and the tokenizer's offsets lead back to them, because tokenizers treat a text
    that comes as a list of words unlike running text (no leading space for byte-level and SentencePiece models).
    """
    assert tokens.spans is not None
    assert tokens.cut_spans is not None
    assert tokens.cut_lengths is not None
    counts = np.fromiter(map(len, words), np.int64, len(words))
    sizes = np.fromiter(map(len, chain.from_iterable(words)), np.int64, int(counts.sum())) + 1
    first = np.cumsum(counts) - counts  # the number of each text's first word among all words
    starts = np.cumsum(sizes) - sizes  # where each word begins if all texts are joined, a space after each
    text_starts = np.cumsum(np.bincount(np.repeat(np.arange(len(words)), counts), sizes, len(words))).astype(np.int64)
    text_starts = np.concatenate([[0], text_starts[:-1]])
    ends_text = np.zeros(len(sizes), bool)
    ends_text[(first + counts - 1)[counts > 0]] = True

    def words_at(spans: np.ndarray, owner: np.ndarray) -> np.ndarray:
        return _words_at(spans, starts, text_starts[owner], ends_text)

    owner = tokens.owner
    word = words_at(tokens.spans, owner)
    word[tokens.special] = -1
    cut = words_at(tokens.cut_spans, np.repeat(np.arange(len(words)), tokens.cut_lengths))
    is_whole = np.ones(len(sizes), bool)
    is_whole[cut[cut >= 0]] = False
    places = np.flatnonzero(word >= 0)
    places = places[is_whole[word[places]]]
    places = places[np.argsort(word[places], kind="stable")]
    number, at, count = np.unique(word[places], return_index=True, return_counts=True)
    text = np.repeat(np.arange(len(words)), counts)[number]
    rows, unit = np.bincount(text, minlength=len(words)), number - first[text]
    in_text = ranges(np.zeros_like(rows), rows)
    if subword == "mean":
        segment = np.repeat(in_text, count)
        taken = np.bincount(owner[places], minlength=len(words))
    else:
        places = places[at + count - 1 if subword == "last" else at]
        segment, taken = in_text, rows
    return places - tokens.starts[owner[places]], segment, taken, unit, rows


def _words_at(spans: np.ndarray, starts: np.ndarray, shift: np.ndarray | int, ends_text: np.ndarray) -> np.ndarray:
    """The word that each token ends in, or -1 for a token that covers no character of a word.

    `starts` are the places of all words where the texts are joined, `shift` where each token's own text begins there.
    """
    begin, end = spans[:, 0] + shift, spans[:, 1] + shift
    if not len(starts):
        return np.full(len(spans), -1)
    word = np.searchsorted(starts, end - 1, side="right") - 1
    following = np.append(starts[1:], np.iinfo(np.int64).max)[word]
    is_gap = (end == following) & (end - begin == 1) & ~ends_text[word]  # the space after the word, and no more
    word[(begin == end) | is_gap] = -1
    return word


def _check(model: Model, examples: Examples, items: Items, reading: Reading) -> None:
    """Every id and type has an embedding, and every text has at least one token."""
    vocabulary = model.vocabulary
    faults: dict[int, str] = {}  # of the first item that has each

    def of_token(place: np.intp) -> int:
        return int(np.searchsorted(np.cumsum(items.lengths), place, side="right"))

    if len(items.ids) and int(items.ids.max()) >= vocabulary:
        faults.setdefault(of_token(np.argmax(items.ids >= vocabulary)), "token")
    known = model.token_types
    if known and items.types is not None and int(items.types.max(initial=0)) >= known:
        faults.setdefault(of_token(np.argmax(items.types >= known)), "type")
    if reading.pool != "words" and not items.taken.all():
        faults.setdefault(int(np.argmin(items.taken)), "empty")
    if faults:
        place = min(faults)
        _refuse(model, examples, items[place], place, faults[place], reading)


def _refuse(model: Model, examples: Examples, item: Item, place: int, fault: str, reading: Reading) -> None:
    text = texts_of(examples)[place]
    of_row = f"row {examples.rows[text]} of {examples.task} ({examples.split})"
    if fault == "token":
        raise InputError(
            f"The tokenizer of {model.name} gives token {int(item.ids.max())} for {of_row}, and the model has "
            f"{model.vocabulary} token embeddings; they do not belong together."
        )
    if fault == "type":
        assert item.types is not None
        raise InputError(
            f"The tokenizer of {model.name} gives token type {int(item.types.max())} for {of_row}, and the model knows "
            f"{model.token_types} types, counted from 0; they do not belong together."
        )
    raise DataError(
        f"R{of_row[1:]} has only special tokens for {model.name} within {reading.max_length} tokens: "
        f"{examples.texts[text][:40]!r}. Leave that row out."
    )
