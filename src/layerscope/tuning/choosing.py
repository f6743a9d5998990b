"""Which layers to tune: nu and probes over the layers, l*, and a recommended layer and strategy with its reason."""

from __future__ import annotations

import logging
import math
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from layerscope.data import task as open_task
from layerscope.drawing.figures.bars import BarsFigure
from layerscope.drawing.painting import draw_panels
from layerscope.drawing.words import caveat, listed, numbers
from layerscope.errors import InputError, check_seed
from layerscope.errors import choose as allowed
from layerscope.models.load import load_whole
from layerscope.probing.agreeing import agreement
from layerscope.probing.labelled import labelled_rows, parted
from layerscope.probing.permuting import LEVEL, check_null, p_after_choice
from layerscope.probing.probes import KINDS, probe, ties
from layerscope.probing.variability import smoothness, specialty
from layerscope.results import Curve, Result, provenance_of
from layerscope.tuning.costs import Strategies, cost_table
from layerscope.tuning.method import method_of, possible
from layerscope.tuning.papers import middle_layer

if TYPE_CHECKING:
    import pandas
    from matplotlib.axes import Axes

    from layerscope.drawing.figure import Figure

ROUGH = 4.0  # zeta per layer above which a curve jumps more than it bends
OFTEN = 0.1  # the share of halves of the texts from which on a layer is said to come out as l* too
_AROUND = ("full", "(l*+1, L, L)", "(l*-2, l*, L)", "(l*-2, l*, l*)", "(1, l*, l*)", "head-only")
_LEAST = math.ceil(1 / LEVEL)  # permutations below which no p-value is below the level
_ZETA = "the sum of squared second differences of z-scored nu over layers, 0 for a straight line"


@dataclass(repr=False, eq=False)
class Choice(Result):
    """l* with what it rests on, and the layer and the strategy that are recommended.

    Attributes:
        nu: nu of every layer, with intervals, how often each layer wins, and nu with permuted labels.
        probe: The scores of probes, or None where none were trained.
        zeta: How rough the curve of nu is: the sum of squared second differences of its z-scored values over layers, 0
            for a straight line and about 6 per layer for values that jump at random.
        strategies: The strategies around l*, and the recommended one, with what each trains and costs.
        layer: The recommended layer: l* where nu is to be trusted, else the probes' best or the middle one.
        strategy: The recommended strategy in numbers, ready for `ls.tune`.
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
    layer: int
    strategy: str
    reason: str
    command: str
    provenance: Mapping[str, Any] = field(default_factory=dict)

    name = "choice"

    @property
    def best(self) -> int | None:
        """l*: the layer with the least nu among 1..L, whatever is recommended."""
        return self.nu.best

    @property
    def p(self) -> float:
        """How often permuted labels give a nu as low as that of l*, after allowing for the choice among layers."""
        return self.nu.p_best

    @property
    def frame(self) -> pandas.DataFrame:
        """One row per layer: layer, nu, low, high, wins, null, ratio, p, and the probe's score and bounds if any."""
        frame = self.nu.frame.drop(columns="model")
        if self.probe is None:
            return frame
        bounds = {} if self.probe.low is None else {"probe_low": self.probe.low, "probe_high": self.probe.high}
        return frame.assign(probe=self.probe.values, **bounds)

    def figures(self) -> list[Figure]:
        figures: list[Figure] = [self._nu_figure()]
        if self.nu.wins is not None:
            figures.append(
                BarsFigure(
                    title="How often each layer comes out as l*",
                    shows="The share of halves of the texts in which each layer has the least nu.",
                    reading="One tall bar, or two neighbours, is a clear l*; many low ones are not.",
                    caveat="A layer may win every time and still show nothing of the labels: compare nu with permuted "
                    "labels.",
                    names=tuple(f"layer {layer}" for layer in self.nu.layers),
                    values=tuple(map(float, self.nu.wins)),
                    y_name="share of halves",
                )
            )
        if self.probe is not None:
            figures.append(self._probe_figure(self.probe))
        shows = "What each strategy (bottom, top, head) trains and costs."
        title = "Strategies around l*, and the recommended one"
        return [*figures, numbers(title, shows, self.strategies.frame)]

    def _nu_figure(self) -> Figure:
        drawn: Any = self.nu.figures()[0]
        marks = [] if self.best is None else [(f"l* = {self.best}", float(self.best))]
        if self.layer != self.best:
            marks.append((f"recommended: {self.layer}", float(self.layer)))
        return replace(drawn, caveat=caveat(drawn.caveat, self._n), marks=tuple(marks))

    def _probe_figure(self, curve: Curve) -> Figure:
        drawn = curve.figures()[0]
        return replace(drawn, caveat=caveat(drawn.caveat, self._n))

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
        return f"Choice(l* = {self.best}, recommended layer {self.layer}, {self.strategy})"


