"""Evaluation of causal language models on running text: windows of tokens, and the loss of each token in them.

Texts are joined, and windows cut from what that gives. Windows of one text are alike for reasons of their own, so each
knows the text in which it begins, and whole texts are resampled and dealt out. Texts that are dealt out to several
parts are joined within each part, so that no window has text of two parts.

Tokenizers read one text on one core, and long ones ever more slowly. A long text is therefore tokenized in pieces that
overlap, and these are joined where both give the same tokens for a stretch in the middle of the overlap. Tokenizers
work locally, so that they usually do; where they do not, the text is tokenized as a whole.
"""

from __future__ import annotations

import copy
import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import repeat
from typing import Any, ClassVar, Self

import numpy as np

from layerscope.data import Examples
from layerscope.data.task import PromptOptions
from layerscope.errors import InputError, log
from layerscope.evaluation.token_evaluator import COUNT, LOSS, TokenEvaluator
from layerscope.extraction.items import Item
from layerscope.extraction.pooling import Reading
from layerscope.models import Model
from layerscope.models.load import quiet
from layerscope.resampling import effective_count
from layerscope.store import digest

BETWEEN = "\n\n"  # between texts that are joined
_TRAINED_WITH_FIRST = "gemma"  # how the types of models begin that fall apart without a first token in front


@dataclass(frozen=True)
class Piece:
    """One window of a text: its tokens, and which of them are scored."""

    ids: np.ndarray
    first: int  # the first token that is scored, at least 1: the token before it must be there
    text: int  # the number of the text in which it begins, leaving out what an earlier window has; -1: not known
    size: int  # bytes of text that the scored tokens stand for
    begin: int = 0  # the last byte of the first token that no earlier window has, where the tokenizer tells
    end: int = 0  # bytes of text before its end, where the tokenizer tells
    part: int = 0  # the part to which its texts were dealt


