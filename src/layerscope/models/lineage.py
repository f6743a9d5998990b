"""The lineage of a network: what was cut from what, and which rows of which data it learned from.

Networks carry it as attributes that no fingerprint sees, and `layerscope.json` keeps it beside saved weights.
"""

from __future__ import annotations

import base64
import binascii
import json
import zlib
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import numpy as np
import xxhash
from pydantic import AfterValidator, ConfigDict, Field

from layerscope.data import Examples
from layerscope.errors import InputError, ModelError, log
from layerscope.store import Saved, read_json

if TYPE_CHECKING:
    from layerscope.models.load import Model

RECORD = "layerscope.json"
ORIGIN = "_layerscope_origin"  # an attribute of networks: one entry per cut
LEARNED = "_layerscope_learned"  # one entry per data set that it learned from
BASE = "_layerscope_base"  # the model that it began as
TRAINED = "_layerscope_trained"  # one entry per training
CONVERTED = "_layerscope_converted"  # the file that its weights were made from, where that was not a checkpoint
_RECORDED = "_layerscope_recorded"  # what stood beside its weights, which networks made from it do not inherit
_MARK = 5  # bytes of a row's mark: of a million rows that were not learned from, at most one looks as if it were
_MOST = 1 << 18  # marks that are kept of one data set: 1.3 MB, or 1.7 MB as text
_MOST_BYTES = 64 << 20  # of a list of rows, a bit per row


def _check_packed(text: str) -> str:
    """Return a packed list of rows, or raise ValueError where it cannot be unpacked."""
    unpacked(text)
    return text


def _check_marks(text: str) -> str:
    """Return the marks of rows as they are written, or raise ValueError where they cannot be read."""
    try:
        content = base64.b64decode(text, validate=True)
    except binascii.Error as error:
        raise ValueError(f"its marks of rows cannot be read ({error})") from error
    if len(content) % _MARK:
        raise ValueError("its marks of rows are cut short")
    return text


class Step(Saved):
    """One cut: from which model, how deep that was, which blocks stayed and where the head sits."""

    model_config = ConfigDict(extra="allow")
    origin: str = Field(alias="from")
    depth: int = Field(ge=0, le=1 << 20)
    keep: list[Annotated[int, Field(ge=1, le=1 << 20)]]
    head: int | None = None


class Learned(Saved):
    """The rows of one data set that a model learned from."""

    model_config = ConfigDict(extra="allow")
    task: str
    split: str
    texts: str
    read: int | None = Field(None, ge=0)  # how many texts that is the hash of: all of the split, or the first ones
    n: int = Field(ge=0)
    rows: Annotated[str, AfterValidator(_check_packed)]
    marks: Annotated[str, AfterValidator(_check_marks)] = ""


class Base(Saved):
    """The model that a network began as. `hub` says whether its name is one of the hub's."""

    name: str
    hub: bool = False
    revision: str | None = None
    license: str | list[str] | None = None
    license_name: str | None = None
    license_link: str | None = None


class Converted(Saved):
    """The file of another format from which a checkpoint was made."""

    file: str
    sha256: str
    quantisation: str  # how most of its numbers are written
    architecture: str


class TrainingEntry(Saved):
    """One training that a model went through: how, and on what."""

    model_config = ConfigDict(extra="allow")
    method: str
    strategy: str = ""
    task: str
    split: str
    n: int = Field(ge=0)


class ScoreEntry(Saved):
    """One score of exactly these weights: on which rows, with which interval, and of what kind."""

    model_config = ConfigDict(extra="allow")
    task: str | None
    split: str | None
    metric: str
    score: float | None
    n: int = Field(ge=0)
    interval: Annotated[list[float], Field(min_length=2, max_length=2)] | None = None
    interval_note: str = ""
    kind: str = ""
    note: str = ""


class Lineage(Saved):
    """The schema of `layerscope.json`: what a checkpoint was made from, by which steps, and its scores."""

    base: Base | None = None
    steps: list[Step] = Field(default_factory=list)
    learned: list[Learned] = Field(default_factory=list)
    converted: Converted | None = None
    training: list[TrainingEntry] = Field(default_factory=list)
    scores: list[ScoreEntry] = Field(default_factory=list)


