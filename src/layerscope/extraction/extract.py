"""`ls.extract` runs one model over one split and returns its representations, which the store keeps.

An extraction is an artifact that is built shard by shard, so that one that was killed goes on where it stopped.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from functools import cached_property, partial
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from layerscope.data import Examples, TaskSource, task
from layerscope.distributed import Team
from layerscope.errors import InputError, check_count
from layerscope.extraction.forward import check_layers
from layerscope.extraction.loop import WINDOW, Tally, note_cut, note_left_out
from layerscope.extraction.pooling import Reading
from layerscope.extraction.representations import Representations, read_folder
from layerscope.extraction.row_store import Rows, write_card, write_shard
from layerscope.extraction.stream import Batch, Streamer, units_of
from layerscope.models import Model, load
from layerscope.models.load import ModelSource
from layerscope.progress import progress
from layerscope.store import Artifact, is_sealed, produce_all, seal, write_json
from layerscope.version import __version__

_PIECE = 1 << 27  # bytes that wait on a GPU before they are copied to the host

States = dict[int, Tensor]


class RowCollector:
    """A consumer of batches that collects the rows of one model in the host's memory.

    States on a GPU are copied a piece at a time, and a copy is not waited for before the next piece is sent.
    """

    def __init__(self) -> None:
        self._rows: list[Rows] = []
        self._labels: list[np.ndarray | None] = []
        self._waiting: list[States] = []  # on a GPU, not yet sent
        self._size = 0  # their bytes
        self._sent: tuple[States, torch.cuda.Event] | None = None
        self._pieces: list[States] = []

    def update(self, batch: Batch) -> None:
        self._rows.append(batch.rows)
        self._labels.append(batch.labels)
        states = batch.states[0]
        if all(state.device.type == "cpu" for state in states.values()):
            self._pieces.append(dict(states))
            return
        self._waiting.append(states)
        self._size += sum(state.nbytes for state in states.values())
        if self._size >= _PIECE:
            self._send()

    def _send(self) -> None:
        """Start to copy the states that wait to the host."""
        if self._waiting:
            piece = {}
            for layer in self._waiting[0]:
                whole = torch.cat([part[layer] for part in self._waiting])
                host = torch.empty(whole.shape, dtype=whole.dtype, pin_memory=True)
                piece[layer] = host.copy_(whole, non_blocking=True)
            sent = torch.cuda.Event()
            sent.record()
            self._waiting, self._size = [], 0
            self._receive()
            self._sent = piece, sent

    def _receive(self) -> None:
        """Move what was sent before out of page-locked memory, of which there is little."""
        if self._sent is not None:
            piece, sent = self._sent
            sent.synchronize()
            self._pieces.append({layer: part.clone() for layer, part in piece.items()})
            self._sent = None

    def finish(self) -> tuple[States, Rows, np.ndarray | None]:
        """Return the states, the rows and the labels, in the data's order."""
        self._send()
        self._receive()
        rows = Rows.join(self._rows)
        order = rows.order()
        labels = [part for part in self._labels if part is not None]
        states, at = {}, torch.from_numpy(order)
        for layer in list(self._pieces[0]):
            states[layer] = torch.cat([piece.pop(layer) for piece in self._pieces])[at]
        return states, rows.take(order), np.concatenate(labels)[order] if labels else None

    def __len__(self) -> int:
        return sum(map(len, self._rows))


_SHARD_BYTES = 1 << 29  # of states in one shard, at most