class PerplexityEvaluator(TokenEvaluator):
    """Scores the loss of the tokens of running text. A row is a window.

    Perplexity is the exponential of the mean loss over all tokens that are scored.
    """

    key: ClassVar[str] = "RunningText"
    score_kind: ClassVar[str] = "perplexity"
    usual: ClassVar[int] = 2048
    largest: ClassVar[int | None] = 1024  # so many windows of text are two million tokens
    scores: ClassVar[tuple[str, ...]] = ("perplexity", "nll", "bits_per_byte")
    rows_are: ClassVar[str] = "windows"
    rows_overlap: ClassVar[bool] = True
    units_version: ClassVar[int] = 2
    _by_rows: bool = False  # whether windows are dealt out, and not the texts that they are of

    def __post_init__(self) -> None:
        self._tokenizer = self.model.require_tokenizer()
        self._bos = first_token(self.model, self.task.prompt_options)
        if not hasattr(self, "_pieces"):
            self._source, self._parts = self.examples, np.zeros(len(self.examples), np.int64)
            if self.examples.pairs is not None or self.examples.choices is not None:
                log.warning(
                    "The rows of %s (%s) have %s, and running text has one text per row: only the first ones are read. "
                    "Name the column to read (text=, --text) where another is meant.",
                    *(self.examples.task, self.examples.split),
                    "two texts" if self.examples.choices is None else "several choices",
                )
            self._cut()
        super().__post_init__()

    def _cut(self) -> None:
        """Cut the windows, whose rows take the place of the texts."""
        options = self.task.prompt_options
        self._pieces = pieces(self.model, self._source, options, self._longest(), self._bos, self._parts)
        if not self._pieces:
            raise InputError(
                f"{self._source.task} ({self._source.split}) has too few tokens to score one; give more text."
            )
        self.examples = as_rows(self._source, len(self._pieces))

    @property
    def source(self) -> tuple[Examples, PromptOptions, int | None]:
        """The texts that the windows are cut from, how they are read, and the token in front of each window."""
        return self._source, self.task.prompt_options, self._bos

    @property
    def texts(self) -> np.ndarray:
        return np.asarray([self._pieces[row].text for row in self.examples.rows])

    def units(self, rows: Any = None) -> np.ndarray:
        at = self._at(rows)
        texts = self.texts[at]
        return texts if can_be_resampled(texts) else at

    def resampled(self, rows: Any = None) -> str:
        return not_over_texts(self.texts[self._at(rows)], "windows")

    @property
    def text_count(self) -> int:
        return len(self._source) if self._deals_texts else len(self.examples)

    @property
    def _deals_texts(self) -> bool:
        return len(self._source) > 1 and not self._by_rows

    def by_rows(self) -> Self:
        other = copy.copy(self)
        other._by_rows = True
        return other

    def made_of(self, rows: np.ndarray) -> np.ndarray:
        if not self._deals_texts:
            return rows
        return np.flatnonzero(np.isin(self._parts, [self._pieces[row].part for row in self.examples.rows[rows]]))

    def dealt(self, parts: np.ndarray) -> tuple[Self, np.ndarray]:
        if not self._deals_texts:
            return super().dealt(parts)
        other = copy.copy(self)
        other._parts = parts
        other._cut()
        other.__post_init__()
        return other, np.asarray([piece.part for piece in other._pieces])

    def texts_within(self, windows: int) -> int:
        """Return how many of the joined texts the first windows reach into; all of them where that cannot be known."""
        pieces = self._pieces[:windows]
        if self.task.prompt_options.by_text:
            return max(piece.text for piece in pieces) + 1
        if not pieces[-1].end:
            return len(self._source)
        ends = np.cumsum([_in_bytes(text) + len(BETWEEN) for text in self._source.texts])
        return min(int(np.searchsorted(ends, pieces[-1].end)) + 1, len(self._source))

    def _settings(self) -> dict[str, Any]:
        return {
            "bos": self._bos,
            "stride": self.task.prompt_options.stride,
            "by_text": self.task.prompt_options.by_text,
            **({"parts": digest(self._parts.tobytes())} if self._parts.any() else {}),
        }

    def _provenance_settings(self) -> dict[str, Any]:
        options = self.task.prompt_options
        return {
            "texts": len(self._source),
            "bos": self._bos is not None,
            "stride": options.stride,
            "by_text": options.by_text or None,
        }

    def _encoded(self, model: Model, examples: Examples, reading: Reading) -> list[Item]:
        items = []
        for row in examples.rows:
            piece = self._pieces[row]
            take = np.arange(piece.first - 1, len(piece.ids) - 1)
            rest, special = np.zeros(len(take), np.int64), np.arange(len(piece.ids)) < (self._bos is not None)
            items.append(Item(piece.ids, None, take, rest, rest[:1], False, special, piece.ids[take + 1]))
        return items

    def _bytes(self, rows: np.ndarray) -> np.ndarray:
        return np.asarray([self._pieces[row].size for row in self.examples.rows[rows]], dtype=float)

    def _metrics_of_sums(self, sums: np.ndarray, size: float) -> dict[str, float]:
        nll = float(sums[LOSS] / sums[COUNT]) if sums[COUNT] else math.nan
        bits = float(sums[LOSS] / math.log(2) / size) if size else math.nan
        return {"perplexity": perplexity(nll), "nll": nll, "bits_per_byte": bits, "tokens": float(sums[COUNT])}


FEWEST = 5  # texts of one length from which on texts are resampled: with fewer, that says less than their windows do


def can_be_resampled(texts: np.ndarray) -> bool:
    """Return whether windows of these texts are resampled by their texts; else each window is one by itself."""
    if texts.min(initial=0) < 0:
        return False
    sizes = np.unique(texts, return_counts=True)[1]
    return bool(len(sizes) == len(texts) or effective_count(sizes) >= FEWEST)


def not_over_texts(texts: np.ndarray, rows: str) -> str:
    """Return what intervals are over, and why, where rows of these texts are not resampled by them; else nothing."""
    if can_be_resampled(texts):
        return ""
    count = len(np.unique(texts))
    why = f"their {count} texts are too few, or too unequal, to be resampled"
    if count == 1:
        why = "all of them are of one text"
    if texts.min() < 0:
        why = f"the tokenizer does not tell which text a {rows.removesuffix('s')} is of"
    return f"over {rows}, since {why}; that {rows} of one text are alike is left out"


def perplexity(nll: float) -> float:
    """Return exp(nll), which is infinite where no float holds it."""
    return math.exp(nll) if nll < 700 else math.inf


