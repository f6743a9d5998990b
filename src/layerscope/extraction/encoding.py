"""Examples become items: the tokens of each text, and for each row to come the tokens that it is made of.

Texts are tokenised many at a time into flat arrays, without a loop in Python over tokens. A wrapped network reads texts
by its own reader, which gives places instead of tokens.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import chain
from typing import Any

import numpy as np

from layerscope.data import Examples
from layerscope.errors import DataError, InputError, ModelError, first_line
from layerscope.extraction.items import Item, Items, ranges
from layerscope.extraction.pooling import Reading
from layerscope.models import Model
from layerscope.models.checkpoints import quiet
from layerscope.models.text_reader import ReadText, Text, TextReader

_PLAIN = ("transformers.tokenization_utils_tokenizers", "transformers.tokenization_utils_base")


@dataclass
class Tokens:
    """The tokens of n texts, joined end to end."""

    ids: np.ndarray  # (all tokens,)
    types: np.ndarray | None  # (all tokens,)
    special: np.ndarray  # (all tokens,)
    lengths: np.ndarray  # (n,)
    truncated: np.ndarray  # (n,)
    spans: np.ndarray | None = None  # (all tokens, 2) the characters of its text that each token stands for
    cut_spans: np.ndarray | None = None  # (tokens that were cut off, 2) the same of those
    cut_lengths: np.ndarray | None = None  # (n,) how many tokens of each text were cut off

    @property
    def starts(self) -> np.ndarray:
        """(n,) the index of each text's first token."""
        return np.cumsum(self.lengths) - self.lengths

    @property
    def owner(self) -> np.ndarray:
        """(all tokens,) the text of each token."""
        return np.repeat(np.arange(len(self.lengths)), self.lengths)


def tokenize(
    model: Model, texts: Sequence[str], pairs: Sequence[str] | None, limit: int, *, with_spans: bool = False
) -> Tokens:
    """Return the tokens of texts, or of pairs of them, cut off at `limit`; with the characters of each if asked."""
    if not len(texts):
        none = np.empty(0, np.int64)
        return Tokens(
            none, None, none.astype(bool), none, none.astype(bool), none.reshape(0, 2), none.reshape(0, 2), none
        )
    try:
        return _tokens(model, texts, pairs, limit, with_spans)
    except Exception as error:  # a tokenizer opens even with settings of a wrong type
        raise ModelError(
            f"The tokenizer of {model.name} cannot read texts ({first_line(error)}); its files are damaged or not "
            "for this transformers; save it again with save_pretrained."
        ) from error


def _tokens(model: Model, texts: Sequence[str], pairs: Sequence[str] | None, limit: int, with_spans: bool) -> Tokens:
    """Do the work of `tokenize`, for at least one text."""
    tokenizer = model.require_tokenizer()
    quick = _is_plain(tokenizer) and len(texts) > 1
    # Called with one text, a fast tokenizer sets up its backend as asked; the backend alone then reads all texts.
    batch = tokenizer(
        list(texts[:1] if quick else texts),
        None if pairs is None else list(pairs[:1] if quick else pairs),
        truncation=True,
        max_length=limit,
        padding=False,
        return_special_tokens_mask=True,
        return_attention_mask=False,
    )
    # A model that does not tell token types apart gets none, whatever its tokenizer says.
    typed = "token_type_ids" in batch and model.token_types not in (0, 1)
    encodings = batch.encodings
    if quick:
        backend = tokenizer.backend_tokenizer
        encodings = backend.encode_batch(list(texts) if pairs is None else list(zip(texts, pairs, strict=True)))
    if not encodings:
        return _slow_tokens(tokenizer, batch, typed, texts, pairs, limit)
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
    """Return whether a tokenizer's fast backend alone decides the tokens, with no code of its class before it."""
    if not getattr(tokenizer, "is_fast", False):
        return False
    methods = [getattr(type(tokenizer), name, None) for name in ("_encode_plus", "__call__")]
    return all(getattr(method, "__module__", None) in _PLAIN for method in methods)


def _slow_tokens(
    tokenizer: Any, batch: Any, typed: bool, texts: Sequence[str], pairs: Sequence[str] | None, limit: int
) -> Tokens:
    """Return the tokens of a slow tokenizer's batch; what it cut off is found by tokenising long texts again."""
    ids, lengths = _flat(batch["input_ids"], np.int64)
    truncated = np.zeros(len(lengths), bool)
    for i in np.flatnonzero(lengths >= limit).tolist():
        with quiet():  # about texts that are too long for the model, which these may well be
            whole = tokenizer(texts[i], None if pairs is None else pairs[i])["input_ids"]
        truncated[i] = len(whole) > lengths[i]
    types = _flat(batch["token_type_ids"], np.int64)[0] if typed else None
    return Tokens(ids, types, _flat(batch["special_tokens_mask"], bool)[0], lengths, truncated)


