"""`ls.recommend`: PRESS, nu and probes over the layers, and the layer and strategy that they speak for."""

from __future__ import annotations

import logging
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from layerscope.data import Task, TaskSource
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
from layerscope.models.load import Model, ModelSource, load
from layerscope.models.wrap import WrappedModel
from layerscope.probing.agreement import agreement
from layerscope.probing.label_measures import label_cca, mutual_information, nuclear_norm, numerical_rank
from layerscope.probing.labelled_rows import labelled_rows
from layerscope.probing.layer_score import LayerScoreCurve
from layerscope.probing.permutation import LEVEL, check_null
from layerscope.probing.probes import KINDS
from layerscope.probing.probes import probe as train_probe
from layerscope.probing.robustness import Robustness, imbalance_study, scarcity_study, specialty_study
from layerscope.probing.score_curves import score_curves
from layerscope.probing.scores.nu import Nu
from layerscope.probing.scores.press import Press
from layerscope.probing.specialty import smoothness
from layerscope.registry import LAYER_SCORES
from layerscope.results import Curve, Finding, NextStep, Result, provenance_of
from layerscope.results.finding import ANSWER, DETAIL, SUPPORT, interval, number, rows
from layerscope.tuning.costs import Strategies, cost_table
from layerscope.tuning.method import method_of, possible
from layerscope.tuning.strategy import middle_layer

if TYPE_CHECKING:
    import pandas
    from matplotlib.axes import Axes

    from layerscope.drawing.figure import Figure

FEW = 200  # rows below which most layers cannot be told apart
_AROUND = ("full", "(l*+1, L, L)", "(l*-2, l*, L)", "(l*-2, l*, l*)", "(1, l*, l*)", "head-only")
_OLDER = ("label_cca", "numerical_rank", "mutual_information", "normalized_mutual_information", "nuclear_norm")
_SCORES = tuple(name for name in LAYER_SCORES if name not in ("press", "nu"))
MEASURES = (*_OLDER, *_SCORES)
_LEAST = math.ceil(1 / LEVEL)  # permutations below which no p-value is below the level
log = logging.getLogger(__name__)


