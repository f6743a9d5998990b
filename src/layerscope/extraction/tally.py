"""What of the texts is not read: counted on the way, and said once at the end."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from layerscope.data import Examples
from layerscope.errors import log
from layerscope.extraction.encode import texts_of
from layerscope.extraction.items import Items
from layerscope.models import Model
from layerscope.team import Team


@dataclass
class Tally:
    """What happened to the texts on the way."""

    rows: int = 0
    truncated: int = 0  # texts longer than max_length, in any model
    words_left_out: int = 0  # words that some model does not see whole

    def add(self, other: Tally) -> None:
        self.rows += other.rows
        self.truncated += other.truncated
        self.words_left_out += other.words_left_out


def cut_texts(examples: Examples, per_model: Sequence[Items]) -> int:
    """How many texts are cut off for some model, in any of their choices."""
    cut = np.any([items.truncated for items in per_model], axis=0)
    return len(np.unique(texts_of(examples)[cut]))


def note_unread(tally: Tally, examples: Examples, models: Sequence[Model], max_length: int) -> None:
    """Say what of the examples some model has not read, where there is anything; `tally` is this process's part."""
    team, total = Team.current(), Tally()
    for part in team.gather(tally):
        total.add(part)
    if team.is_main:
        limit = min(max_length, *(model.positions or max_length for model in models))
        note_cut(total.truncated, len(examples), examples.task, limit)
        note_left_out(total.words_left_out)


def note_left_out(words: int) -> None:
    """Say how many words are left out, where any is."""
    if words:
        log.warning("%d words are left out: they are cut off or have no token.", words)


def note_cut(count: int, texts: int, task: str, limit: int) -> None:
    """Say how many of the texts that are used are cut off, where any is."""
    if count:
        log.warning("%d of %d texts of %s are cut off at %d tokens.", count, texts, task, limit)
