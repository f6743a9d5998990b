"""`ls.tuning_changes`: what tuning changed in a model by layer: states, weights, attention, and what probes read.

Each of the four is a function of its own that takes two models; this sets them side by side, in one table and one
picture, and says which blocks carry the change.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from layerscope.data import TaskSource
from layerscope.data import task as open_task
from layerscope.drawing.captions import caveat, listed, numbers
from layerscope.drawing.figures.curve import CurveFigure, Series
from layerscope.errors import InputError, LayerscopeError, check_seed
from layerscope.models import ModelSource, load
from layerscope.models.sources import short_names
from layerscope.probing.robustness import specialty_study
from layerscope.resampling import told_apart
from layerscope.results import Finding, NextStep, Result, provenance_of
from layerscope.results.finding import ANSWER, DETAIL, SPECIALTY, SUPPORT, interval, number, rows
from layerscope.similarity.attention.weight_similarity import PARAMETERS, WeightDistances, compare_weights
from layerscope.similarity.compare import compare
from layerscope.similarity.result import Similarity

if TYPE_CHECKING:
    import pandas

    from layerscope.drawing.figure import Figure

STATES, ATTENTION = "cka_debiased", "attention_js"
EVERY_WEIGHT = "every weight was compared"  # the evidence of what rests on no texts
_HARDLY = 5e-4  # of CKA: a smaller change is none in the three digits that findings have
MOST_SHARE = 0.9  # of the change of all weights: the blocks that carry it are named
_PROBED = ("nu", "score", "low", "high")


class TuningChanges(Result):
    """What tuning changed in a model; `ls.tuning_changes` makes one.

    `frame` has one row per layer 0..L: `states` (debiased CKA with the same layer of the base) with `low` and `high`,
    `weights` (relative distance of all parameters of the block that makes the layer), `share` (of the squared change
    of all blocks), `most` (the kind of parameter that has most of it), `attention` (1 - Jensen-Shannon divergence
    of the two models' attention), and, where the task has classes, `nu_before`, `nu_after`, `probe_before`,
    `probe_after`.

    Attributes:
        similarity: The debiased CKA of every layer of the base with every layer of the tuned model.
        weights: The distances of all parameters.
        missing: What could not be measured, with the reason.

    Example:
        >>> import layerscope as ls
        >>> changes = ls.tuning_changes("garden:bert-s0", "garden:bert-s0", "pydocs", limit=40, max_length=16)
        >>> changes.blocks, bool(changes.frame["states"].min() > 0.999)
        ([], True)
    """

    name = "changes"

    def __init__(
        self,
        frame: pandas.DataFrame,
        provenance: Mapping[str, Any],
        similarity: Similarity,
        weights: WeightDistances | None,
        missing: Mapping[str, str],
    ) -> None:
        self._frame, self.provenance = frame, provenance
        self.similarity, self.weights, self.missing = similarity, weights, dict(missing)

    @property
    def frame(self) -> pandas.DataFrame:
        return self._frame

    @property
    def blocks(self) -> list[int]:
        """The fewest blocks that carry nine tenths of the squared change of all blocks' weights, in order."""
        share = self._frame.set_index("layer")["share"].dropna().sort_values(ascending=False, kind="stable")
        if not share.sum() > 0:
            return []
        count = int(np.searchsorted(share.cumsum().to_numpy(), MOST_SHARE * (1 - 1e-9))) + 1
        return sorted(map(int, share.index[:count]))

    def figures(self) -> list[Figure]:
        frame, series = self._frame, []
        layers = tuple(map(float, frame["layer"]))
        kinds = {
            "states": ("1 - CKA with the base", 1 - frame["states"]),
            "weights": ("relative distance of a block's parameters", frame["weights"]),
            "attention": ("Jensen-Shannon divergence of attention", 1 - frame["attention"]),
        }
        words = []
        for name, (what, values) in kinds.items():
            most = float(values.max()) if values.notna().any() else math.nan
            if math.isfinite(most):
                parts = values.clip(lower=0) / most if most > 0 else values
                series.append(Series(name, layers, tuple(map(float, parts))))
                words.append(f"{name} ({what}, at most {number(most)})")
        n = self.provenance.get("data", {}).get("n")
        drawn = CurveFigure(
            title="What tuning changed",
            shows="The change of every layer and of the block that makes it, each curve as a share of its own largest "
            f"value: {listed(words)}.",
            reading="0: as before. A block whose weights changed little may still make a layer that changed much, "
            "since changes below it go on upwards.",
            caveat=caveat("Curves of different kinds are not to be compared in height.", n or 1 << 30),
            series=tuple(series),
            x_name="layer",
            y_name="share of the largest change",
            n=n,
        )
        table = numbers("Every layer", "What changed in every layer, and in the block that makes it.", frame)
        return [drawn, *([] if self.weights is None else self.weights.figures()[:1]), self.similarity.heatmap(), table]

    def findings(self) -> list[Finding]:
        """Which states changed most, which blocks carry the change of weights, what probes read before and after."""
        states, weights = self._states(), self._weights()
        # Blocks that carry the change are where it was made; the states that changed most may lie far above them.
        first = [*weights, *states] if weights and weights[0].weight == ANSWER else [*states, *weights]
        findings = [*first, *self._probes(), *self._attention()]
        return [
            *findings,
            *(Finding(f"Not measured: {what}: {why}", "", None, DETAIL) for what, why in self.missing.items()),
        ]

    def next_step(self) -> NextStep:
        """Which layers are worth tuning the next time."""
        return SPECIALTY

    @property
    def _names(self) -> tuple[str, str]:
        return self.similarity.row_axis.models[0], self.similarity.column_axis.models[0]

    def _states(self) -> list[Finding]:
        same = np.diagonal(self.similarity.values)
        if not np.isfinite(same[1:]).any():
            return []
        base, _ = self._names
        least = int(np.nanargmin(same[1:])) + 1
        low, high = (float(self._frame[name].iloc[least]) for name in ("low", "high"))
        text = f"Tuning changed the states of layer {least} most: its CKA with that of {base} is {number(same[least])}"
        first = next((layer for layer in range(1, len(same)) if same[layer] < 1 - (1 - same[least]) / 2), least)
        if same[least] >= 1 - 1e-6:
            text = f"The states of no layer differ from those of {base}, beyond rounding."
            return [Finding(text, "", True, ANSWER)]
        if same[least] >= 1 - _HARDLY:
            text = (
                f"Tuning hardly changed the states: CKA with those of {base} is at least {same[least]:.6f} in every "
                "layer, where 1 says that nothing changed."
            )
            return [Finding(text, interval(low, high) + rows(self.similarity.n), None, ANSWER)]
        sure: bool | None = None
        if self.similarity.left_out is not None:
            groups = np.diagonal(self.similarity.left_out, axis1=1, axis2=2)[:, 1:]
            apart = told_apart(same[1:], least - 1, left_out=groups)
            tied = [str(k + 1) for k in range(len(apart)) if not apart[k] and k + 1 != least]
            sure = not tied
            if tied:
                text += f" (layer{'s' * (len(tied) > 1)} {listed(tied)} cannot be told apart from it)"
        if first > 1:
            text += f"; below layer {first} less than half of that has changed"
        return [Finding(f"{text}.", interval(low, high) + rows(self.similarity.n), sure, ANSWER)]

    def _weights(self) -> list[Finding]:
        if self.weights is None:
            return []
        frame, carrying = self._frame[self._frame["layer"] >= 1], self.blocks
        if not carrying:
            return [Finding("No weight of any block changed.", EVERY_WEIGHT, True, SUPPORT)]
        of_these = frame[frame["layer"].isin(carrying)]
        few = len(carrying) <= len(frame) / 2
        if not few:
            distances = frame["weights"].to_numpy(dtype=float)
            low, high, top = distances.min(), distances.max(), int(distances.argmax()) + 1
            text = (
                f"The change of weights is spread over the blocks: a relative distance of {number(low)} to "
                f"{number(high)}, most in block {top}"
            )
        else:
            noun = "Block" if len(carrying) == 1 else "Blocks"
            verb = "carries" if len(carrying) == 1 else "carry"
            text = (
                f"{noun} {listed([str(block) for block in carrying])} {verb} {of_these['share'].sum():.0%} of the "
                "change of all blocks' weights"
            )
        table = self.weights.frame
        squares = (table["change"] ** 2).where(table["layer"].isin(carrying)).groupby(table["which"]).sum()
        text += f"; {squares.max() / squares.sum():.0%} of that is in {squares.idxmax()}"
        return [Finding(f"{text}.", EVERY_WEIGHT, True, ANSWER if few else SUPPORT)]

    def _probes(self) -> list[Finding]:
        if "probe_before" not in self._frame:
            return []
        before, after, low, high, rival = (
            self._frame[name].to_numpy(dtype=float)[1:]
            for name in ("probe_before", "probe_after", "probe_after_low", "probe_after_high", "probe_before_high")
        )
        gain = after - before
        if not np.isfinite(gain).any():
            return []
        first, then, most = (int(np.nanargmax(values)) for values in (before, after, gain))
        up = "better" if after[then] > before[first] else "no better"
        text = (
            f"Probes read the labels {up} after tuning: they score {number(after[then])} at most, in layer {then + 1}, "
            f"and {number(before[first])} before it, in layer {first + 1}."
        )
        sure = bool(low[then] > np.nanmax(rival)) if math.isfinite(low[then]) else None
        # Which layer gained most is not tested against the others.
        gained = Finding(f"Layer {most + 1} gained most for probes ({number(gain[most])}).", "", None, DETAIL)
        return [Finding(text, f"after: {interval(low[then], high[then])}", sure, SUPPORT), gained]

    def _attention(self) -> list[Finding]:
        alike = self._frame["attention"].to_numpy(dtype=float)
        if not np.isfinite(alike).any():
            return []
        least = int(np.nanargmin(alike))
        text = f"Attention changed most in block {least} (1 - Jensen-Shannon divergence {number(alike[least])})."
        return [Finding(text, "", None, DETAIL)]

    def __repr__(self) -> str:
        return f"TuningChanges({len(self._frame) - 1} blocks, {self._names[0]} to {self._names[1]})"


def tuning_changes(
    base: ModelSource,
    tuned: ModelSource,
    task: TaskSource,
    *,
    split: str | None = None,
    pool: str = "mean",
    limit: int | None = None,
    attended: int = 100,
    probes: bool = True,
    max_length: int = 128,
    ci: float | None = 0.95,
    seed: int = 0,
) -> TuningChanges:
    """Measure what tuning changed in a model, layer by layer: states, weights, attention, and what probes read.

    Args:
        base: The model before tuning.
        tuned: The same model after it, of as many blocks.
        task: A task of the registry (`layerscope tasks` lists them), a file, a folder, a hub id, or a `Task`. Labels
            are needed for probes alone.
        split: The split whose texts both are run on; `validation` where there is one, else the only one.
        pool: How token states become rows: `cls`, `mean` or `last`.
        limit: Use only the first N examples.
        attended: Texts whose attention is compared; 0 for none.
        probes: Measure nu and train probes before and after, where the task has classes.
        max_length: The longest text in tokens; the rest is cut off.
        ci: The level of the intervals of states, by a delete-a-group jackknife over texts; None for none.
        seed: Decides the groups of texts.

    Returns:
        A `TuningChanges`: `.frame` has one row per layer, `.blocks` names those that carry the change of weights.

    Example:
        >>> import layerscope as ls
        >>> ls.tuning_changes("garden:bert-s0", "garden:bert-s1", "pydocs", limit=40, max_length=16).frame.columns[1]
        'states'
    """
    import pandas

    check_seed(seed)
    before, after, data = load(base), load(tuned), open_task(task)
    if before.depth != after.depth:
        raise InputError(
            f"A model and the one that it was tuned from have as many blocks, and {before.name} has {before.depth}, "
            f"{after.name} {after.depth}; `layerscope compare` compares any two models."
        )
    names = short_names([before.name, after.name])
    reading: dict[str, Any] = {"limit": limit, "max_length": max_length}
    states = compare(
        before, after, measure=STATES, task=data, split=split, pool=pool, names=names, ci=ci, seed=seed, **reading
    )
    missing: dict[str, str] = {}
    same = np.diagonal(states.values)
    bounds = [np.full(len(same), math.nan) if each is None else np.diagonal(each) for each in (states.low, states.high)]
    layers = list(range(before.depth + 1))
    frame = pandas.DataFrame({"layer": layers, "states": same, "low": bounds[0], "high": bounds[1]})
    weights = None
    try:
        weights = compare_weights(before, after, PARAMETERS)
    except LayerscopeError as error:
        missing["weights"] = str(error)
    frame = frame.merge(_by_block(weights, layers), on="layer", how="left")
    frame["most"] = frame["most"].fillna("")  # layer 0 is made by no block
    frame["attention"] = math.nan
    if attended:
        try:
            texts = attended if limit is None else min(limit, attended)
            heads = compare(
                before,
                after,
                measure=ATTENTION,
                task=data,
                split=split,
                limit=texts,
                max_length=max_length,
                names=names,
            )
            frame.loc[frame["layer"] >= 1, "attention"] = np.diagonal(heads.values)
        except LayerscopeError as error:
            missing["attention"] = str(error)
    if probes and data.labelled and not data.regression and data.kind in ("single", "pair"):
        try:
            study = specialty_study({"before": before, "after": after}, data, pools=[pool], **reading)
            frame = _with_probes(frame, study.frame, pool)
        except LayerscopeError as error:
            missing["nu and probes"] = str(error)
    settings = {**states.provenance.get("settings", {}), "attended": attended, "pool": pool}
    origin = {**provenance_of([before, after], None, settings), "data": states.provenance.get("data", {})}
    return TuningChanges(frame, origin, states, weights, missing)


def _by_block(weights: WeightDistances | None, layers: Sequence[int]) -> pandas.DataFrame:
    """Return the change of every block's weights: relative, as a share of all, and where most of it is."""
    import pandas

    if weights is None:
        return pandas.DataFrame({"layer": layers, "weights": math.nan, "share": math.nan, "most": ""})
    table = weights.frame
    sums = table.assign(change=table["change"] ** 2, size=table["size"] ** 2).groupby("layer")[["change", "size"]].sum()
    changed = sums["change"] > 0
    relative = (sums["change"] / sums["size"].where(sums["size"] > 0)).pow(0.5).fillna(0.0)
    total = float(sums["change"].sum())
    most = table.loc[table.groupby("layer")["change"].idxmax()].set_index("layer")["which"]
    return pandas.DataFrame(
        {
            "layer": sums.index,
            "weights": relative.to_numpy(),
            "share": (sums["change"] / total if total else sums["change"]).to_numpy(),
            "most": most.where(changed, "").to_numpy(),
        }
    )


def _with_probes(frame: pandas.DataFrame, study: pandas.DataFrame, pool: str) -> pandas.DataFrame:
    """Return the table with nu and the probes' scores of both models beside it."""
    for name in ("before", "after"):
        part = study[study["setting"] == f"{name}, {pool}"][["layer", *_PROBED]]
        renamed = {
            "nu": f"nu_{name}",
            "score": f"probe_{name}",
            "low": f"probe_{name}_low",
            "high": f"probe_{name}_high",
        }
        frame = frame.merge(part.rename(columns=renamed), on="layer", how="left")
    return frame
