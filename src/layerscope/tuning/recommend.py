"""`ls.recommend`: nu and probes over the layers, l*, and the layer and strategy that they speak for."""

from __future__ import annotations

import logging
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from layerscope.data import TaskSource
from layerscope.data import task as open_task
from layerscope.data.splits import train_validation_split
from layerscope.drawing.captions import caveat, listed, numbers
from layerscope.drawing.figures.bars import BarsFigure
from layerscope.drawing.render import draw_panels
from layerscope.engine import check_engine
from layerscope.errors import InputError, check_seed
from layerscope.errors import choose as allowed
from layerscope.extraction.pooling import POOLS
from layerscope.extraction.representations import Representations
from layerscope.models.load import ModelSource, load
from layerscope.models.wrap import WrappedModel
from layerscope.probing.agreement import agreement
from layerscope.probing.label_measures import label_cca, mutual_information, nuclear_norm, numerical_rank
from layerscope.probing.labelled_rows import labelled_rows
from layerscope.probing.permutation import LEVEL, check_null, p_after_choice
from layerscope.probing.probes import KINDS, ties
from layerscope.probing.probes import probe as train_probe
from layerscope.probing.robustness import Robustness, imbalance_study, scarcity_study, specialty_study
from layerscope.probing.specialty import OFTEN, smoothness, specialty
from layerscope.results import Curve, Finding, NextStep, Result, provenance_of
from layerscope.results.finding import ANSWER, DETAIL, SUPPORT, interval, number, rows
from layerscope.tuning.costs import Strategies, cost_table
from layerscope.tuning.method import method_of, possible
from layerscope.tuning.strategy import middle_layer

if TYPE_CHECKING:
    import pandas
    from matplotlib.axes import Axes

    from layerscope.drawing.figure import Figure

ROUGH = 4.0  # zeta per layer above which a curve jumps more than it bends
_AROUND = ("full", "(l*+1, L, L)", "(l*-2, l*, L)", "(l*-2, l*, l*)", "(1, l*, l*)", "head-only")
MEASURES = ("label_cca", "numerical_rank", "mutual_information", "normalized_mutual_information", "nuclear_norm")
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
        command: The command that tunes under it; empty, as the strategy is, where the network cannot be tuned.
        measures: Other measures of the layers against the labels, where any were asked for.
        experiments: nu of smaller and uneven training sets, and under other pools and models, where asked for.

    Example:
        >>> import layerscope as ls
        >>> choice = ls.recommend("garden:bert-s0", "pydocs", probes=False, limit=64, max_length=32)
        >>> choice.probe is None, choice.command.startswith("layerscope tune")
        (True, True)
    """

    nu: Curve
    probe: Curve | None
    zeta: float
    strategies: Strategies | None
    layer: int
    strategy: str
    reason: str
    command: str
    provenance: Mapping[str, Any] = field(default_factory=dict)
    measures: Mapping[str, Curve] = field(default_factory=dict)
    experiments: Mapping[str, Robustness] = field(default_factory=dict)

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
        others = {name: curve.values for name, curve in self.measures.items()}
        if self.probe is None:
            return frame.assign(**others)
        bounds = {} if self.probe.low is None else {"probe_low": self.probe.low, "probe_high": self.probe.high}
        return frame.assign(probe=self.probe.values, **bounds, **others)

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
        if self.strategies is None:
            return figures
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

    def findings(self) -> list[Finding]:
        """Why the strategy is recommended, nu of l* with its interval, and how well probes read the labels."""
        findings = [Finding(self.reason, "", None if math.isnan(self.p) else bool(self.p < LEVEL), ANSWER)]
        n = self.provenance.get("data", {}).get("n")
        if self.probe is not None and self.probe.best is not None:
            value, low, high = _at(self.probe, self.probe.best)
            tied = [str(layer) for layer in ties(self.probe) if layer != self.probe.best]
            others = f"; layer{'s' * (len(tied) > 1)} {listed(tied)} may do as well" if tied else ""
            text = f"Probes read the labels best from layer {self.probe.best}, with a score of {number(value)}{others}."
            sure = None if math.isnan(low) else not tied
            findings.append(Finding(text, interval(low, high), sure, SUPPORT))
        if self.best is not None:
            value, low, high = _at(self.nu, self.best)
            text = f"nu of layer {self.best} is {number(value)}."
            findings.append(Finding(text, interval(low, high) + rows(n), None, DETAIL))
        return findings

    def next_step(self) -> NextStep | None:
        """The training under the recommended strategy; None where the network cannot be tuned."""
        if not self.command:
            return None
        return NextStep("tune", ("--strategy", self.strategy), "Tune under what is recommended", line=self.command)

    def plot(self, path: str | Path | None = None, ax: Axes | None = None) -> Axes:
        """Draw nu and, beside it, the probe's scores: into a file, or into axes of their own; `ax` gets nu alone."""
        if ax is not None:
            return super().plot(path, ax)
        panels = [self._nu_figure()]
        if self.probe is not None:
            panels.append(self._probe_figure(self.probe))
        return draw_panels(panels, path)[0]

    def __str__(self) -> str:
        return f"{self.reason}\nNext: {self.command}" if self.command else self.reason

    def __repr__(self) -> str:
        return f"Choice(l* = {self.best}, recommended layer {self.layer}, {self.strategy})"


