"""`ls.compare` for measures of attention: all layers of all models in one pass over the texts."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
import torch
from torch import Tensor

from layerscope.distributed import Team
from layerscope.errors import InputError, log
from layerscope.extraction.attention import AttentionReading, AttentionStreamer, Stack, attention_heads
from layerscope.extraction.extract import examples_of
from layerscope.extraction.loop import note_unread
from layerscope.extraction.representations import Representations
from layerscope.models import Model
from layerscope.results import provenance_of
from layerscope.similarity.attention.head_pairs import HeadMeasure, Mask, best
from layerscope.similarity.execution_plan import Groups, Views
from layerscope.similarity.layer_sources import Tile, described_as, open_models
from layerscope.similarity.matrices import Cells, from_moments, warn_of_pairs
from layerscope.similarity.moments import Pair
from layerscope.similarity.registry import Measure, Undefined
from layerscope.similarity.result import Similarity

_NOTHING = "no word attends to a word that both models can attend to"


class AttentionSource(Views):
    """The attention of models over a task: a view is one block's weights, with a column for each attention head."""

    def __init__(
        self,
        groups: Groups,
        names: Sequence[str] | None,
        task: Any,
        split: str | None,
        limit: int | None,
        attending: AttentionReading,
    ) -> None:
        if any(isinstance(source, Representations) for source in groups.sources):
            raise InputError("Measures of attention need models; representations hold no attention weights.")
        self.groups = groups
        self.models: list[Model]
        self.models, self.labels = open_models(groups, names, task)
        examples = examples_of(task, split, limit)
        self.examples = examples.in_words() if attending.pool == "words" else examples
        self.layers = [[(layer, str(layer)) for layer in range(1, m.depth + 1)] for m in self.models]
        self.widths = [attention_heads(m) for m in self.models for _ in range(m.depth)]
        self.n = 0
        self.streamer = AttentionStreamer(self.models, attending)
        settings = {"pool": attending.pool, "special": attending.special, "max_length": attending.max_length}
        self.provenance = provenance_of(described_as(self.models, self.labels), self.examples, settings)
        super().__init__()

    def panels(self, wanted: Sequence[Measure], causal: bool) -> list[Panel]:
        """The panels of the comparison: pairs of models that attend to the same words.

        Where one model of a pair attends to earlier words only, both are compared on those.
        """
        groups = self.groups
        pairs = sorted({(min(r, c), max(r, c)) for r in groups.row_sources for c in groups.column_sources})
        sees = [causal or self.streamer.is_causal(s, self.examples) for s in range(len(self.models))]
        if any(sees) and not all(sees):
            causal_model, other = self.labels[sees.index(True)], self.labels[sees.index(False)]
            log.info("%s attends to earlier words only: it and %s are compared on those.", causal_model, other)
        self.provenance["settings"]["causal"] = sees
        parts = []
        for kind in (False, True):
            chosen = [(a, b) for a, b in pairs if (sees[a] or sees[b]) == kind]
            if chosen:
                parts.append(Panel(self, chosen, kind, wanted))
        return parts

    def run(self, panels: Sequence[Panel]) -> None:
        """Fill the panels by one pass over the texts, which several processes share."""
        team = Team.current()

        def update(stack: Stack) -> None:
            for panel in panels:
                panel.update(stack)

        tally = self.streamer.feed(self.examples.take(slice(team.rank, None, team.size)), update)
        note_unread(tally, self.examples, self.models, self.provenance["settings"]["max_length"])
        for panel in panels:
            panel.reduce(team)


@dataclass
class Panel:
    """The statistics of some pairs of models that are compared on the same pairs of words."""

    layer_source: AttentionSource
    pairs: list[Pair]  # of models, the smaller first
    causal: bool
    wanted: Sequence[Measure]
    sums: dict[str, dict[Pair, Tensor]] = field(init=False)  # by measure and pair: (2, heads of all layers, the same)
    tile: Tile | None = field(init=False, default=None)
    sentences: int = 0
    words: int = 0

    def __post_init__(self) -> None:
        layer_source = self.layer_source
        self.device = layer_source.models[0].device
        self.sources = sorted({source for pair in self.pairs for source in pair})
        heads = [m.depth * attention_heads(m) for m in layer_source.models]
        self.heads = {m.name: head for m in self.wanted if (head := head_of(m)) is not None}
        self.sums = {
            name: {
                (a, b): torch.zeros(2, heads[a], heads[b], dtype=torch.float64, device=self.device)
                for a, b in self.pairs
            }
            for name in self.heads
        }
        wholes = [m for m in self.wanted if not m.by_head]
        if wholes:
            models = {pair for a, b in self.pairs for pair in ((a, b), (b, a))}
            views = [
                (i, j) for i, j in layer_source.pairs if (layer_source.views[i][0], layer_source.views[j][0]) in models
            ]
            self.tile = Tile.empty(layer_source.widths, views, device=self.device, exact=True)  # the widths are small

    def update(self, stack: Stack) -> None:
        """Add sentences of equal length."""
        sides = {s: stack.weights[s].to(self.device) for s in self.sources}
        mask = Mask.from_sides(list(sides.values()), self.causal)
        self.words += mask.count
        self.sentences += int(mask.alive.any(dim=1).sum())
        for name, sums in self.sums.items():
            head = self.heads[name]
            ready = {s: head.prepare(side, mask) for s, side in sides.items()}
            for a, b in self.pairs:
                sums[a, b] += head.update(ready[a], ready[b])
        if self.tile is not None:
            self.tile.update(self._views({s: mask.entries(side) for s, side in sides.items()}))

    def _views(self, entries: dict[int, Tensor]) -> dict[int, Tensor]:
        """The rows (pairs of words, attention heads) of every view, from the entries of every model."""
        assert self.tile is not None
        rows = {}
        for view in self.tile.at:
            (source, layer), heads = self.layer_source.views[view], self.layer_source.widths[view]
            rows[view] = entries[source][(layer - 1) * heads : layer * heads].T
        return rows

    def reduce(self, team: Team) -> None:
        """Add up the sums of all processes, in every process."""
        counts = team.all_reduce(torch.tensor([self.words, self.sentences], device=self.device))
        self.words, self.sentences = (int(count) for count in counts)
        for sums in self.sums.values():
            for pair in sums:
                sums[pair] = team.all_reduce(sums[pair])
        if self.tile is not None and self.words:
            self.tile = replace(self.tile, moments=self.tile.moments.reduce(team))