def extract(
    model: ModelSource,
    task: TaskSource,
    *,
    split: str | None = None,
    pool: str = "cls",
    layers: Sequence[int] | None = None,
    limit: int | None = None,
    max_length: int = 128,
    batch_tokens: int | None = None,
    final_norm: bool = False,
    subword: str = "last",
    special: bool = False,
    autocast: str | None = None,
    tokenizer: Any = None,
    store: bool = True,
) -> Representations:
    """Run a model over a split once and keep the states of all its layers: one row per text, in the data's order.

    The result is kept in the store, memory-mapped, and found there the next time.

    Args:
        model: A checkpoint: a folder, a hub id, `id@revision`, a GGUF file, `demo:minilm`, `demo:smollm2`,
            `garden:NAME`, `random:` and one of these, or a `Model`.
        task: A task of the registry (`layerscope tasks` lists them), a file, a folder, a hub id, or a `Task`.
        split: The split; `validation` where there is one, else the only one.
        pool: How token states become rows: `cls` (the family's summary token), `mean` (over real tokens without special
            ones), `last`, `words` (one row per word) or `tokens` (one row per token). A text with several choices
            has a row for each.
        layers: Which layers 0..L; all of them if not given.
        limit: Use only the first N examples.
        max_length: The longest text in tokens; the rest is cut off.
        batch_tokens: Tokens per batch, padding included.
        final_norm: Take the last layer after the model's final norm, as Hugging Face's `hidden_states[-1]` does.
        subword: With the pool `words`: whether the `last` or the `first` sub-word or the `mean` of all stands for a
            word.
        special: With the pools `mean` and `tokens`: keep separators and other special tokens.
        autocast: Compute in `bfloat16` or `float16` where that is safe.
        tokenizer: The tokenizer, where the model does not carry its own.
        store: Whether to keep the result in the store; otherwise it is in memory only.

    Returns:
        The `Representations`: `reps[layer]` is a tensor (n, width).

    Example:
        >>> import layerscope as ls
        >>> reps = ls.extract("garden:bert-s0", "pydocs", pool="mean", limit=10, max_length=16)
        >>> len(reps), reps.layers[:3], reps[1].shape[0], len(reps.labels)
        (10, [0, 1, 2], 10, 10)
    """
    model = load(model, tokenizer=tokenizer)
    examples = examples_of(task, split, limit)
    reading = Reading(pool, subword, special, max_length, final_norm, autocast)
    team = Team.current()
    extraction = Extraction(model, examples, check_layers(layers, model), reading, batch_tokens)
    reps = extraction.representations(team) if store or team.size > 1 else extraction.in_memory()
    if team.is_main:
        extraction.report(reps)
    return reps


def extract_all(models: Sequence[Model], examples: Examples, **reading: Any) -> list[Representations]:
    """Return all layers of several models over the same examples, by way of the store; `reading` as in `Reading`."""
    extractions = [Extraction(model, examples, check_layers(None, model), Reading(**reading)) for model in models]
    opened = []
    for extraction, folder in zip(extractions, produce_all(extractions, Team.current()), strict=True):
        opened.append(extraction.open_folder(folder))
        if Team.current().is_main:
            extraction.report(opened[-1])
    return opened


def examples_of(source: Any, split: str | None, limit: int | None, *, learning: bool = False) -> Examples:
    """Return the first `limit` examples of a task argument's split, or of examples that are given themselves."""
    check_count(limit, "limit")
    if isinstance(source, Examples) and split is not None:
        raise InputError(
            f"Examples of {source.split} were given, so there is no split {split!r} to take; leave it out."
        )
    if isinstance(source, Examples):
        return source.first(limit)
    return task(source).split(split, learning=learning, limit=limit)


def refuse_reading(**options: tuple[Any, Any]) -> None:
    """Raise InputError where an option of reading texts, given as (value, default), comes with representations."""
    for name, (value, default) in options.items():
        if value != default:
            raise InputError(
                f"{name} was given together with representations, which have theirs already; give it to ls.extract, or "
                "take some of the rows with select."
            )