def _at(curve: Curve, layer: int) -> tuple[float, float, float]:
    """Return the value of a curve at a layer, with its interval; NaN where there is none."""
    at = curve.layers.index(layer)
    low, high = (math.nan if ends is None else float(ends[at]) for ends in (curve.low, curve.high))
    return float(curve.values[at]), low, high


def recommend(
    model: ModelSource,
    task: TaskSource,
    *,
    probes: bool = True,
    probe: str = "linear",
    null: int = 100,
    measures: Sequence[str] | None = None,
    imbalance: Sequence[float] | None = None,
    imbalance_size: int | None = None,
    scarcity: Sequence[int] | None = None,
    pools: Sequence[str] | None = None,
    tuned: ModelSource | None = None,
    limit: int | None = None,
    max_length: int = 128,
    seed: int = 0,
    engine: str = "local",
) -> Choice:
    """Recommend which layers to tune: nu over the training rows, probes on validation, and the strategy they speak for.

    nu is trusted where that of l* lies below nu with permuted labels (p < 0.05 after allowing for the choice among
    layers) and the curve is not too rough. Otherwise the reason says what is wrong, and the recommended layer is the
    probes' best one, or the middle one. l* is the layer with the least nu in any case; layers that tie with it are
    named. For a network of which only states can be read, the same is measured and no strategy is recommended.

    Args:
        model: A checkpoint: a folder, a hub id, `id@revision`, a GGUF file, `demo:minilm`, `demo:smollm2`,
            `garden:NAME`, `random:` and one of these, or a `Model`.
        task: A task with classes as labels: one of the registry (`layerscope tasks` lists them), a file, a folder, a
            hub id, or a `Task`. Of a single split, a fifth is held out and scored, as in tuning.
        probes: Train probes too, beside nu.
        probe: The kind of probe: `linear`, or `head`, the family's own head as in Xie et al.
        null: How many times the texts exchange their labels, for p-values; at least 20.
        measures: Also other measures of the layers against the labels: label_cca, numerical_rank, mutual_information,
            normalized_mutual_information, nuclear_norm.
        imbalance: Also nu of training sets in which the first class has these shares: `0.5,0.25,0.1,0.05`.
        imbalance_size: Rows of each of those sets in all; the most that all shares allow if not given.
        scarcity: Also nu of balanced training sets with these numbers of rows: `40000,20000,5000,200`.
        pools: Also nu and probes under these pools: `mean,cls`.
        tuned: Also nu and probes of this model, tuned on the task, beside the other.
        limit: Use only the first N examples of each split.
        max_length: The longest text in tokens; the rest is cut off.
        seed: Decides the halves, the permutations, and what probes draw.
        engine: With several pools or models: where they run over the texts: `local`, `processes:N`, `ray` or
            `ray:ADDRESS`.

    Returns:
        The Choice: `.best` (l*), `.layer`, `.strategy`, `.reason`, `.command`, the curves `.nu` and `.probe`, `.p`,
        `.strategies`; `.measures` and `.experiments` have what was asked for besides.

    Example:
        >>> import layerscope as ls
        >>> choice = ls.recommend("garden:bert-s0", "pydocs", probes=False, limit=64, max_length=32)
        >>> choice.best in choice.frame["layer"].tolist(), choice.frame.columns[0]
        (True, 'layer')
    """
    check_seed(seed)
    check_null(null, _LEAST)
    allowed("kind of probe", probe, KINDS)
    check_engine(engine)
    _check_names("measure", measures, MEASURES)
    _check_names("pool", pools, POOLS)
    if imbalance_size is not None and imbalance is None:
        raise InputError("imbalance_size is the size of the sets of imbalance (--imbalance), which was not given.")
    several = pools is not None or tuned is not None
    if engine != "local" and not several:
        raise InputError(
            f"engine={engine!r} (--engine) is for several pools or models; give pools or tuned (--pools, --tuned), or "
            "leave it out."
        )
    opened, data = load(model), open_task(task)
    tunable = not isinstance(opened, WrappedModel)
    if not tunable and (imbalance or scarcity or several):
        raise InputError(
            f"imbalance, scarcity, pools and tuned are for models that can be tuned, and {opened.name} cannot; "
            "ls.imbalance_study, ls.scarcity_study and ls.specialty_study take its states."
        )
    if data.regression:
        raise InputError(f"{data.name} has numbers as labels; nu is defined for classes. Look at ls.label_cca instead.")
    learned, scored = train_validation_split(data, (limit, limit))
    options: dict[str, Any] = {"pool": "mean", "max_length": max_length}
    train = labelled_rows(opened, learned, **options)
    others = {name: _measured(train, name, seed) for name in measures or ()}  # refused first where texts are few
    nu = specialty(train, ci=0.95, null=null, seed=seed)
    zeta = smoothness(nu)
    scores = None
    if probes:
        held = labelled_rows(opened, scored, **options)
        scores = train_probe(train, held, kind=probe, model=opened, metric=data.metric, seed=seed)
    settings = {**options, "limit": limit, "seed": seed, "probes": probes, "kind": probe, "null": null}
    origin = provenance_of([opened], learned, settings)
    if not tunable:
        reason = f"{opened.name} cannot be tuned, so no strategy is recommended."
        return Choice(nu, scores, zeta, None, nu.best or 0, "", reason, "", origin, others)
    experiments: dict[str, Robustness] = {}
    if imbalance:
        experiments["imbalance"] = imbalance_study(train, imbalance, size=imbalance_size, probe=scores, seed=seed)
    if scarcity:
        experiments["scarcity"] = scarcity_study(train, scarcity, probe=scores, seed=seed)
    if several:
        beside = {opened.name: opened} | ({} if tuned is None else {(other := load(tuned)).name: other})
        reading: dict[str, Any] = {"limit": limit, "max_length": max_length}
        experiments["pools"] = specialty_study(
            beside, data, pools=pools or ["mean"], kind=probe, engine=engine, **reading
        )
    layer, reason = _decide(nu, scores, zeta, opened.depth)
    text, blocks = _strategy(layer, opened.depth)
    method, around = method_of("finetune"), [each for each in _AROUND if nu.best is not None or "l*" not in each]
    resolved = possible(opened, around, nu.best, method, logging.INFO)
    if text not in map(str, resolved.values()):
        resolved |= possible(opened, [text], nu.best, method, logging.INFO)
    table = cost_table(opened, data, resolved, method, best=nu.best)
    command = f'layerscope tune {opened.name} --task {data.name} --strategy "{text}"'
    return Choice(nu, scores, zeta, table, layer, text, f"{reason} {blocks}", command, origin, others, experiments)


