"""Running text, asked of a causal language model: windows of tokens, and the loss of each token in them."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import Any, ClassVar

import numpy as np

from layerscope.data import Examples
from layerscope.data.asking import Asking
from layerscope.errors import InputError
from layerscope.evaluation.tokens import COUNT, LOSS, TokenSitting
from layerscope.extraction.encode import Item
from layerscope.extraction.reading import Reading
from layerscope.models import Model
from layerscope.models.load import quiet

BETWEEN = "\n\n"  # between texts that are joined


@dataclass(frozen=True)
class Piece:
    """One window of a text: its tokens, and which of them are scored."""

    ids: np.ndarray
    first: int  # the first token that is scored, from 1 on: the token before it must be there
    text: int  # the text that it is of
    size: int  # bytes of text that the scored tokens stand for


class RunningText(TokenSitting):
    """Rows are windows. Perplexity is the exponential of the mean loss over all tokens that are scored."""

    usual: ClassVar[int] = 2048
    scores: ClassVar[tuple[str, ...]] = ("perplexity", "nll", "bits_per_byte")
    rows_are: ClassVar[str] = "windows"

    def __post_init__(self) -> None:
        self._tokenizer = self.model.require_tokenizer()
        self._bos = first_token(self.model, self.task.asking)
        if not hasattr(self, "_pieces"):
            self._source = self.examples
            self._pieces = pieces(self.model, self.examples, self.task.asking, self._longest(), self._bos)
            if not self._pieces:
                raise InputError(
                    f"{self.examples.task} ({self.examples.split}) has too few tokens to score one; give more text."
                )
            self.examples = as_rows(self.examples, len(self._pieces))
        super().__post_init__()

    @property
    def texts(self) -> np.ndarray:
        return np.asarray([piece.text for piece in self._pieces])

    def _settings(self) -> dict[str, Any]:
        return {"bos": self._bos, "stride": self.task.asking.stride, "by_text": self.task.asking.by_text}

    def _told(self) -> dict[str, Any]:
        about = {"stride": self.task.asking.stride, "by_text": self.task.asking.by_text or None}
        return {"texts": len(self._source), "bos": self._bos is not None, **about}

    def _encoded(self, model: Model, examples: Examples, reading: Reading) -> list[Item]:
        items = []
        for row in examples.rows:
            piece = self._pieces[row]
            take = np.arange(piece.first - 1, len(piece.ids) - 1)
            rest = np.zeros(len(take), np.int64)
            items.append(Item(piece.ids, None, take, rest, rest[:1], False, rest, piece.ids[take + 1]))
        return items

    def _bytes(self, rows: np.ndarray) -> np.ndarray:
        return np.asarray([self._pieces[row].size for row in rows], dtype=float)

    def _of_sums(self, sums: np.ndarray, size: float) -> dict[str, float]:
        nll = float(sums[LOSS] / sums[COUNT]) if sums[COUNT] else math.nan
        bits = float(sums[LOSS] / math.log(2) / size) if size else math.nan
        return {"perplexity": perplexity(nll), "nll": nll, "bits_per_byte": bits, "tokens": float(sums[COUNT])}


def perplexity(nll: float) -> float:
    """exp(nll); infinite where no float holds it."""
    return math.exp(nll) if nll < 700 else math.inf


def as_rows(examples: Examples, count: int) -> Examples:
    """Examples whose rows are windows: their identity is that of the texts that they are made of."""
    rows = replace(examples, texts=[""] * count, rows=np.arange(count), labels=None, label_names=None, words=None)
    rows = replace(rows, pairs=None, choices=None, tags=None, prompts=None, words_by=None)
    object.__setattr__(rows, "_whole", (examples.spec()["data"] + examples.spec()["rows"], examples.texts_fingerprint))
    return rows


def first_token(model: Model, asking: Asking) -> int | None:
    """The token in front of every window, or None: as asked for, or as the tokenizer itself does."""
    tokenizer = model.require_tokenizer()
    own = tokenizer.bos_token_id
    if asking.bos is None:
        ids = tokenizer("a")["input_ids"]
        return own if own is not None and len(ids) and ids[0] == own else None
    if asking.bos and own is None:
        raise InputError(
            f"The tokenizer of {model.name} has no first token (BOS), so none can stand before a window; leave "
            "bos=True (--bos) out, or set tokenizer.bos_token."
        )
    return own if asking.bos else None


def pieces(model: Model, examples: Examples, asking: Asking, longest: int, bos: int | None) -> list[Piece]:
    """The windows of all texts, joined or each by itself."""
    room = longest - (bos is not None)
    if model.positions is not None and longest > model.positions:
        raise InputError(f"max_length is {longest}, and {model.name} reads at most {model.positions} tokens.")
    stride = asking.stride or room
    if not 1 <= stride <= room:
        raise InputError(
            f"stride is {stride}, and a window has room for {room} tokens of text; a stride above that would leave "
            "tokens out."
        )
    texts = list(examples.texts) if asking.by_text else [BETWEEN.join(examples.texts)]
    found: list[Piece] = []
    for number, text in enumerate(texts):
        ids, ends = _tokens(model, text)
        for piece in _windows(ids, ends, room, stride, bos):
            found.append(replace(piece, text=number if asking.by_text else len(found)))
    return found


def _tokens(model: Model, text: str) -> tuple[np.ndarray, np.ndarray | None]:
    """The tokens of a text without special ones, and how many bytes of it stand before the end of each."""
    tokenizer = model.require_tokenizer()
    fast = bool(getattr(tokenizer, "is_fast", False))
    with quiet():  # about texts that are too long for the model, which these are meant to be
        batch = tokenizer(text, add_special_tokens=False, return_offsets_mapping=fast, verbose=False)
    ids = np.asarray(batch["input_ids"], dtype=np.int64)
    if len(ids) and int(ids.max()) >= model.vocabulary:
        raise InputError(
            f"The tokenizer of {model.name} gives token {int(ids.max())}, and the model has {model.vocabulary} token "
            "embeddings; they do not belong together."
        )
    if not fast or not len(ids):
        return ids, None
    ends = np.asarray([end for _, end in batch["offset_mapping"]], dtype=np.int64)
    sizes = np.cumsum([0, *(len(sign.encode("utf-8", "surrogatepass")) for sign in text)])
    return ids, np.maximum.accumulate(sizes[ends])


def _windows(ids: np.ndarray, ends: np.ndarray | None, room: int, stride: int, bos: int | None) -> list[Piece]:
    """Windows of at most `room` tokens, each `stride` after the one before; what was scored before is only context."""
    found, done = [], 0
    for begin in range(0, len(ids), stride):
        end = min(begin + room, len(ids))
        scored = max(done, begin + (bos is None))  # without a first token, the first of a window follows nothing
        if scored < end:
            own = ids[begin:end]
            front = 0 if bos is None else 1
            size = 0 if ends is None else int(ends[end - 1] - (ends[scored - 1] if scored else 0))
            tokens = own if bos is None else np.concatenate([[bos], own])
            found.append(Piece(tokens, scored - begin + front, 0, size))
        done = max(done, end)
        if end == len(ids):
            break
    return found
