"""Text to tokens, once: articles of `*.txt.xz` shards, tokenised in parallel and cached; some are held out.

A cache folder holds, for each part (train, held), `<part>.npy` (uint16: the articles' tokens one after another, each
article closed by [SEP]) and `<part>-ends.npy` (int64: where each article ends), and `corpus.json`, written last.
"""

from __future__ import annotations

import hashlib
import json
import lzma
import os
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np

from nursery.vocabulary import SEP_ID

PARTS = ("train", "held")
HELD_EVERY = 100  # one article in so many is held out, chosen by its text alone
META = "corpus.json"
_CHUNK = 64  # articles a worker tokenises at once
_tokenizer: Any = None  # one per worker process


def articles(shards: Sequence[Path]) -> Iterator[list[str]]:
    """The articles of the shards, each a list of paragraphs."""
    for shard in shards:
        opener = lzma.open if shard.suffix == ".xz" else open
        with opener(shard, "rt", encoding="utf-8") as lines:
            paragraphs: list[str] = []
            for line in lines:
                if text := line.strip():
                    paragraphs.append(text)
                elif paragraphs:
                    yield paragraphs
                    paragraphs = []
            if paragraphs:
                yield paragraphs


def is_held_out(article: Sequence[str]) -> bool:
    """Whether an article is kept from training: a function of its text, whatever shard it stands in."""
    text = "\n".join(article).encode()
    return int.from_bytes(hashlib.sha256(text).digest()[:8], "big") % HELD_EVERY == 0


def tokenise(shards: Sequence[Path], tokenizer_folder: Path, cache: Path, workers: int | None = None) -> Path:
    """The cache folder of these shards under this tokenizer; made if it is not there."""
    key = key_of(shards, tokenizer_folder)
    folder = cache / key[:16]
    if (folder / META).is_file():
        return folder
    folder.mkdir(parents=True, exist_ok=True)
    tokens: dict[str, list[np.ndarray]] = {part: [] for part in PARTS}
    lengths: dict[str, list[int]] = {part: [] for part in PARTS}
    with ProcessPoolExecutor(workers or os.cpu_count(), initializer=_open, initargs=(str(tokenizer_folder),)) as pool:
        for chunk in bounded_map(pool, _encode, chunks(articles(shards))):
            for held, ids in chunk:
                part = PARTS[held]
                tokens[part].append(ids)
                lengths[part].append(len(ids))
    counts = {}
    for part in PARTS:
        stream = np.concatenate(tokens[part]) if tokens[part] else np.zeros(0, np.uint16)
        np.save(folder / f"{part}.npy", stream)
        np.save(folder / f"{part}-ends.npy", np.cumsum(np.asarray(lengths[part], np.int64)))
        counts[part] = {"tokens": len(stream), "articles": len(lengths[part])}
    meta = {"key": key, "shards": [shard.name for shard in shards], **counts}
    partial = folder / f"{META}.{os.getpid()}"
    partial.write_text(json.dumps(meta, indent=2), encoding="utf-8")
    partial.replace(folder / META)
    return folder


@dataclass(frozen=True)
class Corpus:
    """A tokenised corpus as it lies on disk."""

    folder: Path

    def tokens(self, part: str) -> np.ndarray:
        return np.load(self.folder / f"{part}.npy", mmap_mode="r")

    def ends(self, part: str) -> np.ndarray:
        return np.load(self.folder / f"{part}-ends.npy")

    @property
    def meta(self) -> dict[str, Any]:
        return json.loads((self.folder / META).read_text(encoding="utf-8"))


def key_of(shards: Sequence[Path], tokenizer_folder: Path) -> str:
    """What the tokens of these shards depend on: the shards' content and the vocabulary."""
    digest = hashlib.sha256((tokenizer_folder / "tokenizer.json").read_bytes())
    for shard in shards:
        digest.update(hashlib.sha256(shard.read_bytes()).digest())
    return digest.hexdigest()


def chunks(stream: Iterable[list[str]]) -> Iterator[list[list[str]]]:
    """The articles, some at a time."""
    stream = iter(stream)
    while chunk := list(islice(stream, _CHUNK)):
        yield chunk


def bounded_map(
    pool: ProcessPoolExecutor, work: Callable[[list[list[str]]], Any], parts: Iterator[list[list[str]]]
) -> Iterator[Any]:
    """Results in order, with only some chunks of text in memory at a time."""
    waiting = [pool.submit(work, part) for part in islice(parts, 4 * (os.cpu_count() or 1))]
    while waiting:
        yield waiting.pop(0).result()
        waiting += [pool.submit(work, part) for part in islice(parts, 1)]


def _open(folder: str) -> None:
    from tokenizers import Tokenizer

    global _tokenizer  # noqa: PLW0603 (a worker opens its tokenizer once)
    os.environ["TOKENIZERS_PARALLELISM"] = "false"
    _tokenizer = Tokenizer.from_file(str(Path(folder) / "tokenizer.json"))
    _tokenizer.no_truncation()


def _encode(chunk: list[list[str]]) -> list[tuple[bool, np.ndarray]]:
    """Each article: whether it is held out, and its tokens with [SEP] at the end."""
    found = []
    for article in chunk:
        ids = [i for e in _tokenizer.encode_batch_fast(article, add_special_tokens=False) for i in e.ids]
        found.append((is_held_out(article), np.asarray([*ids, SEP_ID], np.uint16)))
    return found
