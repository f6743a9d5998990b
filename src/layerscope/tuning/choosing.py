"""Which layers to tune: nu and probes over the layers, l*, and a recommendation with its reason."""

from __future__ import annotations

import logging
import math
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from layerscope.data import task as open_task
from layerscope.drawing.figures.bars import BarsFigure
from layerscope.drawing.painting import draw_panels
from layerscope.drawing.words import caveat, numbers
from layerscope.errors import InputError, check_seed
from layerscope.extraction.extracting import examples_of, extract
from layerscope.models import load
from layerscope.probing.labelled import halves
from layerscope.probing.probes import correlation, probe
from layerscope.probing.variability import smoothness, specialty
from layerscope.results import Curve, Result, provenance_of
from layerscope.tuning.costs import Strategies, cost_table
from layerscope.tuning.method import method_of, possible

if TYPE_CHECKING:
    import pandas
    from matplotlib.axes import Axes

    from layerscope.drawing.figure import Figure

ROUGH = 4.0  # zeta per layer above which a curve jumps more than it bends
CLEAR = 0.5  # the share of subsamples that the layers next to l* must win together
_AROUND = ("full", "(l*+1, L, L)", "(l*-2, l*, L)", "(l*-2, l*, l*)", "(1, l*, l*)", "head-only")


@dataclass(repr=False, eq=False)
class Choice(Result):
    """l* with what it rests on, and the strategy that is recommended.

    Attributes:
        nu: nu of every layer, with intervals and how often each layer wins.
        probe: The scores of probes, or None where none were trained.
        zeta: How rough the curve of nu is.
        strategies: The strategies around l* with what each trains and costs.
        strategy: The recommended strategy, ready for `ls.tune`.
        reason: Why it is recommended.
        command: The command that tunes under it.

    Example:
        >>> import layerscope as ls
        >>> choice = ls.choose("garden:bert-s0", "pydocs", probes=False, limit=64, max_length=32)
        >>> choice.probe is None, choice.command.startswith("layerscope tune")
        (True, True)
    """

    nu: Curve
    probe: Curve | None
    zeta: float
    strategies: Strategies
    strategy: str
    reason: str
    command: str
    provenance: Mapping[str, Any] = field(default_factory=dict)

    name = "choice"

    @property
    def best(self) -> int | None:
        """l*."""
        return self.nu.best

    @property
    def frame(self) -> pandas.DataFrame:
        """One row per layer: layer, nu, low, high, wins, and probe where there is one."""
        frame = self.nu.frame.drop(columns="model")
        return frame if self.probe is None else frame.assign(probe=self.probe.values)

    def figures(self) -> list[Figure]:
        figures: list[Figure] = [self._nu_figure()]
        if self.nu.wins is not None:
            figures.append(
                BarsFigure(
                    title="How often each layer comes out as l*",
                    shows="The share of subsamples of the rows in which each layer has the least nu.",
                    reading="One tall bar, or two neighbours, is a clear l*; many low ones are not.",
                    names=tuple(f"layer {layer}" for layer in self.nu.layers),
                    values=tuple(map(float, self.nu.wins)),
                    y_name="share of subsamples",
                )
            )
        if self.probe is not None:
            figures.append(self._probe_figure(self.probe))
        shows = "What each strategy (bottom, top, head) trains and costs."
        return [*figures, numbers("Strategies around l*", shows, self.strategies.frame)]

    def _nu_figure(self) -> Figure:
        said = "Intervals come from subsamples of the rows; a rough or flat curve is no ground to choose on."
        return replace(
            self.nu.figures()[0],
            title="nu: how mixed the classes are in each layer",
            shows="nu, the variability within classes over that between them, of the training rows in each layer "
            "(Xie et al. 2022). The band is a 95% interval.",
            reading="Lower is better separated. l* is the layer with the least nu among layers 1 and up.",
            caveat=caveat(said, self._n),
        )

    def _probe_figure(self, curve: Curve) -> Figure:
        return replace(
            curve.figures()[0],
            title=f"Probes: {curve.name} of a linear classifier on each layer",
            shows=f"{curve.name} on validation of a classifier trained on each layer's rows.",
            reading="Higher is better. Where it follows nu upside down, both say the same of the layers.",
            caveat=caveat("What a probe can read a model need not use.", self._n),
        )

    @property
    def _n(self) -> int:
        return int(self.provenance.get("data", {}).get("n", 1 << 30))

    def findings(self) -> list[str]:
        return [self.reason, f"Next: {self.command}"]

    def plot(self, path: str | Path | None = None, ax: Axes | None = None) -> Axes:
        """Draw nu and, beside it, the probe's scores: into a file, or into axes of their own; `ax` gets nu alone."""
        if ax is not None:
            return super().plot(path, ax)
        panels = [self._nu_figure()]
        if self.probe is not None:
            panels.append(self._probe_figure(self.probe))
        return draw_panels(panels, path)[0]

    def __str__(self) -> str:
        return "\n".join(self.findings())

    def __repr__(self) -> str:
        return f"Choice(l* = {self.best}, {self.strategy})"


