"""`ls.compare` for attention: all layers of all models in one pass, statistics of every pair of attention heads."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from layerscope.errors import InputError, log
from layerscope.extract.attending import Attending, AttentionStreamer, Stack
from layerscope.extract.representations import Representations
from layerscope.extract.run import examples_of
from layerscope.extract.weights import attention_heads
from layerscope.measures.heads import MEASURES, Mask, best
from layerscope.measures.matrix import Cells, from_moments, needs, say_warnings
from layerscope.measures.moments import Pair
from layerscope.measures.registry import Measure, Undefined
from layerscope.measures.similarity import Similarity
from layerscope.measures.work import Groups, Tile, Views, named
from layerscope.models import Model, load
from layerscope.team import Team
from layerscope.version import __version__

_NOTHING = "no word attends to a word that both models can attend to"


class AttentionWork(Views):
    """Models over a task: a view is what a block attends to, as wide as it has attention heads."""

    def __init__(
        self,
        groups: Groups,
        names: Sequence[str] | None,
        task: Any,
        split: str | None,
        limit: int | None,
        attending: Attending,
    ) -> None:
        if any(isinstance(source, Representations) for source in groups.sources):
            raise InputError("Measures of attention need models; representations hold no attention weights.")
        if task is None:
            raise InputError("Models are compared over texts: name a task, as in compare('model', task='pydocs').")
        self.groups = groups
        self.models: list[Model] = [load(source) for source in groups.sources]
        self.examples = examples_of(task, split, limit)
        found = [
            str(s) if isinstance(s, (str, Path)) else m.name for m, s in zip(self.models, groups.sources, strict=True)
        ]
        self.labels = named(found, names)
        self.layers = [[(layer, str(layer)) for layer in range(1, m.depth + 1)] for m in self.models]
        self.widths = [attention_heads(m) for m in self.models for _ in range(m.depth)]
        self.n = 0
        self.streamer = AttentionStreamer(self.models, attending)
        self.provenance = {
            "task": self.examples.task,
            "split": self.examples.split,
            "models": self.labels,
            "pool": attending.pool,
            "keep_special": attending.keep_special,
            "max_length": attending.max_length,
        }
        super().__init__()

    def panels(self, wanted: Sequence[Measure], causal: bool) -> list[Panel]:
        """Pairs of models that see the same words; where one sees only earlier words, so does the other."""
        groups = self.groups
        pairs = sorted({(min(r, c), max(r, c)) for r in groups.row_sources for c in groups.column_sources})
        sees = [causal or self.streamer.is_causal(s, self.examples) for s in range(len(self.models))]
        if any(sees) and not all(sees):
            one, other = self.labels[sees.index(True)], self.labels[sees.index(False)]
            log.info("%s attends to earlier words only: it and %s are compared on those.", one, other)
        self.provenance["causal"] = sees
        found = []
        for kind in (False, True):
            chosen = [(a, b) for a, b in pairs if (sees[a] or sees[b]) == kind]
            if chosen:
                found.append(Panel(self, chosen, kind, wanted))
        return found

    def run(self, panels: Sequence[Panel]) -> None:
        """One pass over the texts; several processes share them and add up."""
        team = Team.current()

        def update(stack: Stack) -> None:
            for panel in panels:
                panel.update(stack)

        self.streamer.feed(self.examples.take(slice(team.rank, None, team.size)), update)
        for panel in panels:
            panel.reduce(team)


@dataclass
class Panel:
    """The statistics of some pairs of models that are compared on the same pairs of words."""

    work: AttentionWork
    pairs: list[Pair]  # of models, the smaller first
    causal: bool
    wanted: Sequence[Measure]
    sums: dict[str, dict[Pair, Tensor]] = field(init=False)  # by measure and pair: (2, heads of all layers, the same)
    tile: Tile | None = field(init=False, default=None)
    sentences: int = 0
    words: int = 0

    def __post_init__(self) -> None:
        work = self.work
        self.device = work.models[0].device
        self.sources = sorted({source for pair in self.pairs for source in pair})
        heads = [m.depth * attention_heads(m) for m in work.models]
        self.sums = {
            m.name: {
                (a, b): torch.zeros(2, heads[a], heads[b], dtype=torch.float64, device=self.device)
                for a, b in self.pairs
            }
            for m in self.wanted
            if m.name in MEASURES
        }
        wholes = [m for m in self.wanted if m.name not in MEASURES]
        if wholes:
            models = {pair for a, b in self.pairs for pair in ((a, b), (b, a))}
            views = [(i, j) for i, j in work.pairs if (work.views[i][0], work.views[j][0]) in models]
            self.tile = Tile.of(work.widths, views, device=self.device, exact=needs(wholes)["exact"])

    def update(self, stack: Stack) -> None:
        """More sentences of equal length."""
        sides = {s: stack.weights[s].to(self.device) for s in self.sources}
        mask = Mask.of(list(sides.values()), self.causal)
        self.words += mask.count
        self.sentences += int(mask.alive.any(dim=1).sum())
        for name, sums in self.sums.items():
            head = MEASURES[name]
            ready = {s: head.prepare(side, mask) for s, side in sides.items()}
            for a, b in self.pairs:
                sums[a, b] += head.update(ready[a], ready[b])
        if self.tile is not None:
            self.tile.update(self._views({s: mask.entries(side) for s, side in sides.items()}))

    def _views(self, entries: dict[int, Tensor]) -> dict[int, Tensor]:
        """(pairs of words, attention heads) of every view."""
        assert self.tile is not None
        found = {}
        for view in self.tile.at:
            (source, layer), heads = self.work.views[view], self.work.widths[view]
            found[view] = entries[source][(layer - 1) * heads : layer * heads].T
        return found

    def reduce(self, team: Team) -> None:
        """The sums of every process, in every process."""
        counts = team.add(torch.tensor([self.words, self.sentences], device=self.device))
        self.words, self.sentences = (int(count) for count in counts)
        for sums in self.sums.values():
            for pair in sums:
                sums[pair] = team.add(sums[pair])
        if self.tile is not None and self.words:
            self.tile = replace(self.tile, moments=self.tile.moments.reduce(team))


def compare_attention(wanted: Sequence[Measure], work: AttentionWork, options: dict[str, Any]) -> dict[str, Similarity]:
    """Every wanted measure of attention over all pairs of layers, in one pass over the texts."""
    panels = work.panels(wanted, bool(options.get("causal", False)))
    work.run(panels)
    if not any(panel.words for panel in panels):
        raise InputError(
            f"{work.examples.task} ({work.examples.split}) has no text with a word that every model sees whole."
        )
    return {
        m.name: _by_heads(m, work, panels) if m.name in MEASURES else _as_whole(m, work, panels, options)
        for m in wanted
    }


def _by_heads(m: Measure, work: AttentionWork, panels: Sequence[Panel]) -> Similarity:
    head = MEASURES[m.name]
    known: dict[Pair, np.ndarray] = {}
    for panel in panels:
        for (a, b), sums in panel.sums[m.name].items():
            known[a, b] = head.of(sums).cpu().numpy()
            known[b, a] = known[a, b].T
    shape = (len(work.row_views), len(work.column_views))
    values, reasons, heads = np.full(shape, math.nan), {}, {}
    for i, j in np.ndindex(shape):
        (a, row), (b, column) = work.views[work.row_views[i]], work.views[work.column_views[j]]
        block = known[a, b][_heads(work, a, row), _heads(work, b, column)]
        heads[i, j] = block.copy()
        try:
            values[i, j] = best(torch.from_numpy(heads[i, j]), head.nothing)
        except Undefined as reason:
            reasons[i, j] = str(reason)
    n = max(panel.sentences if m.name == "attention_norm" else panel.words for panel in panels)
    provenance = {**work.provenance, "layerscope": __version__, "torch": torch.__version__}
    rows, columns = work.axis(work.groups.row_sources), work.axis(work.groups.column_sources)
    return Similarity(values, rows, columns, m.name, {}, n, reasons, (m.low, m.high), provenance, heads=heads)


def _heads(work: AttentionWork, source: int, layer: int) -> slice:
    """Where a layer's heads stand among those of its model."""
    heads = attention_heads(work.models[source])
    return slice((layer - 1) * heads, layer * heads)


def _as_whole(m: Measure, work: AttentionWork, panels: Sequence[Panel], options: dict[str, Any]) -> Similarity:
    cells = Cells(m, work, {name: value for name, value in options.items() if name != "causal"})

    def nothing(i: int, j: int) -> float:
        raise Undefined(_NOTHING)

    for panel in panels:
        assert panel.tile is not None
        if not panel.words:
            cells.fill(panel.tile.pairs, nothing)
            continue
        work.n = max(work.n, panel.tile.moments.n)
        from_moments([cells], [panel.tile])  # one by one: a layer's factors are not the same on other pairs of words
    found = cells.similarity()
    say_warnings({m.name: found})
    return found