def learned(network: Any) -> list[dict[str, Any]]:
    """Return what a network learned from, as far as is known: task, split, hash of the texts, rows, their marks."""
    return list(getattr(network, LEARNED, ()))


def converted_from(network: Any) -> dict[str, Any] | None:
    """Return the file that a network's weights were made from (name, hash, quantisation); None for a checkpoint."""
    return getattr(network, CONVERTED, None)


def inherit(network: Any, *sources: Any) -> None:
    """Give a network that was made from others what all of them learned from, and the origin of the first."""
    _set_learned(network, [entry for source in sources for entry in learned(source)])
    for name in (BASE, CONVERTED, ORIGIN, TRAINED):
        inherited = next((getattr(source, name) for source in sources if getattr(source, name, None)), None)
        if inherited is not None and not getattr(network, name, None):
            setattr(network, name, inherited)


def learn(network: Any, examples: Examples) -> None:
    """Note that a network has learned from these rows."""
    entry = {
        "task": examples.task,
        "split": examples.split,
        "texts": examples.texts_fingerprint,
        "read": examples.read,
        "n": len(examples),
        "rows": packed(examples.rows),
        "marks": _encoded_marks(marks(examples)),
        **({} if examples.pairs is None else {"pairs": True}),
    }
    _set_learned(network, [*learned(network), entry])


def trained(network: Any) -> list[dict[str, Any]]:
    """Return the trainings that a network went through, as far as is known."""
    return list(getattr(network, TRAINED, ()))


def recorded(network: Any) -> Lineage | None:
    """Return the `layerscope.json` that stood beside a network's weights when it was opened, or None."""
    record: Lineage | None = getattr(network, _RECORDED, None)
    return record


def remember(network: Any, folder: Path, base: Base | None = None) -> None:
    """Give a network the lineage in the `layerscope.json` beside its weights; without one only `base` is known."""
    setattr(network, BASE, base)
    path = folder / RECORD
    if not path.is_file():
        return
    record = read_json(
        path,
        Lineage,
        error=ModelError,
        way_out="it says what the model was cut from and which rows it learned from, so save the model again, or "
        "remove the file to open the model without that",
    )
    setattr(network, _RECORDED, record)
    if "base" in record.model_fields_set:  # it may be None: the network came from no checkpoint
        setattr(network, BASE, record.base)
    setattr(network, TRAINED, [entry.model_dump() for entry in record.training])
    setattr(network, ORIGIN, [step.model_dump(by_alias=True) for step in record.steps])
    if record.converted is not None:
        setattr(network, CONVERTED, record.converted.model_dump())
    _set_learned(network, [*learned(network), *(entry.model_dump(exclude_none=True) for entry in record.learned)])


def _set_learned(network: Any, entries: Sequence[dict[str, Any]]) -> None:
    """Give a network what it learned from, with entries of the same texts joined into one."""
    joined: dict[str, dict[str, Any]] = {}
    for entry in entries:
        before = joined.get(entry["texts"])
        if before is None:
            joined[entry["texts"]] = dict(entry)
        elif before["rows"] != entry["rows"]:
            rows = np.union1d(unpacked(before["rows"]), unpacked(entry["rows"]))
            both = _encoded_marks(np.union1d(_decoded_marks(before), _decoded_marks(entry)))
            joined[entry["texts"]] = {**entry, "n": len(rows), "rows": packed(rows), "marks": both}
    setattr(network, LEARNED, list(joined.values()))


def known_rows(models: Sequence[Model], examples: Examples, in_other_data: bool = True) -> np.ndarray:
    """Return (n,) whether any of the models learned from each example.

    In the same data an example is known by its number: a text that occurs twice counts as two rows, so that what a
    training held out stays held out. In other data it is known by its text.
    """
    entries = [entry for model in models for entry in learned(model.network)]
    known = np.zeros(len(examples), dtype=bool)
    same = [examples.begin_with(entry["texts"], entry.get("read") or examples.read) for entry in entries]
    for entry in (entry for entry, is_same in zip(entries, same, strict=True) if is_same):
        known |= np.isin(examples.rows, unpacked(entry["rows"]))
    others = [entry for entry, is_same in zip(entries, same, strict=True) if not is_same]
    if in_other_data and others:
        known |= np.isin(marks(examples), np.concatenate([_decoded_marks(entry) for entry in others]))
    return known