def choose(
    model: Any,
    task: Any,
    *,
    probes: bool = True,
    kind: str = "linear",
    null: int = 100,
    limit: int | None = None,
    max_length: int = 128,
    seed: int = 0,
) -> Choice:
    """Which layers to tune: nu over the training rows, probes on validation, and the strategy that they speak for.

    nu is trusted where that of l* lies below nu with permuted labels (p < 0.05 after allowing for the choice among
    layers) and the curve is not too rough. Otherwise the reason says what is wrong, and the recommended layer is the
    probes' best one, or the middle one. l* is the layer with the least nu in any case; layers that tie with it are
    named.

    Args:
        model: A model, or what `ls.load` takes.
        task: A task with classes as labels, or what `ls.task` takes. Of a task with a single split, a fifth is held out
            and scored, as in tuning.
        probes: Whether to train probes too.
        kind: The kind of probe: `linear`, or `head`, the family's own head as in Xie et al.
        null: How many times the texts exchange their labels for the comparison; at least 20.
        limit: Use only the first N examples of each split.
        max_length: Longest text in tokens.
        seed: Decides the halves, the permutations, and what probes draw.

    Returns:
        The Choice: `.best` (l*), `.layer`, `.strategy`, `.reason`, `.command`, the curves `.nu` and `.probe`, `.p`,
        `.strategies`.

    Example:
        >>> import layerscope as ls
        >>> choice = ls.choose("garden:bert-s0", "pydocs", probes=False, limit=64, max_length=32)
        >>> choice.best in choice.frame["layer"].tolist(), choice.frame.columns[0]
        (True, 'layer')
    """
    check_seed(seed)
    check_null(null, _LEAST)
    allowed("kind of probe", kind, KINDS)
    opened, data = load_whole(model, "choosing a strategy"), open_task(task)
    if data.regression:
        raise InputError(f"{data.name} has numbers as labels; nu is defined for classes. Look at ls.label_cca instead.")
    learned, scored = parted(data, (limit, limit))
    options: dict[str, Any] = {"pool": "mean", "max_length": max_length}
    train = labelled_rows(opened, learned, **options)
    nu = specialty(train, ci=0.95, null=null, seed=seed)
    zeta = smoothness(nu)
    scores = None
    if probes:
        held = labelled_rows(opened, scored, **options)
        scores = probe(train, held, kind=kind, model=opened, metric=data.metric, seed=seed)
    layer, reason = _decide(nu, scores, zeta, opened.depth)
    text, blocks = _strategy(layer, opened.depth)
    method = method_of("finetune")
    around = [each for each in _AROUND if nu.best is not None or "l*" not in each]
    resolved = possible(opened, around, nu.best, method, logging.INFO)
    if text not in map(str, resolved.values()):
        resolved |= possible(opened, [text], nu.best, method, logging.INFO)
    table = cost_table(opened, data, resolved, method, best=nu.best)
    command = f'layerscope tune {opened.name} --task {data.name} --strategy "{text}"'
    settings = {**options, "limit": limit, "seed": seed, "probes": probes, "kind": kind, "null": null}
    origin = provenance_of([opened], learned, settings)
    return Choice(nu, scores, zeta, table, layer, text, f"{reason} {blocks}", command, origin)


def _strategy(layer: int, depth: int) -> tuple[str, str]:
    """The strategy in numbers that is built on a layer, and what it means in words."""
    if layer < depth:
        text = f"({layer + 1}, {depth}, {depth})"
        return text, f"The recommended strategy is {text}: tune what is above layer {layer} and keep the rest."
    bottom = max(layer - 2, 1)
    text = f"({bottom}, {layer}, {depth})"
    blocks = f"blocks {bottom} to {layer}" if bottom < layer else f"block {layer}"
    return text, f"The recommended strategy is {text}: layer {layer} is the top one, so tune {blocks} alone."