def _check_names(kind: str, names: Sequence[str] | None, known: Sequence[str]) -> None:
    """Raise InputError for the first name that is not among those that are known."""
    for name in names or ():
        allowed(kind, name, known)


def _measured(train: Representations, name: str, seed: int) -> Curve:
    """Return another measure of the layers against the labels, by its name in `MEASURES`."""
    if name == "normalized_mutual_information":
        return mutual_information(train, normalized=True, seed=seed)
    functions = {
        "label_cca": label_cca,
        "numerical_rank": numerical_rank,
        "mutual_information": mutual_information,
        "nuclear_norm": nuclear_norm,
    }
    return functions[name](train, seed=seed)


def _strategy(layer: int, depth: int) -> tuple[str, str]:
    """Return the strategy in numbers that is built on a layer, and a sentence on what it means."""
    if layer < depth:
        text = f"({layer + 1}, {depth}, {depth})"
        return text, f"The recommended strategy is {text}: tune what is above layer {layer} and keep the rest."
    bottom = max(layer - 2, 1)
    text = f"({bottom}, {layer}, {depth})"
    blocks = f"blocks {bottom} to {layer}" if bottom < layer else f"block {layer}"
    return text, f"The recommended strategy is {text}: layer {layer} is the top one, so tune {blocks} alone."