def _flat(lists: Sequence[Sequence[int]], dtype: Any) -> tuple[np.ndarray, np.ndarray]:
    """Return the numbers of all lists end to end, and how many each list has."""
    lengths = np.fromiter(map(len, lists), np.int64, len(lists))
    return np.fromiter(chain.from_iterable(lists), dtype, int(lengths.sum())), lengths


def _spans(lists: Iterable[Sequence[tuple[int, int]]]) -> np.ndarray:
    """Return the spans of all lists end to end, as an array (spans, 2)."""
    numbers = chain.from_iterable(chain.from_iterable(lists))
    return np.fromiter(numbers, np.int64).reshape(-1, 2)


def wrapped_items(model: Model, examples: Examples, reading: Reading) -> list[Item]:
    """Return the items of examples for a wrapped network, one per text."""
    if examples.pairs is not None or examples.choices is not None:
        kind = "two texts" if examples.choices is None else "several choices"
        raise InputError(
            f"{model.name} reads one text at a time, and every row of {examples.task} has {kind}; name one column as "
            "the only text (text=, --text)."
        )
    reader: TextReader = model.tokenizer
    places = reader.read(_texts(reader, examples, reading), reading.max_length)
    items = []
    for text, read in enumerate(places):
        rows = _words(model, read, reading.subword) if reading.pool == "words" else _places(model, read, reading)
        items.append(Item(read.ids, None, *rows, read.truncated, read.special))
        if not len(items[-1].take) and reading.pool != "words":
            raise DataError(
                f"{model.name} finds no word within {reading.max_length} places in {examples.place(text)}: "
                f"{examples.texts[text][:40]!r}. Leave it out."
            )
    return items


def _texts(reader: TextReader, examples: Examples, reading: Reading) -> Sequence[Text]:
    """Return the texts that a wrapped network's reader is given: running text, or lists of words."""
    if reading.pool == "words":
        return [list(words) for words in examples.in_words().words or ()]
    if reader.takes_words and examples.words is not None:
        return [list(words) for words in examples.words]
    return list(examples.texts)


_WrappedRows = tuple[np.ndarray, np.ndarray, np.ndarray]  # take, segment and unit of an item


def _places(model: Model, read: ReadText, reading: Reading) -> _WrappedRows:
    """Return the places of which the rows of a text are made, for the pools whose rows are texts or tokens."""
    plain = np.arange(len(read.ids)) if reading.special else np.flatnonzero(~read.special)
    if reading.pool == "mean":
        return plain, np.zeros(len(plain), np.int64), np.zeros(min(len(plain), 1), np.int64)
    if reading.pool == "tokens":
        return plain, np.arange(len(plain)), plain
    if reading.pool == "cls":
        take = np.arange(len(read.ids))
        take = take[:1] if model.require_summary() == "first" else take[-1:]
    else:
        take = plain[-1:]  # marks at the end stand for no part of a text
    return take, np.zeros(len(take), np.int64), np.zeros(len(take), np.int64)


def _words(model: Model, read: ReadText, subword: str) -> _WrappedRows:
    """Return the places of which the rows of a text's words are made."""
    if read.words is None:
        raise InputError(
            f"The pool 'words' needs to know which places are which word, and encode of {model.name} does not say: it "
            "gives no 'words'."
        )
    positions = np.flatnonzero((read.words >= 0) & ~read.special)
    positions = positions[np.argsort(read.words[positions], kind="stable")]
    unit, segment, counts = np.unique(read.words[positions], return_inverse=True, return_counts=True)
    if subword == "mean":
        return positions, segment, unit
    ends = np.cumsum(counts)
    return positions[ends - 1 if subword == "last" else ends - counts], np.arange(len(unit)), unit


__all__ = ["Item", "Items", "choices_of", "encode", "texts_of"]

# Texts that are tokenised together. A tokenizer's output takes many times the memory of the ids, and the arrays on the
# way to rows take more; with few texts at a time that memory is small, and is used again for the next ones.
_AT_ONCE = 512
_Rows = tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray, np.ndarray]  # take, segment, take_counts, unit, rows


def encode(model: Model, examples: Examples, reading: Reading) -> Items:
    """Return the items of examples in order: one per text, or one per choice."""
    tokenizer = model.require_tokenizer()
    if reading.pool == "cls":
        model.require_summary()
    if isinstance(tokenizer, TextReader):
        return Items.from_list(wrapped_items(model, examples, reading))
    limit = min(reading.max_length, model.positions or reading.max_length)
    texts, pairs, words = _flatten(examples, reading)
    if words is not None and not getattr(tokenizer, "is_fast", False):
        raise InputError(
            f"The pool 'words' needs a fast tokenizer, which knows where in the text each token stands; "
            f"{model.name} has a {type(tokenizer).__name__}."
        )
    parts = []
    for start in range(0, max(1, len(texts)), _AT_ONCE):
        part = slice(start, start + _AT_ONCE)
        part_pairs = None if pairs is None else pairs[part]
        tokens = tokenize(model, texts[part], part_pairs, limit, with_spans=words is not None)
        rows = _rows(model, tokens, reading) if words is None else _word_rows(tokens, words[part], reading.subword)
        parts.append(Items(tokens.ids, tokens.types, tokens.special, tokens.lengths, *rows, tokens.truncated))
    items = Items.join(parts)
    _check_items(model, examples, items, reading)
    return items


