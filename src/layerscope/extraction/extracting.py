"""`ls.extract`: one pass of one model over one split, kept as representations."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from functools import cached_property, partial
from pathlib import Path
from typing import Any

import torch

from layerscope.data import Examples, Task, task
from layerscope.errors import InputError, check_count
from layerscope.extraction.forward import check_layers
from layerscope.extraction.keeping import Keeper
from layerscope.extraction.loop import WINDOW
from layerscope.extraction.reading import Reading
from layerscope.extraction.representations import Representations, read_folder
from layerscope.extraction.shards import write_card, write_shard
from layerscope.extraction.streaming import Streamer, units_of
from layerscope.extraction.tally import Tally, note_cut, note_left_out
from layerscope.models import Model, load
from layerscope.progress import progress
from layerscope.store import Artifact, is_sealed, produce_all, seal, write_json
from layerscope.team import Team
from layerscope.version import __version__

_SHARD_BYTES = 1 << 29


def extract(
    model: str | Path | Model | Any,
    task: str | Task | Any,
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
        model: A model, or what `ls.load` takes.
        task: The texts.
        split: The split; `validation` where there is one.
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
    """All layers of several models over the same examples, from the store; `reading` as in Reading."""
    extractions = [Extraction(model, examples, check_layers(None, model), Reading(**reading)) for model in models]
    opened = []
    for extraction, folder in zip(extractions, produce_all(extractions, Team.current()), strict=True):
        opened.append(extraction.opened(folder))
        if Team.current().is_main:
            extraction.report(opened[-1])
    return opened


def examples_of(source: Any, split: str | None, limit: int | None, *, learning: bool = False) -> Examples:
    """The examples of a task argument's split, or those that are given, the first `limit` of them."""
    check_count(limit, "limit")
    if isinstance(source, Examples) and split is not None:
        raise InputError(
            f"Examples of {source.split} were given, so there is no split {split!r} to take; leave it out."
        )
    examples = source if isinstance(source, Examples) else task(source).split(split, learning=learning)
    return examples if limit is None else examples.take(slice(limit))


def refuse_reading(**options: tuple[Any, Any]) -> None:
    """Raise where an option (its value and its default) says how to read texts beside representations that are read."""
    for name, (value, default) in options.items():
        if value != default:
            raise InputError(
                f"{name} was given together with representations, which have theirs already; give it to ls.extract, or "
                "take some of the rows with select."
            )


class Extraction(Artifact):
    """One model over some examples: what determines its representations, and how they are made, shard by shard."""

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
        self.examples = examples.in_words() if reading.pool == "words" else examples  # refused before the work
        self.layers = layers
        self.reading = reading
        self.batch_tokens = batch_tokens
        self.streamer = Streamer([model], layers, reading, batch_tokens)

    def __getstate__(self) -> dict[str, Any]:
        """What goes to another process: the streamer holds parts of the network, and is made anew."""
        return {name: value for name, value in vars(self).items() if name != "streamer"}

    def __setstate__(self, state: dict[str, Any]) -> None:
        vars(self).update(state)
        self.streamer = Streamer([self.model], self.layers, self.reading, self.batch_tokens)

    def spec(self) -> dict[str, Any]:
        """Batches and devices change the result only by rounding, so they are not part of it."""
        model, examples = self.model.spec(), self.examples.spec()
        return {"model": model, "examples": examples, "layers": list(self.layers), "reading": self.reading.spec()}

    def representations(self, team: Team) -> Representations:
        """From the store, where they are made if they are not there."""
        return self.opened(self.produce(team))

    def opened(self, folder: Path) -> Representations:
        """What lies in a folder of the store."""
        reps = read_folder(folder)
        reps.info["model"] = self.model.name  # the store's may be another name of the same weights
        return reps

    def in_memory(self) -> Representations:
        """Computed, and kept nowhere else."""
        keeper = Keeper()
        tally = self.streamer.feed(self.examples, [keeper], self._title)
        self._need_rows(tally)
        states, rows, labels = keeper.finish()
        return Representations(states, rows, labels, label_names=self.examples.label_names, info=self._info(tally))

    def build(self, folder: Path) -> None:
        """This process's shards; the main process adds the card. Shards that an earlier try left are kept."""
        team, size = Team.current(), self._texts_per_shard
        count = -(-len(self.examples) // size)
        names = [f"shard-{i:05d}.safetensors" for i in range(count)]
        missing = [i for i in team.share(count) if not _is_done(folder / names[i], folder / _tally_name(i))]
        parts = [self.examples.take(slice(i * size, (i + 1) * size)) for i in missing]
        with progress(self._title, sum(map(len, parts))) as advance, self.streamer.prepared(), self._writer() as write:
            for i, window in zip(missing, self.streamer.loop.windows(parts), strict=True):
                keeper = Keeper()
                tally = self.streamer.feed_window(window, [keeper], advance)
                write(partial(_write, folder, i, names[i], keeper, tally))
        team.wait()
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
        """Does what it is given: at once, or beside a GPU in another thread, at most one thing behind."""
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
        """Few enough texts that a shard fits into memory, whatever the pool."""
        rows = {"words": 32, "tokens": 64}.get(self.reading.pool, 1)
        row_bytes = 4 * self.model.width * len(self.layers)
        return max(64, min(WINDOW, _SHARD_BYTES // (rows * row_bytes)))

    def _info(self, tally: Tally) -> dict[str, Any]:
        return {
            "model": self.model.name,
            "described": self.model.described(),
            "family": self.model.anatomy.family,
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
        """Say what the length limit cut off, whether the work was done now or earlier."""
        limit = min(self.reading.max_length, self.model.positions or self.reading.max_length)
        note_cut(reps.info["truncated"], reps.info["texts"], self.examples.task, limit)
        note_left_out(reps.info["words_left_out"])


def _write(folder: Path, number: int, name: str, keeper: Keeper, tally: Tally) -> None:
    """A shard, and then what says that it is done."""
    if len(keeper):
        write_shard(folder / name, *keeper.finish())
        seal(folder / name)
    write_json(folder / _tally_name(number), vars(tally))


def _is_done(shard: Path, tally: Path) -> bool:
    """Whether an earlier try finished a shard, and what it left is whole."""
    kept = _read_tally(tally)
    return kept is not None and (kept.rows == 0 or is_sealed(shard))


def _read_tally(path: Path) -> Tally | None:
    """What a shard's texts came to, or None where that was not written to its end."""
    try:
        return Tally(**json.loads(path.read_text(encoding="utf-8")))
    except (OSError, ValueError, TypeError):
        return None


def _tally_name(shard: int) -> str:
    """The file whose presence says that a shard is done."""
    return f"tally-{shard:05d}.json"