def _decide(nu: Curve, scores: Curve | None, zeta: float, depth: int) -> tuple[int, str]:
    """Return the recommended layer, and a sentence that says why."""
    if nu.best is None:
        return _otherwise("No layer separates the classes", scores, depth)
    assert nu.wins is not None
    at = nu.layers.index(nu.best)
    beside = "" if nu.null is None else f", where permuted labels give {nu.null[at]:.3g}"
    found = f"l* is layer {nu.best}, which has the least nu ({nu.values[at]:.3g}{beside})"
    chance = f"p = {nu.p_best:.2g} after allowing for the choice among layers"
    if not nu.p_best < LEVEL:
        return _otherwise(f"{found}, but {_shown(nu)} ({chance})", scores, depth)
    if not trusted(nu, zeta, depth):
        fault = f"nu is too rough to choose on (zeta {zeta:.1f}: {_ZETA})"
        return _otherwise(f"{found}, but {fault}", scores, depth)
    return nu.best, f"{found}; {chance}. {_winners(nu)}{_beside_probes(nu, scores)}"


def trusted(nu: Curve, zeta: float, depth: int) -> bool:
    """Return whether nu is to be built on: lower at l* than with permuted labels, and not too rough."""
    rough = not math.isnan(zeta) and zeta > ROUGH * max(depth - 2, 1)
    return nu.best is not None and nu.p_best < LEVEL and not rough


def _shown(nu: Curve) -> str:
    """Return words for the case that no layer shows the labels, or that other layers than l* do."""
    shown: list[str] = []
    if nu.permuted is not None:
        p = p_after_choice(nu.layers, nu.values, nu.permuted)
        shown = [str(layer) for layer, value in zip(nu.layers, p, strict=True) if value < LEVEL]
    if not shown:
        return "no layer shows the labels"
    noun, verb = ("layer", "does") if len(shown) == 1 else ("layers", "do")
    return f"it does not show the labels, while {noun} {listed(shown)} {verb}"


def _winners(nu: Curve) -> str:
    """Return a sentence on how often l*, and which other layers, come out least over halves of the texts."""
    assert nu.wins is not None
    shares = {int(layer): float(share) for layer, share in zip(nu.layers, nu.wins, strict=True)}
    others = [f"layer {layer} in {share:.0%}" for layer, share in shares.items() if layer != nu.best and share >= OFTEN]
    share_of_best = f"It is least in {shares[int(nu.best or 0)]:.0%} of halves of the texts"
    return f"{share_of_best}, {listed(others)}: these tie with it." if others else f"{share_of_best}."


def _otherwise(fault: str, scores: Curve | None, depth: int) -> tuple[int, str]:
    """Return the probes' best layer where they tell layers apart, else the middle one, and a sentence that says why."""
    middle = middle_layer(depth)
    if scores is None or scores.best is None:
        return middle, f"{fault}, so the middle layer, {middle}, is recommended."
    tied = ties(scores)
    if len(tied) == sum(layer >= 1 for layer in scores.layers):
        return middle, f"{fault}, and the probes of all layers tie, so the middle layer, {middle}, is recommended."
    return scores.best, f"{fault}, so the probes' best layer, {scores.best}, is recommended{_tie(tied, scores.best)}."


def _tie(tied: list[int], best: int) -> str:
    """Return words on the layers whose probes score within the interval of the best one's."""
    others = [str(layer) for layer in tied if layer != best]
    if not others:
        return ""
    noun, verb = ("layer", "ties") if len(others) == 1 else ("layers", "tie")
    return f" ({noun} {listed(others)} {verb} with it within its interval)"


def _beside_probes(nu: Curve, scores: Curve | None) -> str:
    """Return a sentence on how the probes' scores go with nu."""
    if scores is None or scores.best is None:
        return ""
    best_probe = f" The probes score best at layer {scores.best}{_tie(ties(scores), scores.best)}"
    try:
        agreed = agreement(nu, scores)
    except InputError:
        return f"{best_probe}."
    if math.isnan(agreed["pearson"]):
        return f"{best_probe}."
    low, high = agreed["intervals"]["pearson"]
    bounds = f"{agreed['n']} layers are too few for an interval" if agreed["note"] else f"{low:.2f} to {high:.2f}"
    return f"{best_probe}; their correlation with nu over layers is {agreed['pearson']:.2f} ({bounds})."