def _decide(nu: Curve, scores: Curve | None, zeta: float, depth: int) -> tuple[int, str]:
    """The recommended layer, and why."""
    if nu.best is None:
        return _otherwise("No layer separates the classes", scores, depth)
    assert nu.wins is not None
    at = nu.layers.index(nu.best)
    beside = "" if nu.null is None else f", where permuted labels give {nu.null[at]:.3g}"
    said = f"l* is layer {nu.best}, which has the least nu ({nu.values[at]:.3g}{beside})"
    chance = f"p = {nu.p_best:.2g} after allowing for the choice among layers"
    if not nu.p_best < LEVEL:
        return _otherwise(f"{said}, but {_shown(nu)} ({chance})", scores, depth)
    if not trusted(nu, zeta, depth):
        fault = f"nu is too rough to choose on (zeta {zeta:.1f}: {_ZETA})"
        return _otherwise(f"{said}, but {fault}", scores, depth)
    return nu.best, f"{said}; {chance}. {_winners(nu)}{_beside_probes(nu, scores)}"


def trusted(nu: Curve, zeta: float, depth: int) -> bool:
    """Whether nu is to be built on: lower at l* than with permuted labels, and not too rough."""
    rough = not math.isnan(zeta) and zeta > ROUGH * max(depth - 2, 1)
    return nu.best is not None and nu.p_best < LEVEL and not rough


def _shown(nu: Curve) -> str:
    """That no layer shows the labels, or, where l* alone does not, which layers do."""
    shown: list[str] = []
    if nu.permuted is not None:
        p = p_after_choice(nu.layers, nu.values, nu.permuted)
        shown = [str(layer) for layer, value in zip(nu.layers, p, strict=True) if value < LEVEL]
    if not shown:
        return "no layer shows the labels"
    noun, verb = ("layer", "does") if len(shown) == 1 else ("layers", "do")
    return f"it does not show the labels, while {noun} {listed(shown)} {verb}"


def _winners(nu: Curve) -> str:
    """How often l*, and which other layers, come out least over halves of the texts, in a sentence."""
    assert nu.wins is not None
    shares = {int(layer): float(share) for layer, share in zip(nu.layers, nu.wins, strict=True)}
    others = [f"layer {layer} in {share:.0%}" for layer, share in shares.items() if layer != nu.best and share >= OFTEN]
    said = f"It is least in {shares[int(nu.best or 0)]:.0%} of halves of the texts"
    return f"{said}, {listed(others)}: these tie with it." if others else f"{said}."


def _otherwise(fault: str, scores: Curve | None, depth: int) -> tuple[int, str]:
    """The probes' best layer where they tell layers apart, else the middle one, after what is wrong with nu."""
    middle = middle_layer(depth)
    if scores is None or scores.best is None:
        return middle, f"{fault}, so the middle layer, {middle}, is recommended."
    tied = ties(scores)
    if len(tied) == sum(layer >= 1 for layer in scores.layers):
        return middle, f"{fault}, and the probes of all layers tie, so the middle layer, {middle}, is recommended."
    return scores.best, f"{fault}, so the probes' best layer, {scores.best}, is recommended{_tie(tied, scores.best)}."


def _tie(tied: list[int], best: int) -> str:
    """A word on the layers whose probes score within the interval of the best one's."""
    others = [str(layer) for layer in tied if layer != best]
    if not others:
        return ""
    noun, verb = ("layer", "ties") if len(others) == 1 else ("layers", "tie")
    return f" ({noun} {listed(others)} {verb} with it within its interval)"


def _beside_probes(nu: Curve, scores: Curve | None) -> str:
    """How the probes' scores go with nu, in a sentence."""
    if scores is None or scores.best is None:
        return ""
    said = f" The probes score best at layer {scores.best}{_tie(ties(scores), scores.best)}"
    try:
        agreed = agreement(nu, scores)
    except InputError:
        return f"{said}."
    if math.isnan(agreed["pearson"]):
        return f"{said}."
    low, high = agreed["intervals"]["pearson"]
    bounds = f"{agreed['n']} layers are too few for an interval" if agreed["note"] else f"{low:.2f} to {high:.2f}"
    return f"{said}; their correlation with nu over layers is {agreed['pearson']:.2f} ({bounds})."
