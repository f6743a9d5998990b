"""Text to words, for networks that read characters: every distinct word once, the text as numbers of words.

A cache folder holds, for each part (train, held), `<part>.npy` (int32: the articles' words one after another, each the
number of a distinct word), `characters.npy` (the characters of every distinct word, as ELMo numbers them), `first.npy`
(its first piece in the shared vocabulary, which is what is predicted), and `corpus.json`, written last.
"""

from __future__ import annotations

import hashlib
import json
import os
import re
from collections.abc import Sequence
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path

import numpy as np
import torch

from nursery.corpus import META, PARTS, articles, bounded_map, chunks, is_held_out, key_of
from nursery.vocabulary import UNK_ID

_WORD = re.compile(r"\w+|[^\w\s]")  # as layerscope splits a running text for ELMo


def number_words(
    shards: Sequence[Path], tokenizer_folder: Path, cache: Path, longest: int, workers: int | None = None
) -> Path:
    """The cache folder of these shards' words; made if it is not there."""
    key = hashlib.sha256(f"{key_of(shards, tokenizer_folder)} words {longest}".encode()).hexdigest()
    folder = cache / key[:16]
    if (folder / META).is_file():
        return folder
    folder.mkdir(parents=True, exist_ok=True)
    numbers: dict[str, int] = {}
    streams: dict[str, list[np.ndarray]] = {part: [] for part in PARTS}
    with ProcessPoolExecutor(workers or os.cpu_count()) as pool:
        for chunk in bounded_map(pool, _split, chunks(articles(shards))):
            for held, distinct, places in chunk:
                own = np.asarray([numbers.setdefault(word, len(numbers)) for word in distinct], np.int32)
                streams[PARTS[held]].append(own[places])
    words = list(numbers)
    counts = {}
    for part in PARTS:
        stream = np.concatenate(streams[part]) if streams[part] else np.zeros(0, np.int32)
        _save(folder / f"{part}.npy", stream)
        counts[part] = {"tokens": len(stream), "articles": len(streams[part])}
    _save(folder / "characters.npy", characters(words, longest))
    _save(folder / "first.npy", first_pieces(words, tokenizer_folder))
    meta = {"key": key, "shards": [shard.name for shard in shards], "words": len(words), **counts}
    partial = folder / f"{META}.{os.getpid()}"
    partial.write_text(json.dumps(meta, indent=2), encoding="utf-8")
    partial.replace(folder / META)
    return folder


def characters(words: Sequence[str], longest: int) -> np.ndarray:
    """(words, longest) ids of their characters."""
    from layerscope.models.elmo import word_characters

    table = np.zeros((len(words), longest), np.int16)
    for row, word in zip(table, words, strict=True):
        row[:] = word_characters(word, longest)
    return table


def first_pieces(words: Sequence[str], tokenizer_folder: Path) -> np.ndarray:
    """The first piece of every word in the shared vocabulary; the unknown one where nothing is left of a word."""
    from tokenizers import Tokenizer

    tokenizer = Tokenizer.from_file(str(tokenizer_folder / "tokenizer.json"))
    tokenizer.no_truncation()
    pieces = tokenizer.encode_batch_fast(list(words), add_special_tokens=False)
    return np.asarray([piece.ids[0] if piece.ids else UNK_ID for piece in pieces], np.int16)


def words_on(device: torch.device, numbers: np.ndarray) -> torch.Tensor:
    """The numbers of words on the device."""
    return torch.from_numpy(np.array(numbers)).to(device)


def _split(chunk: list[list[str]]) -> list[tuple[bool, list[str], np.ndarray]]:
    """Each article: whether it is held out, its distinct words, and the place of each of its words among those."""
    split = []
    for article in chunk:
        words = [word for paragraph in article for word in _WORD.findall(paragraph)]
        own: dict[str, int] = {}
        places = np.asarray([own.setdefault(word, len(own)) for word in words], np.int32)
        split.append((is_held_out(article), list(own), places))
    return split


def _save(path: Path, array: np.ndarray) -> None:
    """Whole or not at all: several trainers may make the same cache."""
    partial = path.with_name(f"{path.name}.{os.getpid()}.npy")
    np.save(partial, array)
    partial.replace(path)