def choices_of(examples: Examples) -> np.ndarray | None:
    """Return for every item the number of its choice, or None if the task has no choices."""
    if examples.choices is None:
        return None
    return np.concatenate([np.arange(len(c)) for c in examples.choices])


def texts_of(examples: Examples) -> np.ndarray:
    """Return for every item the position of its example."""
    if examples.choices is None:
        return np.arange(len(examples))
    return np.repeat(np.arange(len(examples)), [len(c) for c in examples.choices])


def _flatten(examples: Examples, reading: Reading) -> tuple[list[str], list[str] | None, list[Sequence[str]] | None]:
    """Return for every item its text, its second text where there is one, and its words where rows are words."""
    if reading.pool == "words":
        in_words = list(examples.in_words().words or ())
        return [" ".join(words) for words in in_words], None, in_words
    if examples.choices is None:
        return list(examples.texts), None if examples.pairs is None else list(examples.pairs), None
    texts = [examples.texts[i] for i in texts_of(examples)]
    return texts, [choice for choices in examples.choices for choice in choices], None


def _rows(model: Model, tokens: Tokens, reading: Reading) -> _Rows:
    """Return the tokens of which the rows of texts are made: one token each, or several."""
    if reading.pool in ("mean", "tokens"):
        places = np.arange(len(tokens.ids)) if reading.special else np.flatnonzero(~tokens.special)
        owner = tokens.owner[places]
        take = places - tokens.starts[owner]
        counts = np.bincount(owner, minlength=len(tokens.lengths))
        if reading.pool == "tokens":
            return take, ranges(np.zeros_like(counts), counts), counts, take, counts
    else:
        counts = np.minimum(tokens.lengths, 1)
        first = reading.pool == "cls" and model.architecture.summary == "first"
        take = (np.zeros_like(counts) if first else tokens.lengths - 1)[counts > 0]
    rows = np.minimum(counts, 1)
    return take, np.zeros(len(take), np.int64), counts, np.zeros(int(rows.sum()), np.int64), rows


def _word_rows(tokens: Tokens, words: Sequence[Sequence[str]], subword: str) -> _Rows:
    """Return the tokens of which the rows of words are made, for the words of which no token was cut off.

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
    # A word of which any token was cut off is left out: the tokens that are left would not stand for it.
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
        take_counts = np.bincount(owner[places], minlength=len(words))
    else:
        places = places[at + count - 1 if subword == "last" else at]
        segment, take_counts = in_text, rows
    return places - tokens.starts[owner[places]], segment, take_counts, unit, rows


def _words_at(spans: np.ndarray, starts: np.ndarray, shift: np.ndarray | int, ends_text: np.ndarray) -> np.ndarray:
    """Return the word that each token ends in, or -1 for a token that covers no character of a word.

    `starts` is where each word begins in all texts joined, `shift` where each token's text begins there.
    """
    begin, end = spans[:, 0] + shift, spans[:, 1] + shift
    if not len(starts):
        return np.full(len(spans), -1)
    word = np.searchsorted(starts, end - 1, side="right") - 1
    following = np.append(starts[1:], np.iinfo(np.int64).max)[word]
    is_gap = (end == following) & (end - begin == 1) & ~ends_text[word]  # the space after the word, and no more
    word[(begin == end) | is_gap] = -1
    return word


def _check_items(model: Model, examples: Examples, items: Items, reading: Reading) -> None:
    """Raise an error unless every id and type has an embedding and every text has at least one token."""
    vocabulary = model.vocabulary
    faults: dict[int, str] = {}  # each kind of fault by the first item that has it

    def of_token(place: np.intp) -> int:
        return int(np.searchsorted(np.cumsum(items.lengths), place, side="right"))

    if len(items.ids) and int(items.ids.max()) >= vocabulary:
        faults.setdefault(of_token(np.argmax(items.ids >= vocabulary)), "token")
    types = model.token_types
    if types and items.types is not None and int(items.types.max(initial=0)) >= types:
        faults.setdefault(of_token(np.argmax(items.types >= types)), "type")
    if reading.pool != "words" and not items.take_counts.all():
        faults.setdefault(int(np.argmin(items.take_counts)), "empty")
    if faults:
        place = min(faults)
        _refuse(model, examples, items[place], place, faults[place], reading)


def _refuse(model: Model, examples: Examples, item: Item, place: int, fault: str, reading: Reading) -> None:
    """Raise the error for an item's fault, with the row that it is of."""
    text = texts_of(examples)[place]
    of_row = examples.place(text)
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
        f"{model.name} finds only special tokens within {reading.max_length} tokens in {of_row}: "
        f"{examples.texts[text][:40]!r}. Leave it out."
    )