def held_out(
    models: Sequence[Model],
    examples: Examples,
    limit: int | None = None,
    all_rows: bool = False,
    or_all: bool = False,
) -> tuple[Examples, str]:
    """Return the examples that no model learned from, `limit` at most, and a note where these are not all examples.

    With `all_rows` all examples are returned, and the note says so. `or_all` is for data with splits of its own: a
    split from which the models learned completely, or that only shares some texts with what they learned from, is
    returned whole, with the note.
    """
    known = known_rows(models, examples)
    left_out = known_rows(models, examples, in_other_data=False) if or_all else known
    if not known.any():
        return examples.first(limit), ""
    learners = [model for model in models if known_rows([model], examples).any()]
    names = " and ".join(dict.fromkeys(model.name for model in learners))
    data = f"{examples.task} ({examples.split})"
    if all_rows or (or_all and (left_out.all() or not left_out.any())):
        chosen = examples.first(limit)
        count = int(known[np.isin(examples.rows, chosen.rows)].sum())
        if not count:
            return chosen, ""
        log.warning("%s learned from %d of the %d rows of %s that are scored.", names, count, len(chosen), data)
        return chosen, f"{names} learned from {count} of these {len(chosen)} rows"
    if left_out.all():
        raise InputError(
            f"{names} learned from all {len(examples)} rows of {data}, so none is left to score it on; give other data "
            "or another split, or score it on what it learned from anyway with all_rows=True (--all-rows)."
        )
    chosen = examples.take(~left_out).first(limit)
    log.warning(
        "%s learned from %d of the %d rows of %s, so only %d others are scored; all_rows=True (--all-rows) scores all.",
        *(names, int(left_out.sum()), len(examples), data, len(chosen)),
    )
    return chosen, "held out: rows that the model did not learn from"


def marks(examples: Examples) -> np.ndarray:
    """Return (n,) a short hash of each row's texts, whatever its label: the same in any file that holds the row."""
    hashes = np.empty(len(examples), np.uint64)
    for i, text in enumerate(examples.texts):
        pair = () if examples.pairs is None else (examples.pairs[i],)
        choices = () if examples.choices is None else examples.choices[i]
        hashes[i] = xxhash.xxh3_64_intdigest(json.dumps([text, *pair, *choices]).encode())
    return hashes >> np.uint64(64 - 8 * _MARK)


def _encoded_marks(marks: np.ndarray) -> str:
    """Return marks as a text; of very many only the smallest."""
    # The smallest and not the first: rows that are learned later do not push out all marks of the earlier ones.
    smallest = np.unique(marks)[:_MOST].astype("<u8")
    return base64.b64encode(smallest.view(np.uint8).reshape(-1, 8)[:, :_MARK].tobytes()).decode()


def _decoded_marks(entry: dict[str, Any]) -> np.ndarray:
    """Return the marks of an entry; earlier records have none."""
    content = np.frombuffer(base64.b64decode(entry.get("marks", "")), np.uint8).reshape(-1, _MARK)
    return np.pad(content, ((0, 0), (0, 8 - _MARK))).view("<u8").reshape(-1).astype(np.uint64)


def packed(rows: np.ndarray) -> str:
    """Return row numbers as a short text: a bit per row of the data, compressed."""
    flags = np.zeros(int(rows.max()) + 1 if len(rows) else 0, dtype=bool)
    flags[rows] = True
    return base64.b64encode(zlib.compress(np.packbits(flags).tobytes(), 9)).decode()


def unpacked(text: str) -> np.ndarray:
    """Return the row numbers in a packed text, in order, or raise ValueError where it cannot be read."""
    try:
        unzip = zlib.decompressobj()
        flags = unzip.decompress(base64.b64decode(text, validate=True), _MOST_BYTES)
    except (binascii.Error, zlib.error) as error:
        raise ValueError(f"its list of rows cannot be read ({error})") from error
    if unzip.unconsumed_tail:
        raise ValueError(f"its list of rows is of more than {8 * _MOST_BYTES:,} rows")
    if not unzip.eof:
        raise ValueError("its list of rows is cut short")
    return np.flatnonzero(np.unpackbits(np.frombuffer(flags, dtype=np.uint8)))