def choose(
    model: Any, task: Any, *, probes: bool = True, limit: int | None = None, max_length: int = 128, seed: int = 0
) -> Choice:
    """Which layers to tune: nu over the training rows, probes on validation, and the strategy that they speak for.

    A curve that is too rough or too flat to trust says so; then the probe's best layer is taken, or the middle one.

    Args:
        model: A model argument.
        task: A task argument with classes as labels.
        probes: Whether to train probes too.
        limit: The first so many examples of each split.
        max_length: Longest text in tokens.
        seed: Decides the subsamples, and the halves where one split must serve for learning and scoring.

    Returns:
        The Choice: `.best` (l*), `.strategy`, `.reason`, `.command`, the curves `.nu` and `.probe`, `.strategies`.

    Example:
        >>> import layerscope as ls
        >>> choice = ls.choose("garden:bert-s0", "pydocs", probes=False, limit=64, max_length=32)
        >>> choice.best in choice.frame["layer"].tolist(), choice.frame.columns[0]
        (True, 'layer')
    """
    opened, data = load(model), open_task(task)
    check_seed(seed)
    if data.regression:
        raise InputError(f"{data.name} has numbers as labels; nu is defined for classes. Look at ls.label_cca instead.")
    learned = examples_of(data, None, limit, learning=True)
    options: dict[str, Any] = {"pool": "mean", "max_length": max_length}
    train = extract(opened, learned, **options)
    nu = specialty(train, ci=0.95, seed=seed)
    zeta = smoothness(nu)
    scores = None
    if probes:
        scored = examples_of(data, None, limit)
        apart = scored.split != learned.split
        pair = (train, extract(opened, scored, **options)) if apart else halves(train, seed)
        scores = probe(*pair, metric=data.metric)
    best, reason = _decide(nu, scores, zeta, opened.depth)
    text = f"({best + 1}, L, L)" if best < opened.depth else f"({max(best - 2, 1)}, {best}, L)"
    method = method_of("finetune")
    around = cost_table(opened, data, possible(opened, _AROUND, best, method, logging.INFO), method, best=best)
    command = f'layerscope tune {opened.name} --task {data.name} --strategy "{text}"'
    settings = {**options, "limit": limit, "seed": seed, "probes": probes}
    return Choice(nu, scores, zeta, around, text, reason, command, provenance_of([opened], learned, settings))


def _decide(nu: Curve, scores: Curve | None, zeta: float, depth: int) -> tuple[int, str]:
    """The layer to build on, and why."""
    middle = max(depth // 2, 1)
    if nu.best is None:
        return middle, f"No layer separates the classes, so the middle layer {middle} is taken."
    assert nu.wins is not None
    near = sum(float(w) for layer, w in zip(nu.layers, nu.wins, strict=True) if abs(int(layer) - nu.best) <= 1)
    rough = not np.isnan(zeta) and zeta > ROUGH * max(depth - 2, 1)
    if not rough and near >= CLEAR:
        said = f"nu is least at layer {nu.best} (it or a neighbour in {near:.0%} of subsamples)"
        if scores is not None and not math.isnan(rho := correlation(nu, scores)):
            said += f", and its correlation with the probes' scores is {rho:.2f}"
        if nu.best == depth:
            return nu.best, f"{said}. It is the top layer: tune it and the two blocks below, and keep the rest."
        return nu.best, f"{said}: tune what is above it and keep the rest as it is."
    fault = f"too rough (zeta {zeta:.1f})" if rough else f"too flat (layers near l* win {near:.0%} of subsamples)"
    if scores is not None and scores.best is not None:
        return scores.best, f"nu is {fault} to be trusted, so the probes' best layer {scores.best} is taken."
    return middle, f"nu is {fault} to be trusted, so the middle layer {middle} is taken."
