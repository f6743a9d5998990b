"""The influence of every block: how much it changes the states that go through it (ShortGPT, Men et al. 2024)."""

from __future__ import annotations

import warnings
from collections.abc import Callable

import numpy as np
import torch

from layerscope.data import TaskSource
from layerscope.distributed import Team
from layerscope.errors import LayerscopeWarning, check_level, check_seed
from layerscope.extraction.extract import examples_of
from layerscope.extraction.loop import note_unread
from layerscope.extraction.pooling import Reading
from layerscope.extraction.stream import Batch, Streamer
from layerscope.models import Model, ModelSource, load
from layerscope.resampling import jackknifed
from layerscope.results import Curve, NextStep, provenance_of
from layerscope.results.finding import ADVISE, SPECIALTY, with_head
from layerscope.similarity.jackknife import Grouping
from layerscope.similarity.layer_sources import one_group
from layerscope.similarity.row_means import unit_rows

_MOST = 2.0  # of 1 - cosine
_WORDS = {
    "title": "Influence of every block",
    "shows": "1 - mean cosine of a block's input and output, over tokens (Men et al. 2024).",
    "reading": "Low: the block hardly turns what goes through it, and can perhaps be left out. Block l makes layer l.",
    "caveat": "Depends on the texts. A low influence is not proof: only the loss without the block says what it costs.",
    "x_name": "block",
}


class Influence(Curve):
    """How much each block changes what goes through it."""

    def next_step(self) -> NextStep:
        """The advice of a model with a head, which tests what may go; of another one, which layers to tune."""
        models = self.provenance.get("models", ())
        return ADVISE if with_head(models[:1]) else SPECIALTY


def block_influence(
    model: ModelSource,
    task: TaskSource,
    *,
    split: str | None = None,
    limit: int | None = None,
    max_length: int = 128,
    batch_tokens: int | None = None,
    special: bool = False,
    ci: float | None = None,
    seed: int = 0,
) -> Curve:
    """Measure how much each block changes its input: 1 - mean cosine of its input and output, over tokens (ShortGPT).

    One forward pass, in which only sums are kept. A block's input is the raw output of the block before it (of the
    embeddings for block 1), its output its own raw output: no final norm. Every text is read by itself, also running
    text. A token whose state is 0 has no direction, and the blocks around it no value; nor has a block of a network of
    your own whose output is wider or narrower than its input.

    Args:
        model: A checkpoint: a folder, a hub id, `id@revision`, a GGUF file, `demo:minilm`, `demo:smollm2`,
            `garden:NAME`, `random:` and one of these, or a `Model`.
        task: A task of the registry (`layerscope tasks` lists them), a file, a folder, a hub id, or a `Task`. Labels
            do not matter.
        split: The split; `validation` where there is one, else the only one.
        limit: Use only the first N examples.
        max_length: The longest text in tokens; the rest is cut off.
        batch_tokens: Tokens per batch, padding included.
        special: Count special tokens too, as ShortGPT, which takes all positions. A first token such as BOS often has
            massive activations that no middle block turns, so that it makes all influences smaller. Where a tokenizer
            adds none, the first token of a text takes that part, and counts in any case.
        ci: Add an interval of this level, such as 0.95 (`low`, `high`), by a delete-a-group jackknife over texts.
        seed: Decides the groups of texts.

    Returns:
        A `Curve` over the blocks 1..L: 0 for a block that turns nothing, 1 for one whose output is orthogonal to its
        input, at most 2.

    Example:
        >>> import layerscope as ls
        >>> curve = ls.block_influence("garden:bert-s0", "pydocs", limit=20, max_length=16)
        >>> curve.layers[:3], bool((curve.values > 0).all())
        ([1, 2, 3], True)
    """
    check_level(ci)
    check_seed(seed)
    reading = Reading("tokens", special=special, max_length=max_length)
    opened = load(model)
    examples = examples_of(task, split, limit)
    groups = None if ci is None else Grouping(examples.rows, seed)
    turns = _Turns(opened, 1 if groups is None else groups.count, one_group if groups is None else groups.groups_of)
    team = Team.current()
    streamer = Streamer([opened], None, reading, batch_tokens)
    tally = streamer.feed(examples.take(slice(team.rank, None, team.size)), [turns], opened.name)
    turns.reduce(team)
    note_unread(tally, examples, [opened], max_length)
    values, reasons = turns.means()
    settings = {"pool": "tokens", "special": special, "max_length": max_length}
    provenance = provenance_of([opened.described()], examples, settings)
    provenance["data"]["n"] = turns.n
    if reasons:
        first, reason = reasons[0]
        others = f" (and {len(reasons) - 1} more)" if len(reasons) > 1 else ""
        provenance["warning"] = f"The influence of block {first}{others} is undefined: {reason}."
        warnings.warn(provenance["warning"], LayerscopeWarning, stacklevel=3)
    blocks = list(range(1, opened.depth + 1))
    curve = Influence("influence", [opened.label] * len(blocks), blocks, values, provenance, words=_WORDS)
    if ci is not None:
        curve.left_out = turns.left_out()
        half = jackknifed(curve.left_out, ci)
        curve.low, curve.high = np.maximum(values - half, 0.0), np.minimum(values + half, _MOST)
    return curve