@dataclass(repr=False, eq=False)
class Choice(Result):
    """The layer and the strategy that are recommended, with what they rest on, and l* beside them.

    Attributes:
        press: PRESS of every layer, with intervals and permuted labels: how well a linear map tells the labels of texts
            that were left out. It decides.
        nu: nu of every layer, with intervals, how often each layer wins, and nu with permuted labels; None where labels
            are numbers.
        probe: The scores of probes, or None where none were trained.
        zeta: How rough the curve of nu is: the sum of squared second differences of its z-scored values over layers, 0
            for a straight line and about 6 per layer for values that jump at random.
        strategies: The strategies around l*, and the recommended one, with what each trains and costs.
        layer: The recommended layer: that of the greatest PRESS where it shows the labels, else the probes' best or the
            middle one.
        ties: The layers that cannot be told apart from it with these rows, and it.
        strategy: The recommended strategy in numbers, ready for `ls.tune`.
        of_ties: The strategies for the lowest and the highest of the layers that tie, by layer; empty without a tie.
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

    press: Curve
    nu: Curve | None
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
    of_ties: Mapping[int, str] = field(default_factory=dict)

    name = "choice"

    @property
    def best(self) -> int | None:
        """l*: the layer with the least nu among 1..L, whatever is recommended; None where nu has no value."""
        return None if self.nu is None else self.nu.best

    @property
    def ties(self) -> list[int]:
        """The layers that cannot be told apart by PRESS from its greatest one with these rows, and that one."""
        return self.press.ties or []

    @property
    def p(self) -> float:
        """How often permuted labels give as much PRESS as in its best layer, after allowing for the choice of it."""
        return self.press.p_best

    @property
    def frame(self) -> pandas.DataFrame:
        """One row per layer: layer, nu, low, high, wins, null, ratio, p; press and its bounds; the probe's, if any."""
        frame = self.press.frame[["layer"]] if self.nu is None else self.nu.frame.drop(columns="model")
        frame = frame.assign(press=self.press.values)
        for name in ("low", "high", "null", "p"):
            if (extra := getattr(self.press, name)) is not None:
                frame[f"press_{name}"] = extra
        others = {name: curve.values for name, curve in self.measures.items()}
        if self.probe is None:
            return frame.assign(**others)
        bounds = {} if self.probe.low is None else {"probe_low": self.probe.low, "probe_high": self.probe.high}
        return frame.assign(probe=self.probe.values, **bounds, **others)

    def figures(self) -> list[Figure]:
        figures: list[Figure] = [self._figure(self.press)]
        if self.press.wins is not None:
            figures.append(
                BarsFigure(
                    title="How often each layer comes out best",
                    shows="The share of halves of the texts in which each layer has the greatest PRESS.",
                    reading="One tall bar, or two neighbours, is a clear best layer; many low ones are not.",
                    caveat="A layer may win every time and still show nothing of the labels: look at PRESS with "
                    "permuted labels too.",
                    names=tuple(f"layer {layer}" for layer in self.press.layers),
                    values=tuple(map(float, self.press.wins)),
                    y_name="share of halves",
                )
            )
        if self.nu is not None:
            figures.append(self._figure(self.nu))
        if self.probe is not None:
            figures.append(self._figure(self.probe))
        if self.strategies is None:
            return figures
        shows = "What each strategy (bottom, top, head) trains and costs."
        title = "Strategies around l*, and the recommended one"
        return [*figures, numbers(title, shows, self.strategies.frame)]

    def _figure(self, curve: Curve) -> Figure:
        """The figure of one of the curves, with what is recommended on it."""
        drawn: Any = curve.figures()[0]
        marks = () if curve.best is None else ((f"l* = {curve.best}", float(curve.best)),)
        if curve is self.press:
            marks = ((f"recommended: {self.layer}", float(self.layer)),)
        elif curve is self.probe:
            marks = drawn.marks
        return replace(drawn, caveat=caveat(drawn.caveat, self._n), marks=marks)

    @property
    def _n(self) -> int:
        return int(self.provenance.get("data", {}).get("n", 1 << 30))

    def findings(self) -> list[Finding]:
        """Why the strategy is recommended, how well probes read the labels, PRESS with its interval, and nu of l*."""
        # The reason says that the layer shows the labels, that it is that layer and no other, and what to do with it.
        shown = bool(self.p < LEVEL and self.ties == [self.layer])
        findings = [Finding(self.reason, "", None if math.isnan(self.p) else shown, ANSWER)]
        n = self.provenance.get("data", {}).get("n")
        if self.probe is not None and self.probe.best is not None:
            value, low, high = _at(self.probe, self.probe.best)
            tied = [str(layer) for layer in self.probe.ties or () if layer != self.probe.best]
            others = f"; layer{'s' * (len(tied) > 1)} {listed(tied)} may do as well" if tied else ""
            text = f"Probes read the labels best from layer {self.probe.best}, with a score of {number(value)}{others}."
            sure = None if self.probe.ties is None else not tied
            findings.append(Finding(text, interval(low, high), sure, SUPPORT))
        for curve in (self.press, self.nu):
            if curve is not None and curve.best is not None:
                value, low, high = _at(curve, curve.best)
                text = f"{curve.name} of layer {curve.best} is {number(value)}."
                findings.append(Finding(text, interval(low, high) + rows(n), None, DETAIL))
        return findings

    def next_step(self) -> NextStep | None:
        """The training under the recommended strategy; None where the network cannot be tuned."""
        if not self.command:
            return None
        why = "Tune under one of several strategies that tie" if self.of_ties else "Tune only the layers worth tuning"
        return NextStep("tune", ("--strategy", self.strategy), why, line=self.command)

    def plot(self, path: str | Path | None = None, ax: Axes | None = None) -> Axes:
        """Draw PRESS and, beside it, nu and the probe's scores: into a file, or axes of their own; `ax` gets PRESS."""
        if ax is not None:
            return super().plot(path, ax)
        curves = [self.press, self.nu, self.probe]
        return draw_panels([self._figure(curve) for curve in curves if curve is not None], path)[0]

    def __str__(self) -> str:
        return f"{self.reason}\nNext: {self.command}" if self.command else self.reason

    def __repr__(self) -> str:
        return f"Choice(recommended layer {self.layer}, {self.strategy}, l* = {self.best})"


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
    """Recommend which layers to tune: PRESS over the training rows, probes on validation, and the strategy for them.

    The layer of the greatest PRESS is recommended where that is more than permuted labels give (p < 0.05 after allowing
    for the choice among layers), else the probes' best one, or the middle one. Where layers cannot be told apart with
    these rows the reason says so, and gives the strategies for the lowest and the highest of them. l* by nu, as in Xie
    et al. 2022, stands beside it. For a network of which only states can be read, the same is measured and no strategy
    is recommended.

    Args:
        model: A checkpoint: a folder, a hub id, `id@revision`, a GGUF file, `demo:minilm`, `demo:smollm2`,
            `garden:NAME`, `random:` and one of these, or a `Model`.
        task: A task with classes or numbers as labels: one of the registry (`layerscope tasks` lists them), a file, a
            folder, a hub id, or a `Task`. Of a single split, a fifth is held out and scored, as in tuning. Numbers have
            no nu, and so no l*.
        probes: Train probes too, beside PRESS and nu.
        probe: The kind of probe: `linear`, or `head`, the family's own head as in Xie et al.
        null: How many times the texts exchange their labels, for p-values; at least 20.
        measures: Also other measures of the layers against the labels: label_cca, numerical_rank, mutual_information,
            normalized_mutual_information, nuclear_norm, and the layer scores cka_debiased, hscore, knn, logme.
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
        The Choice: `.layer`, `.ties`, `.strategy`, `.reason`, `.command`, `.best` (l*), the curves `.press`, `.nu` and
        `.probe`, `.p`, `.strategies`; `.measures` and `.experiments` have what was asked for besides.

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
    options: dict[str, Any] = {"pool": "mean", "max_length": max_length}
    if engine != "local" and not several:
        raise InputError(
            f"engine={engine!r} (--engine) is for several pools or models; give pools or tuned (--pools, --tuned), or "
            "leave it out."
        )
    opened, data = load(model), open_task(task)
    tunable = not isinstance(opened, WrappedModel)
    if imbalance or scarcity or several:
        _check_studied(opened, data)
    learned, scored = train_validation_split(data, (limit, limit))
    train = labelled_rows(opened, learned, **options)
    if len(train) < FEW:
        log.warning("There are %d rows; with fewer than %d most layers cannot be told apart.", len(train), FEW)
    others = {name: _measured(train, name, null, seed) for name in measures or ()}  # refused first where texts are few
    curves = score_curves(train, [Press()] if data.regression else [Press(), Nu()], ci=0.95, null=null, seed=seed)
    press, nu = curves["press"], curves.get("nu")
    scores = None
    if probes:
        held = labelled_rows(opened, scored, **options)
        scores = train_probe(train, held, kind=probe, model=opened, metric=data.metric, seed=seed)
    settings = {**options, "limit": limit, "seed": seed, "probes": probes, "kind": probe, "null": null}
    origin = provenance_of([opened], learned, settings)
    layer, reason = _decide(press, nu, scores, opened.depth, opened.label)
    if not tunable:
        reason = f"{reason} {opened.name} cannot be tuned, so no strategy is recommended."
        return Choice(press, nu, scores, _zeta(nu), None, layer, "", reason, "", origin, others)
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
    text, blocks = _strategy(layer, opened.depth)
    of_ties = _of_ties(press, layer, opened.depth)
    if of_ties:
        (lowest, low), (highest, high) = of_ties.items()
        blocks += f" Of the layers that tie, the lowest, {lowest}, has {low}, and the highest, {highest}, has {high}."
    table = _table(opened, data, nu, [text, *of_ties.values()])
    command = f'layerscope tune {opened.name} --task {data.name} --strategy "{text}"'
    reason = f"{reason} {blocks}"
    return Choice(
        press, nu, scores, _zeta(nu), table, layer, text, reason, command, origin, others, experiments, of_ties=of_ties
    )


def _zeta(nu: Curve | None) -> float:
    """Return how rough nu is; NaN where there is none."""
    return math.nan if nu is None else smoothness(nu)


def _check_studied(model: Model, task: Task) -> None:
    """Raise InputError where nu cannot be studied further: of a network that is not tuned, or of numbers."""
    if isinstance(model, WrappedModel):
        raise InputError(
            f"imbalance, scarcity, pools and tuned are for models that can be tuned, and {model.name} cannot; "
            "ls.imbalance_study, ls.scarcity_study and ls.specialty_study take its states."
        )
    if task.regression:
        raise InputError(
            f"{task.name} has numbers as labels; imbalance, scarcity, pools and tuned look at nu, which is of classes."
        )


def _table(model: Model, task: Task, nu: Curve | None, recommended: Sequence[str]) -> Strategies:
    """Return what the strategies around l* and the recommended ones, in numbers, train and cost."""
    best = None if nu is None else nu.best
    method, around = method_of("finetune"), [each for each in _AROUND if best is not None or "l*" not in each]
    resolved = possible(model, around, best, method, logging.INFO)
    known = set(map(str, resolved.values()))
    more = [each for each in dict.fromkeys(recommended) if each not in known]
    resolved |= possible(model, more, best, method, logging.INFO)
    return cost_table(model, task, resolved, method, best=best)


def _check_names(kind: str, names: Sequence[str] | None, known: Sequence[str]) -> None:
    """Raise InputError for the first name that is not among those that are known."""
    for name in names or ():
        allowed(kind, name, known)


def _measured(train: Representations, name: str, null: int, seed: int) -> Curve:
    """Return another measure of the layers against the labels, by its name in `MEASURES`."""
    if name in _SCORES:
        return score_curves(train, [LAYER_SCORES[name]()], ci=0.95, null=null, seed=seed)[name]
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


def _of_ties(press: Curve, layer: int, depth: int) -> dict[int, str]:
    """Return the strategies of the lowest and the highest layer that tie with the recommended one, by layer.

    Empty without a tie, and where the layer is recommended on other grounds than PRESS.
    """
    tied = press.ties or []
    if layer != press.best or len(tied) < 2:
        return {}
    return {each: _strategy(each, depth)[0] for each in (min(tied), max(tied))}


def _decide(press: Curve, nu: Curve | None, scores: Curve | None, depth: int, model: str = "") -> tuple[int, str]:
    """Return the recommended layer of a model, and a sentence that says why."""
    assert isinstance(press, LayerScoreCurve)
    of = f" of {model}" if model else ""
    paper = "" if nu is None or nu.best is None else f" l*, the layer of the least nu, is {nu.best}."
    if press.best is None:
        layer, reason = _otherwise("PRESS has no value in any layer", scores, depth)
        return layer, reason + paper
    at = press.layers.index(press.best)
    chance = f"p = {press.p_best:.2g} after allowing for the choice among layers"
    if not press.shown:
        fault = f"No layer{of} is shown to tell the labels: PRESS is {number(press.values[at])} at best ({chance})"
        layer, reason = _otherwise(fault, scores, depth)
        return layer, reason + paper
    found = f"Layer {press.best}{of} tells the labels best: PRESS is {number(press.values[at])} ({chance})."
    tied = press.ties or []
    if len(tied) > 1 and len(tied) == sum(layer >= 1 for layer in press.layers):
        found = (
            f"No layer{of} is shown to be better than another: PRESS is {number(press.values[at])} at most, in layer "
            f"{press.best} ({chance}), and with these rows no other layer can be told apart from it."
        )
        return press.best, f"{found}{paper}{_beside_probes(press, scores)}"
    apart = "It is greater than in every other layer."
    if len(tied) > 1:
        apart = f"These layers cannot be told apart with these rows: {listed([str(each) for each in tied])}."
    return press.best, f"{found} {apart}{paper}{_beside_probes(press, scores)}"


def _otherwise(fault: str, scores: Curve | None, depth: int) -> tuple[int, str]:
    """Return the probes' best layer where they tell layers apart, else the middle one, and a sentence that says why."""
    middle = middle_layer(depth)
    if scores is None or scores.best is None:
        return middle, f"{fault}, so the middle layer, {middle}, is recommended."
    tied = scores.ties or []
    if len(tied) == sum(layer >= 1 for layer in scores.layers):
        return middle, f"{fault}, and the probes of all layers tie, so the middle layer, {middle}, is recommended."
    return scores.best, f"{fault}, so the probes' best layer, {scores.best}, is recommended{_tie(scores)}."