def head_of(measure: Measure) -> HeadMeasure | None:
    """How a measure of single attention heads adds up; None for a measure of whole layers."""
    return getattr(measure, "head", None)


def compare_attention(
    wanted: Sequence[Measure], layer_source: AttentionSource, options: dict[str, Any]
) -> dict[str, Similarity]:
    """The matrix of every wanted measure of attention, by name, from one pass over the texts."""
    panels = layer_source.panels(wanted, _causal(wanted, options))
    layer_source.run(panels)
    if not any(panel.words for panel in panels):
        raise InputError(
            f"{layer_source.examples.task} ({layer_source.examples.split}) has no text with a word that every model "
            "sees whole."
        )
    matrices = {}
    for m in wanted:
        head = head_of(m)
        matrices[m.name] = (
            _as_whole(m, layer_source, panels, options) if head is None else _by_heads(m, head, layer_source, panels)
        )
    return matrices


def _causal(wanted: Sequence[Measure], options: dict[str, Any]) -> bool:
    """Whether every model is compared on earlier words only; measures share the pass, so they must agree."""
    asked = {m.name: bool(m.own(options).get("causal", False)) for m in wanted}
    if len(set(asked.values())) > 1:
        some = ", ".join(name for name, causal in asked.items() if causal)
        raise InputError(f"causal was asked for {some} only; compare the other measures of attention by themselves.")
    return any(asked.values())


def _by_heads(m: Measure, head: HeadMeasure, layer_source: AttentionSource, panels: Sequence[Panel]) -> Similarity:
    """The matrix of a measure of single attention heads."""
    by_models: dict[Pair, np.ndarray] = {}  # for each pair of models: (heads of all layers, the same)
    for panel in panels:
        for (a, b), sums in panel.sums[m.name].items():
            by_models[a, b] = head.similarities(sums).cpu().numpy()
            by_models[b, a] = by_models[a, b].T
    shape = (len(layer_source.row_views), len(layer_source.column_views))
    values, reasons, heads = np.full(shape, math.nan), {}, {}
    for i, j in np.ndindex(shape):
        (a, row), (b, column) = (
            layer_source.views[layer_source.row_views[i]],
            layer_source.views[layer_source.column_views[j]],
        )
        block = by_models[a, b][_heads(layer_source, a, row), _heads(layer_source, b, column)]
        heads[i, j] = block.copy()
        try:
            values[i, j] = best(torch.from_numpy(heads[i, j]), head.nothing)
        except Undefined as reason:
            reasons[i, j] = str(reason)
    n = max(panel.sentences if head.over == "sentences" else panel.words for panel in panels)
    bounds, provenance = (m.low, m.high), layer_source.provenance
    return Similarity(values, *layer_source.axes, m.name, {}, n, reasons, bounds, provenance, heads=heads)


def _heads(layer_source: AttentionSource, source: int, layer: int) -> slice:
    """The places of a layer's heads among all heads of its model."""
    heads = attention_heads(layer_source.models[source])
    return slice((layer - 1) * heads, layer * heads)


def _as_whole(
    m: Measure, layer_source: AttentionSource, panels: Sequence[Panel], options: dict[str, Any]
) -> Similarity:
    """The matrix of a measure of whole layers, from the moments of every panel."""
    cells = Cells(
        m, layer_source, {name: value for name, value in options.items() if name.rpartition(".")[2] != "causal"}
    )

    def nothing(i: int, j: int) -> float:
        raise Undefined(_NOTHING)

    for panel in panels:
        assert panel.tile is not None
        if not panel.words:
            cells.fill(panel.tile.pairs, nothing)
            continue
        layer_source.n = max(layer_source.n, panel.tile.moments.n)
        from_moments([cells], [panel.tile])  # panel by panel: a layer's factors are not the same on other pairs
    similarity = cells.similarity()
    warn_of_pairs({m.name: similarity})
    return similarity