def as_rows(examples: Examples, count: int) -> Examples:
    """Return examples whose rows are windows; their identity is that of the texts that they are made of."""
    rows = replace(examples, texts=[""] * count, rows=np.arange(count), labels=None, label_names=None, words=None)
    rows = replace(rows, pairs=None, choices=None, tags=None, prompts=None, words_by=None)
    rows = replace(rows, lines=None, counted="window")
    return rows.known_as(examples, examples.spec()["data"] + examples.spec()["rows"])


def first_token(model: Model, prompt_options: PromptOptions) -> int | None:
    """Return the token in front of every window, or None: as asked for, or as the tokenizer itself does."""
    tokenizer = model.require_tokenizer()
    bos = tokenizer.bos_token_id
    if prompt_options.bos is None:
        ids = tokenizer("a")["input_ids"]
        adds = bos is not None and len(ids) and ids[0] == bos
        if bos is not None and not adds and model.network.config.model_type.startswith(_TRAINED_WITH_FIRST):
            log.warning(
                "%s is a %s, which was trained with a first token (BOS) before every text, and its tokenizer puts none "
                "there: without it the perplexity says little. Give --bos (bos=True).",
                model.name,
                model.network.config.model_type,
            )
        return bos if adds else None
    if prompt_options.bos and bos is None:
        raise InputError(
            f"The tokenizer of {model.name} has no first token (BOS), so none can stand before a window; leave "
            "bos=True (--bos) out, or set tokenizer.bos_token."
        )
    return bos if prompt_options.bos else None


def pieces(
    model: Model, examples: Examples, prompt_options: PromptOptions, longest: int, bos: int | None, parts: np.ndarray
) -> list[Piece]:
    """Return the windows of all texts: those of a part are joined to one, or each is read by itself.

    `parts` is the part of each text; texts of a part below 0 are left out.
    """
    room = longest - (bos is not None)
    if model.positions is not None and longest > model.positions:
        raise InputError(f"max_length is {longest}, and {model.name} reads at most {model.positions} tokens.")
    stride = prompt_options.stride or room
    if not 1 <= stride <= room:
        raise InputError(
            f"stride is {stride}, and a window has room for {room} tokens of text; a stride above that would leave "
            "tokens out."
        )
    pieces: list[Piece] = []
    for part in np.unique(parts[parts >= 0]):
        all_texts: list[int] = np.flatnonzero(parts == part).tolist()
        for group in [[text] for text in all_texts] if prompt_options.by_text else [all_texts]:
            ids, ends = tokens_of(model, BETWEEN.join(examples.texts[k] for k in group))
            found = list(_windows(ids, ends, room, stride, bos))
            texts = texts_at(examples, group, [piece.begin for piece in found] if ends is not None else None)
            pieces += [replace(piece, text=k, part=int(part)) for piece, k in zip(found, texts, strict=False)]
    return pieces


def texts_at(examples: Examples, group: Sequence[int], bytes_: Sequence[int] | None) -> Iterator[int]:
    """Yield the number of the text, of those in `group` that are joined, in which each byte stands; -1: not known."""
    if len(group) == 1 or bytes_ is None:
        yield from repeat(group[0] if len(group) == 1 else -1)
        return
    sizes = np.cumsum([_in_bytes(examples.texts[k]) + len(BETWEEN) for k in group])
    for place in np.searchsorted(sizes, bytes_, side="right").tolist():
        yield group[min(place, len(group) - 1)]


def _in_bytes(text: str) -> int:
    return len(text.encode("utf-8", "surrogatepass"))


