"""Which layers to tune: nu and probes over the layers, l*, and a recommendation with its reason."""

from __future__ import annotations

import math
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from layerscope.analysis.curves import Curve
from layerscope.analysis.labelled import halves
from layerscope.analysis.probes import correlation, probe
from layerscope.analysis.specialty import smoothness, specialty
from layerscope.analysis.training_costs import costs
from layerscope.data import task as open_task
from layerscope.errors import InputError, check_seed
from layerscope.extract import extract
from layerscope.measures.heatmap import blank, write
from layerscope.models import load
from layerscope.tuning.methods import Method
from layerscope.tuning.strategy import Strategy

if TYPE_CHECKING:
    import pandas
    from matplotlib.axes import Axes

ROUGH = 4.0  # zeta a layer above which a curve jumps more than it bends
CLEAR = 0.5  # the share of subsamples that the layers next to l* must win together


@dataclass
class Choice:
    """l* with what it rests on, and the strategy that is recommended."""

    nu: Curve
    probe: Curve | None
    zeta: float
    table: pandas.DataFrame  # the strategies around l* with their cost
    strategy: str
    reason: str
    command: str

    @property
    def best(self) -> int | None:
        """l*."""
        return self.nu.best

    def plot(self, path: str | Path | None = None) -> Axes:
        """nu (left axis) and the probe's score (right axis) over the layers."""
        ax = blank(5.6, 3.6)
        layers = [int(layer) for layer in self.nu.layers]
        ax.plot(layers, self.nu.values, color="C0", marker="o", markersize=3.5)
        if self.nu.low is not None and self.nu.high is not None:
            ax.fill_between(layers, self.nu.low, self.nu.high, color="C0", alpha=0.2, linewidth=0)
        ax.set_xlabel("layer")
        ax.set_ylabel("nu", color="C0")
        if self.best is not None:
            ax.axvline(self.best, color="0.5", linestyle="--", linewidth=0.9)
        if self.probe is not None:
            right = ax.twinx()
            right.plot(layers, self.probe.values, color="C1", marker="s", markersize=3.5)
            right.set_ylabel(f"{self.probe.name} of a probe", color="C1")
        if path is not None:
            write(ax.figure, path)
        return ax

    def __str__(self) -> str:
        return f"{self.reason}\nNext: {self.command}"


def choose(
    model: Any, task: Any, *, probes: bool = True, limit: int | None = None, max_length: int = 128, seed: int = 0
) -> Choice:
    """nu over the training rows, probes on validation unless `probes=False`, and which strategy that speaks for.

    A curve too rough or too flat to trust says so; then the probe's best layer is taken, or the middle one.
    """
    import pandas

    opened, data = load(model), open_task(task)
    check_seed(seed)
    if data.regression:
        raise InputError(f"{data.name} has numbers as labels; nu is defined for classes. Look at ls.label_cca instead.")
    options: dict[str, Any] = {"pool": "mean", "limit": limit, "max_length": max_length}
    splits = data.resolve(None, learning=True), data.resolve(None)
    train = extract(opened, data, split=splits[0], **options)
    nu = specialty(train, ci=0.95, seed=seed)
    zeta = smoothness(nu)
    found = None
    if probes:
        apart = splits[0] != splits[1]
        pair = (train, extract(opened, data, split=splits[1], **options)) if apart else halves(train, seed)
        found = probe(*pair, metric=data.metric)
    best, reason = _decide(nu, found, zeta, opened.depth)
    text = f"({best + 1}, L, L)" if best < opened.depth else f"({max(best - 2, 1)}, {best}, L)"
    rows = []
    for strategy in ("full", "(l*+1, L, L)", "(l*-2, l*, L)", "(l*-2, l*, l*)", "(1, l*, l*)", "head-only"):
        try:
            resolved = Strategy.parse(strategy).resolve(opened.depth, best)
            rows.append(
                {
                    "strategy": strategy,
                    "resolved": str(resolved),
                    **costs(opened, data, resolved, Method.of("finetune")),
                }
            )
        except InputError:
            continue
    command = f'layerscope tune {opened.name} --task {data.name} --strategy "{text}"'
    return Choice(nu, found, zeta, pandas.DataFrame(rows), text, reason, command)


def _decide(nu: Curve, found: Curve | None, zeta: float, depth: int) -> tuple[int, str]:
    """The layer to build on, and why."""
    if nu.best is None:
        return depth // 2, f"No layer separates the classes, so the middle layer {depth // 2} is taken."
    assert nu.wins is not None
    near = sum(float(w) for layer, w in zip(nu.layers, nu.wins, strict=True) if abs(int(layer) - nu.best) <= 1)
    rough = not np.isnan(zeta) and zeta > ROUGH * max(depth - 2, 1)
    if not rough and near >= CLEAR:
        said = f"nu is least at layer {nu.best} (it or a neighbour in {near:.0%} of subsamples)"
        if found is not None and not math.isnan(rho := correlation(nu, found)):
            said += f", and its correlation with the probes' scores is {rho:.2f}"
        if nu.best == depth:
            return nu.best, f"{said}. It is the top layer: tune it and the two blocks below, and keep the rest."
        return nu.best, f"{said}: tune what is above it and keep the rest as it is."
    fault = f"too rough (zeta {zeta:.1f})" if rough else f"too flat (layers near l* win {near:.0%} of subsamples)"
    if found is not None and found.best is not None:
        return found.best, f"nu is {fault} to be trusted, so the probes' best layer {found.best} is taken."
    return max(depth // 2, 1), f"nu is {fault} to be trusted, so the middle layer {max(depth // 2, 1)} is taken."
