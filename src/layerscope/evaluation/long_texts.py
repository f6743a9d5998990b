"""The tokens of a long text, made of pieces at once: the same as of the whole, and far quicker.

Tokenizers read one text on one core, and long ones ever more slowly. Pieces that overlap are read together, and joined
where both say the same of a stretch in the middle of the overlap. What a tokenizer does is local, so that they do;
where they do not, the text is read as a whole.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from layerscope.errors import log

LONG = 1 << 18  # characters from which on a text is read in pieces
_PIECE = 1 << 16
_OVERLAP = 1 << 10


def tokens_of(tokenizer: Any, text: str) -> tuple[np.ndarray, np.ndarray]:
    """(tokens,) ids without special ones, and (tokens, 2) the characters that each stands for."""
    if len(text) >= LONG:
        joined = _in_pieces(tokenizer, text)
        if joined is not None:
            return joined
        log.info("The tokenizer reads pieces of a text unlike the whole, so the whole is read at once.")
    return _read(tokenizer, [text])[0]


def _read(tokenizer: Any, texts: list[str]) -> list[tuple[np.ndarray, np.ndarray]]:
    batch = tokenizer(texts, add_special_tokens=False, return_offsets_mapping=True, verbose=False)
    return [
        (np.asarray(ids, dtype=np.int64), np.asarray(spans, dtype=np.int64).reshape(-1, 2))
        for ids, spans in zip(batch["input_ids"], batch["offset_mapping"], strict=True)
    ]


def _in_pieces(tokenizer: Any, text: str) -> tuple[np.ndarray, np.ndarray] | None:
    """The same of pieces that overlap, joined; None where two of them do not agree on what they share."""
    starts = list(range(0, max(len(text) - _OVERLAP, 1), _PIECE))  # the one before holds what is left at the end
    read = _read(tokenizer, [text[start : start + _PIECE + _OVERLAP] for start in starts])
    parts = [(ids, spans + start) for (ids, spans), start in zip(read, starts, strict=True)]
    begin, ids, spans = 0, [], []
    for k, (own, places) in enumerate(parts):
        end, after = len(own), 0
        if k + 1 < len(parts):
            (other, others), start = parts[k + 1], starts[k + 1]
            shared = (start + _OVERLAP // 4, min(start + 3 * _OVERLAP // 4, len(text)))
            first, second = (np.flatnonzero((p[:, 0] >= shared[0]) & (p[:, 1] <= shared[1])) for p in (places, others))
            if not len(first) or len(first) != len(second):
                return None
            if not np.array_equal(own[first], other[second]) or not np.array_equal(places[first], others[second]):
                return None
            end, after = int(first[0]), int(second[0])
        if end < begin:
            return None
        ids.append(own[begin:end])
        spans.append(places[begin:end])
        begin = after
    return np.concatenate(ids), np.concatenate(spans)