class Extraction(Artifact):
    """The artifact with one model's representations of some examples, which is built shard by shard."""

    kind = "representations"
    version = 4

    def __init__(
        self,
        model: Model,
        examples: Examples,
        layers: tuple[int, ...],
        reading: Reading,
        batch_tokens: int | None = None,
    ) -> None:
        self.model = model
        self.examples = examples.in_words() if reading.pool == "words" else examples  # may raise, before any work
        self.layers = layers
        self.reading = reading
        self.batch_tokens = batch_tokens
        self.streamer = Streamer([model], layers, reading, batch_tokens)

    def __getstate__(self) -> dict[str, Any]:
        """Return what goes to another process: without the streamer, which holds hooks of the network."""
        return {name: value for name, value in vars(self).items() if name != "streamer"}

    def __setstate__(self, state: dict[str, Any]) -> None:
        vars(self).update(state)
        self.streamer = Streamer([self.model], self.layers, self.reading, self.batch_tokens)

    def spec(self) -> dict[str, Any]:
        """Return what determines the result; batches and devices change it only by rounding."""
        model, examples = self.model.spec(), self.examples.spec()
        return {"model": model, "examples": examples, "layers": list(self.layers), "reading": self.reading.spec()}

    def representations(self, team: Team) -> Representations:
        """Return the representations from the store, where they are made if they are not there."""
        return self.open_folder(self.produce(team))

    def open_folder(self, folder: Path) -> Representations:
        """Return the representations in a folder of the store, under this model's name."""
        reps = read_folder(folder)
        # The store's may be another name of the same weights.
        reps.info |= {"model": self.model.name, "described": self.model.described()}
        return reps

    def in_memory(self) -> Representations:
        """Compute the representations without the store."""
        collector = RowCollector()
        tally = self.streamer.feed(self.examples, [collector], self._title)
        self._need_rows(tally)
        states, rows, labels = collector.finish()
        return Representations(states, rows, labels, label_names=self.examples.label_names, info=self._info(tally))

    def build(self, folder: Path) -> None:
        """Write this process's shards except for those that are finished; the main process adds the card."""
        team, size = Team.current(), self._texts_per_shard
        count = -(-len(self.examples) // size)
        names = [f"shard-{i:05d}.safetensors" for i in range(count)]

        def is_done(i: int) -> bool:
            tally = _read_tally(folder / _tally_name(i))
            return tally is not None and (tally.rows == 0 or is_sealed(folder / names[i]))

        missing = [i for i in team.share(count) if not is_done(i)]
        parts = [self.examples.take(slice(i * size, (i + 1) * size)) for i in missing]
        with progress(self._title, sum(map(len, parts))) as advance, self.streamer.prepared(), self._writer() as write:
            for i, window in zip(missing, self.streamer.loop.windows(parts), strict=True):
                collector = RowCollector()
                tally = self.streamer.feed_window(window, [collector], advance)
                write(partial(_write, folder, i, names[i], collector, tally))
        team.barrier()
        if team.is_main:
            tallies = [folder / _tally_name(i) for i in range(count)]
            total = Tally()
            for file in tallies:
                total.add(_read_tally(file) or Tally())
            self._need_rows(total)
            write_card(folder, [n for n in names if (folder / n).is_file()], self._card(total))
            for file in tallies:
                file.unlink()

    @contextmanager
    def _writer(self) -> Iterator[Callable[[Callable[[], None]], None]]:
        """Give a function that runs what it is given: at once on a CPU, else in another thread, one thing at a time.

        A GPU then computes the next shard while one is written; at most one waits, so that memory does not grow.
        """
        if self.model.device.type == "cpu":
            yield lambda work: work()
            return
        with ThreadPoolExecutor(1) as thread:
            last: list[Future[None]] = []

            def write(work: Callable[[], None]) -> None:
                while last:
                    last.pop().result()
                last.append(thread.submit(work))

            yield write
            write(lambda: None)
            last.pop().result()

    @property
    def _title(self) -> str:
        return f"{self.model.name} over {self.examples.task} ({self.examples.split})"

    @cached_property
    def _texts_per_shard(self) -> int:
        """How many texts a shard has: few enough that it fits into memory, whatever the pool."""
        rows = {"words": 32, "tokens": 64}.get(self.reading.pool, 1)  # of a text, as a guess
        row_bytes = 4 * self.model.width * len(self.layers)
        return max(64, min(WINDOW, _SHARD_BYTES // (rows * row_bytes)))

    def _info(self, tally: Tally) -> dict[str, Any]:
        """Return the representations' `info`: model, data, reading, versions and what was not read."""
        return {
            "model": self.model.name,
            "described": self.model.described(),
            "family": self.model.architecture.family,
            "depth": self.model.depth,
            "data": self.examples.described(),
            "texts": len(self.examples),
            "skipped": self.examples.skipped,
            "truncated": tally.truncated,
            "words_left_out": tally.words_left_out,
            "reading": self.reading.spec(),
            "layerscope": __version__,
            "torch": torch.__version__,
        }

    def _card(self, tally: Tally) -> dict[str, Any]:
        """Return what the card of the stored representations says."""
        examples = self.examples
        names = examples.label_names
        return {
            "layers": list(self.layers),
            "names": [str(layer) for layer in self.layers],
            "label_names": None if names is None else list(names),
            "task": examples.task,
            "split": examples.split,
            "fingerprint": examples.fingerprint,
            "units": units_of(self.reading, self.model, self.examples),
            "info": self._info(tally),
        }

    def _need_rows(self, tally: Tally) -> None:
        if not tally.rows:
            raise InputError(f"No row came out of {self.examples.task} ({self.examples.split}).")

    def report(self, reps: Representations) -> None:
        """Warn about texts and words that the length limit cut off, whether the work was done now or earlier."""
        limit = min(self.reading.max_length, self.model.positions or self.reading.max_length)
        note_cut(reps.info["truncated"], reps.info["texts"], self.examples.task, limit)
        note_left_out(reps.info["words_left_out"])


def _write(folder: Path, number: int, name: str, collector: RowCollector, tally: Tally) -> None:
    """Write a shard, and then its tally, whose presence says that the shard is done."""
    if len(collector):
        write_shard(folder / name, *collector.finish())
        seal(folder / name)
    write_json(folder / _tally_name(number), vars(tally))


def _read_tally(path: Path) -> Tally | None:
    """Return the tally of a shard, or None where it is missing or was not written to its end."""
    try:
        return Tally(**json.loads(path.read_text(encoding="utf-8")))
    except (OSError, ValueError, TypeError):
        return None


def _tally_name(shard: int) -> str:
    """Return the name of a shard's tally."""
    return f"tally-{shard:05d}.json"