def least_first(curve: Curve) -> list[int]:
    """The blocks in the order in which ShortGPT leaves them out; those without a value are not among them."""
    return [curve.layers[k] for k in np.argsort(curve.values, kind="stable") if not np.isnan(curve.values[k])]


class _Turns:
    """A consumer that sums 1 - cosine of neighbouring layers, for each group of texts."""

    def __init__(self, model: Model, groups: int, groups_of: Callable[[np.ndarray], np.ndarray]) -> None:
        self.groups_of, self.device = groups_of, model.device
        self.widths: dict[int, tuple[int, int]] = {}  # of the input and output of blocks where they differ
        self.rows = torch.zeros(groups, dtype=torch.float64, device=model.device)
        self.defined, self.total = (  # tokens with a direction before and after a block, and the sums over them
            torch.zeros(groups, model.depth, dtype=torch.float64, device=model.device) for _ in range(2)
        )

    def update(self, batch: Batch) -> None:
        group = torch.from_numpy(self.groups_of(batch.rows.row)).to(self.device)
        self.rows.index_add_(0, group, torch.ones(len(group), dtype=torch.float64, device=self.device))
        states = batch.states[0]
        before = unit_rows(states[0].to(self.device))
        for block in range(self.total.shape[1]):
            after = unit_rows(states[block + 1].to(self.device))
            enters, leaves = before[0].shape[1], after[0].shape[1]
            if enters != leaves:
                self.widths[block], before = (enters, leaves), after
                continue
            defined = before[1] & after[1]
            # 1 - cosine by the chord of the unit vectors, which keeps its digits near 0.
            turned = torch.where(defined, (before[0] - after[0]).pow(2).sum(dim=1) / 2, 0.0)
            self.total[:, block].index_add_(0, group, turned)
            self.defined[:, block].index_add_(0, group, defined.double())
            before = after

    def reduce(self, team: Team) -> None:
        """Add up the sums of all processes, in every process."""
        self.rows, self.defined, self.total = (
            team.all_reduce(part).cpu() for part in (self.rows, self.defined, self.total)
        )

    @property
    def n(self) -> int:
        """How many tokens there have been."""
        return int(self.rows.sum())

    def means(self) -> tuple[np.ndarray, list[tuple[int, str]]]:
        """(L,) the influence of every block, NaN where it is undefined, and the reasons by block."""
        missing = self.n - self.defined.sum(dim=0)
        values = torch.where(missing == 0, self.total.sum(dim=0) / self.n, torch.nan)
        reasons = [
            (block + 1, self._reason(block, int(count))) for block, count in enumerate(missing.tolist()) if count
        ]
        return values.numpy(), reasons

    def _reason(self, block: int, missing: int) -> str:
        """Why a block has no influence: its widths differ, or tokens are `missing` for it."""
        if block in self.widths:
            return "its input has {} numbers and its output {}, so that they have no angle".format(*self.widths[block])
        return f"{missing:,} of {self.n:,} tokens are 0 before or after it, so they have no direction"

    def left_out(self) -> np.ndarray:
        """(groups, L) the influence of every block without each group of texts in turn."""
        return ((self.total.sum(dim=0) - self.total) / (self.n - self.rows)[:, None]).numpy()
