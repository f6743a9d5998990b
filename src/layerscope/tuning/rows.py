"""Training rows for the Trainer: tokens, labels and, for a frozen prefix, its cached output."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch.utils.data import Dataset

from layerscope.data import Examples
from layerscope.errors import ModelError
from layerscope.extraction.items import Item, Items
from layerscope.extraction.loop import Loop
from layerscope.extraction.packing import padded
from layerscope.extraction.reading import Reading
from layerscope.extraction.tally import cut_texts
from layerscope.models import Model
from layerscope.models.asking import head_padding
from layerscope.tuning.freezing import CHOICES, INDEX, ROWS, STATES
from layerscope.tuning.prefix import PrefixCache


class ItemRows(Dataset):
    """One entry per row: its items (tokens of a text, or of each choice), its label, and its frozen states if cached.

    Rows without a label of their own have their number in its place.
    """

    def __init__(
        self,
        items: Items | Sequence[Item],
        counts: Sequence[int] | None = None,
        labels: np.ndarray | None = None,
        cache: PrefixCache | None = None,
        first_row: int | None = None,
        first_kept: int | None = None,
    ) -> None:
        self.items = Items.of(items)
        self.first_kept = first_kept  # the number of the first row where the training keeps states as it goes
        counts = [1] * len(items) if counts is None else counts
        ends = np.cumsum(counts)
        self.places = [list(range(end - count, end)) for end, count in zip(ends, counts, strict=True)]
        self.labels = np.arange(len(self.places)) if labels is None else labels
        self.cache = cache
        self.first_row = first_row  # where the cache's table begins in one on the device, if it lies there

    def __len__(self) -> int:
        return len(self.places)

    def __getitem__(self, index: int) -> dict[str, Any]:
        return {"items": self.places[index], "label": self.labels[index], "rows": self}

    def states(self, places: Sequence[int], left: bool = False) -> dict[str, Any]:
        """What a batch of these items brings along for the frozen blocks; nothing without a cache."""
        if self.first_kept is not None:
            return {ROWS: [self.first_kept + place for place in places]}
        if self.cache is None:
            return {}
        if self.first_row is None:
            return {STATES: self.cache.batch(places, left)}
        return {INDEX: self.cache.index(places, left) + self.first_row}


class TextRows(ItemRows):
    """One entry per text: its tokens (one item per choice), its label, and its states at the frozen layer if cached."""

    def __init__(
        self,
        model: Model,
        examples: Examples,
        max_length: int,
        cache: PrefixCache | None = None,
        first_row: int | None = None,
    ) -> None:
        items = Loop.over_tokens([model], Reading("cls", max_length=max_length)).items(examples)[0]
        self.cut_off = cut_texts(examples, [items])  # how many of the texts
        counts = None if examples.choices is None else [len(c) for c in examples.choices]
        super().__init__(items, counts, examples.labels, cache, first_row)


class Collate:
    """Entries -> padded tensors, as the network takes them."""

    def __init__(self, model: Model, regression: bool, accepted: set[str]) -> None:
        self._pad = model.pad_token
        padding = head_padding(model)
        if padding == "none":
            raise ModelError(
                f"The head of {model.name} ({type(model.network).__name__}) reads padding, so it cannot be trained on "
                "texts of different lengths in one batch; open the model with another summary (summary_type) or a "
                "padding token (pad_token_id) in its config."
            )
        self._left = padding == "left"
        self._choice = model.multiple_choice
        self._regression = regression
        self._accepted = accepted

    def __call__(self, entries: Sequence[dict[str, Any]]) -> dict[str, Tensor]:
        rows: ItemRows = entries[0]["rows"]
        most = max(len(entry["items"]) for entry in entries)
        # Texts with fewer choices repeat their first one; CHOICES says which are real.
        places = [p for e in entries for p in (e["items"] + [e["items"][0]] * (most - len(e["items"])))]
        batch = padded(rows.items.at(np.asarray(places)), self._pad, self._left)
        batch = {k: v for k, v in batch.items() if k in self._accepted}
        batch |= rows.states(places, self._left)
        if self._choice:
            batch = {k: v if k in (STATES, INDEX) else v.view(len(entries), most, -1) for k, v in batch.items()}
            real = torch.tensor([[c < len(e["items"]) for c in range(most)] for e in entries])
            batch |= {} if bool(real.all()) else {CHOICES: real}
        kind = torch.float32 if self._regression else torch.int64
        batch["labels"] = torch.tensor([entry["label"] for entry in entries], dtype=kind)
        return batch