def _tie(curve: Curve) -> str:
    """Return words on the layers that cannot be told apart from the best one on the same texts."""
    others = [str(layer) for layer in curve.ties or () if layer != curve.best]
    if not others:
        return ""
    noun, verb = ("layer", "ties") if len(others) == 1 else ("layers", "tie")
    return f" ({noun} {listed(others)} {verb} with it)"


def _beside_probes(press: Curve, scores: Curve | None) -> str:
    """Return a sentence on how the probes' scores go with PRESS."""
    if scores is None or scores.best is None:
        return ""
    best_probe = f" The probes score best at layer {scores.best}{_tie(scores)}"
    try:
        agreed = agreement(press, scores)
    except InputError:
        return f"{best_probe}."
    if math.isnan(agreed["pearson"]):
        return f"{best_probe}."
    correlated = f"{best_probe}; their correlation with PRESS over layers is {agreed['pearson']:.2f}"
    if agreed["note"]:
        return f"{correlated} ({agreed['n']} layers are too few for an interval)."
    low, high = agreed["intervals"]["pearson"]
    # The interval is of the steps, and often ends at the value itself: without these words it looks like a fault.
    unrelated = "they may have nothing to do with one another" if low <= 0 <= high else "they do go together"
    return (
        f"{correlated}. Neighbouring layers are alike, which makes any two curves look related; judged by their steps "
        f"from layer to layer the correlation lies between {low:.2f} and {high:.2f} (95%), so {unrelated}."
    )