def tokens_of(model: Model, text: str) -> tuple[np.ndarray, np.ndarray | None]:
    """Return the tokens of a text without special ones, and how many bytes of it stand before the end of each."""
    tokenizer = model.require_tokenizer()
    fast = bool(getattr(tokenizer, "is_fast", False))
    with quiet():  # about texts that are too long for the model, which these are meant to be
        if fast:
            ids, spans = tokens_in_pieces(tokenizer, text)
        else:
            ids, spans = (
                np.asarray(tokenizer(text, add_special_tokens=False, verbose=False)["input_ids"], np.int64),
                None,
            )
    if len(ids) and int(ids.max()) >= model.vocabulary:
        raise InputError(
            f"The tokenizer of {model.name} gives token {int(ids.max())}, and the model has {model.vocabulary} token "
            "embeddings; they do not belong together."
        )
    if spans is None or not len(ids):
        return ids, None
    codes = np.frombuffer(text.encode("utf-32-le", "surrogatepass"), dtype="<u4")
    sizes = np.append(0, np.cumsum(1 + (codes > 0x7F) + (codes > 0x7FF) + (codes > 0xFFFF)))  # bytes as UTF-8 has them
    return ids, np.maximum.accumulate(sizes[spans[:, 1]])


def _windows(ids: np.ndarray, ends: np.ndarray | None, room: int, stride: int, bos: int | None) -> list[Piece]:
    """Return windows of at most `room` tokens, `stride` apart; tokens that were scored before are only context."""
    windows, done = [], 0
    for begin in range(0, len(ids), stride):
        end = min(begin + room, len(ids))
        scored = max(done, begin + (bos is None))  # without a first token, the first of a window follows nothing
        if scored < end:
            part = ids[begin:end]
            front = 0 if bos is None else 1
            tokens = part if bos is None else np.concatenate([[bos], part])
            place, before, after = 0, 0, 0
            if ends is not None:
                # By its last byte: what stands in front of a token, such as the gap between texts, may be in no token.
                place = int(ends[max(done, begin)]) - 1
                before, after = int(ends[scored - 1]) if scored else 0, int(ends[end - 1])
            windows.append(Piece(tokens, scored - begin + front, 0, after - before, place, after))
        done = max(done, end)
        if end == len(ids):
            break
    return windows


LONG = 1 << 18  # characters from which on a text is read in pieces
_PIECE = 1 << 16
_OVERLAP = 1 << 10


def tokens_in_pieces(tokenizer: Any, text: str) -> tuple[np.ndarray, np.ndarray]:
    """Return (tokens,) ids without special ones, and (tokens, 2) the characters that each stands for."""
    if len(text) >= LONG:
        joined = _in_pieces(tokenizer, text)
        if joined is not None:
            return joined
        log.info("The tokenizer reads pieces of a text unlike the whole, so the whole is read at once.")
    return _read(tokenizer, [text])[0]


def _read(tokenizer: Any, texts: list[str]) -> list[tuple[np.ndarray, np.ndarray]]:
    """Return for each text what `tokens_in_pieces` does, by one call of the tokenizer."""
    batch = tokenizer(texts, add_special_tokens=False, return_offsets_mapping=True, verbose=False)
    return [
        (np.asarray(ids, dtype=np.int64), np.asarray(spans, dtype=np.int64).reshape(-1, 2))
        for ids, spans in zip(batch["input_ids"], batch["offset_mapping"], strict=True)
    ]


def _in_pieces(tokenizer: Any, text: str) -> tuple[np.ndarray, np.ndarray] | None:
    """Return what `tokens_in_pieces` does, joined from pieces that overlap; None where two pieces disagree."""
    starts = list(range(0, max(len(text) - _OVERLAP, 1), _PIECE))  # the one before holds what is left at the end
    read = _read(tokenizer, [text[start : start + _PIECE + _OVERLAP] for start in starts])
    parts = [(ids, spans + start) for (ids, spans), start in zip(read, starts, strict=True)]
    begin, ids, spans = 0, [], []
    for k, (part, places) in enumerate(parts):
        end, after = len(part), 0
        if k + 1 < len(parts):
            (other, others), start = parts[k + 1], starts[k + 1]
            shared = (start + _OVERLAP // 4, min(start + 3 * _OVERLAP // 4, len(text)))
            first, second = (np.flatnonzero((p[:, 0] >= shared[0]) & (p[:, 1] <= shared[1])) for p in (places, others))
            if not len(first) or len(first) != len(second):
                return None
            if not np.array_equal(part[first], other[second]) or not np.array_equal(places[first], others[second]):
                return None
            end, after = int(first[0]), int(second[0])
        if end < begin:
            return None
        ids.append(part[begin:end])
        spans.append(places[begin:end])
        begin = after
    return np.concatenate(ids), np.concatenate(spans)
