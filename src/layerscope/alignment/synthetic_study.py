"""Does a method find a map that is known to be there? (Ren et al. 2023, table 3)"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from torch import Tensor

from layerscope.alignment.align import Fitting, fit_all
from layerscope.alignment.aligner import Options, by_place, check_methods, options_for
from layerscope.alignment.alignment_study import RELATIVE, Study
from layerscope.alignment.neural_maps import random_couplings
from layerscope.data import TaskSource
from layerscope.data import task as open_task
from layerscope.drawing.captions import caveat, numbers
from layerscope.drawing.figures.box import BoxFigure
from layerscope.engine import check_engine
from layerscope.errors import InputError, check_seed, choose
from layerscope.extraction.extract import extract
from layerscope.extraction.representations import Representations, check_finite
from layerscope.models.load import ModelSource, load
from layerscope.resampling import halves
from layerscope.results import Finding, provenance_of
from layerscope.results.finding import ANSWER, NO_INTERVAL, SUPPORT
from layerscope.store import digest

if TYPE_CHECKING:
    import pandas

    from layerscope.drawing.figure import Figure, Marks

TRUTHS = ("linear", "inn", "rotated inn")
_HIDDEN = 128
_APART = 1_000_003  # added to the seeds of truths, so that no learner draws the same numbers


class SyntheticStudy(Study):
    """How close each method comes to a map that is known; `ls.synthetic_study` makes one.

    `frame` has one row per truth, noise, repeat and method: their names, n and the errors with their intervals.
    """

    name = "synthetic"

    @property
    def summary(self) -> pandas.DataFrame:
        """One row per truth, noise and method: mean and standard deviation of the relative error over repeats."""
        groups = self.frame.groupby(["truth", "noise", "method"], sort=False)["relative"]
        return groups.agg(["mean", "std"]).rename(columns={"mean": "relative", "std": "relative sd"}).reset_index()

    def figures(self) -> list[Figure]:
        """The errors of every method, one figure per truth and noise; and the table."""
        groups = [rows for _, rows in self.frame.groupby(["truth", "noise"], sort=False)]
        drawn: list[Figure] = [_boxes(rows) for rows in groups]
        shows = "Relative error of every method on rows that it did not learn from, over repeats."
        return [*drawn, numbers("All methods", shows, self.summary)]

    def findings(self) -> list[Finding]:
        """Which method comes nearest to each kind of map."""
        frame = self.frame[self.frame["relative"].notna()]
        findings: list[Finding] = []
        for truth, part in frame.groupby("truth", sort=False):
            errors = part.groupby("method", sort=False)["relative"].mean()
            best = str(errors.idxmin())
            text = f"Where the true map is {truth}, {best} comes nearest: {errors[best]:.1%} of the spread is left "
            evidence = f"mean over {int((part['method'] == best).sum())} repeats; {NO_INTERVAL}"
            findings.append(Finding(f"{text}unexplained.", evidence, None, SUPPORT if findings else ANSWER))
        return findings


def _boxes(rows: pandas.DataFrame) -> BoxFigure:
    """The errors of every method for one truth and noise."""
    truth, noise = str(rows["truth"].iloc[0]), float(rows["noise"].iloc[0])
    floor: Marks = (("no map can do better", noise**2 / (1 + noise**2)),) if noise else ()
    methods = rows.groupby("method", sort=False)["relative"]
    return BoxFigure(
        title=f"Finding a map that is there: {truth}, noise {noise:g}",
        shows=f"{RELATIVE} on rows that the aligners did not learn from, for Y = f(X) with a known f; every repeat is "
        "a point.",
        reading="0 is a perfect map, 1 is no better than the mean.",
        caveat=caveat("", int(rows["n"].min())),
        boxes={str(method): tuple(map(float, values)) for method, values in methods},
        y_name="relative error",
        references=floor,
        n=int(rows["n"].min()),
        group="Finding a map that is there",
        facets={"truth": truth, "noise": f"{noise:g}"},
    )


def synthetic_study(
    source: Representations | ModelSource,
    task: TaskSource | None = None,
    *,
    layer: int | None = None,
    true_maps: Sequence[str] = TRUTHS,
    noise: Sequence[float] = (0.0, 0.1),
    methods: Sequence[str] | None = None,
    repeats: int = 3,
    pool: str = "mean",
    limit: int = 3200,
    max_length: int = 128,
    seed: int = 0,
    options: Options | None = None,
    engine: str = "local",
) -> SyntheticStudy:
    """How close each method comes to Y = f(X) on the half of the texts that it did not learn from.

    Args:
        source: Representations, or a model, which is run over the task. X are the states of one of its layers,
            standardised.
        task: A task of the registry (`layerscope tasks` lists them), a file, a folder, a hub id, or a `Task`. For a
            model: the texts, of the split to learn from.
        layer: Which layer; the last one if not given.
        true_maps: Kinds of f: `inn` is a random invertible network of one coupling block that splits the features as
            they come, `rotated inn` the same in other coordinates, `linear` a random matrix. No method is told anything
            of f.
        noise: Noise that is added to Y, as shares of its standard deviation: then no method can come below the share of
            the noise in the variance of Y.
        methods: Alignment methods, separated by commas; all of them if not given.
        repeats: How many f of each kind.
        pool: For a model: how token states become rows: `cls`, `mean`, `last`, `words` or `tokens`.
        limit: For a model: use only the first N texts.
        max_length: For a model: the longest text in tokens.
        seed: Decides f, the noise, folds and networks.
        options: A method's own options, such as `{"inn": {"steps": 500}}`.
        engine: Where the fits run: `local` (one after another, here), `processes:N`, `ray` or `ray:ADDRESS`.

    Returns:
        The study: `frame` has one row per truth, noise, repeat and method, `summary` averages over repeats.

    Example:
        >>> import numpy as np
        >>> import layerscope as ls
        >>> reps = ls.Representations.from_arrays([np.random.default_rng(0).normal(size=(200, 4))])
        >>> study = ls.synthetic_study(reps, true_maps=["linear"], noise=[0.0], methods=["mean", "linear"], repeats=1)
        >>> errors = study.frame.set_index("method")["relative"]
        >>> bool(errors["linear"] < 1e-6 < errors["mean"])
        True
    """
    import pandas

    check_seed(seed)
    check_engine(engine)
    for truth in true_maps:
        choose("truth", truth, TRUTHS)
    if wrong := [share for share in noise if not 0 <= share < math.inf]:
        raise InputError(f"noise is {wrong[0]}; it must be a number from 0.")
    check_methods(methods, options)
    chosen = by_place() if methods is None else list(methods)
    if isinstance(source, Representations):
        reps = source
    else:
        model, data = load(source), open_task(task)
        layers = [model.depth if layer is None else layer]
        split = data.resolve(None, learning=True)
        reps = extract(model, data, split=split, layers=layers, pool=pool, limit=limit, max_length=max_length)
    chosen_layer = reps.layers[-1] if layer is None else layer
    check_finite(reps.select([chosen_layer]))
    base = SourceRows(reps[chosen_layer], reps.rows.row)
    cases = [
        Case(base, truth, seed + repeat, float(share))
        for truth in true_maps
        for repeat in range(repeats)
        for share in noise
    ]
    asked = [(case, method) for case in cases for method in chosen]
    fitted = fit_all(
        [Fitting(base, case, [(0, 0)], method, seed, options_for(method, options)) for case, method in asked],
        "synthetic study",
        engine,
        [f"{method} to {case.truth}, noise {case.noise:g}, repeat {case.seed - seed}" for case, method in asked],
    )
    rows = []
    for (case, method), (aligner,) in zip(asked, fitted, strict=True):
        names = {"truth": case.truth, "noise": case.noise, "repeat": case.seed - seed, "method": method}
        x, y = base.rows[base.learned :], base.image(case)[base.learned :]
        rows.append({**names, "n": len(x), **aligner.error(x, y, texts=base.all_texts[base.learned :])})
    settings = {
        "layer": chosen_layer,
        "truths": list(true_maps),
        "noise": [float(share) for share in noise],
        "methods": chosen,
        "repeats": repeats,
        "seed": seed,
        "options": {name: dict(value) for name, value in options.items()} if options else None,
    }
    models = [reps.info["described"]] if "described" in reps.info else []
    return SyntheticStudy(pandas.DataFrame(rows), provenance_of(models, reps.info.get("data"), settings))


class SourceRows:
    """X: the rows of a layer, standardised, one half of the texts before the other; as a side, the first half."""

    def __init__(self, rows: Tensor, texts: np.ndarray) -> None:
        if len(rows) < 20 or len(np.unique(texts)) < 2:
            raise InputError(
                f"A synthetic study needs at least 20 rows of 2 texts or more; there are {len(rows)} rows of "
                f"{len(np.unique(texts))}."
            )
        half = halves(texts, seed=0)  # rows may be sorted by class
        order = np.concatenate([np.flatnonzero(half), np.flatnonzero(~half)])
        self.rows, self.all_texts = _standard(rows)[torch.from_numpy(order)], texts[order]
        self.learned = int(half.sum())  # rows
        self._last: tuple[Case, Tensor] | None = None

    @cached_property
    def content(self) -> str:
        """A digest of X and its texts."""
        return digest(self.rows.numpy().tobytes(), str(tuple(self.rows.shape)), self.all_texts.tobytes())

    def spec(self) -> dict[str, Any]:
        return {"content": self.content}

    def __getitem__(self, layer: int) -> Tensor:
        return self.rows[: self.learned]

    @property
    def texts(self) -> np.ndarray:
        return self.all_texts[: self.learned]

    def image(self, case: Case) -> Tensor:
        """Y of a case; that of the last one is kept, since every method asks for it in turn."""
        if self._last is None or self._last[0] is not case:
            y = mapped(case.truth, self.rows, _APART + case.seed)
            generator = torch.Generator().manual_seed(2 * _APART + case.seed)
            self._last = case, y + case.noise * y.std() * torch.randn(y.shape, generator=generator)
        return self._last[1]


@dataclass(frozen=True, eq=False)
class Case:
    """Y = f(X) with noise, where the seed decides f and the noise; as a side, its rows of the half to learn from."""

    source: SourceRows
    truth: str
    seed: int
    noise: float

    def spec(self) -> dict[str, Any]:
        return {"content": self.source.content, "truth": self.truth, "seed": self.seed, "noise": self.noise}

    def __getitem__(self, layer: int) -> Tensor:
        return self.source.image(self)[: self.source.learned]

    @property
    def texts(self) -> np.ndarray:
        return self.source.texts


def mapped(truth: str, x: Tensor, seed: int) -> Tensor:
    """f(X) for a random f of a kind."""
    width = x.shape[1]
    generator = torch.Generator().manual_seed(seed)
    turn = torch.linalg.qr(torch.randn(width, width, generator=generator))[0]
    if truth == "linear":
        return x @ torch.randn(width, width, generator=generator) / width**0.5
    network = random_couplings(width, _HIDDEN, seed)
    with torch.no_grad():
        return network(x) if truth == "inn" else network(x @ turn) @ turn.T


def _standard(x: Tensor) -> Tensor:
    """Rows with every column at mean 0 and deviation 1; constant columns are 0."""
    spread = x.std(dim=0)
    return (x - x.mean(dim=0)) / torch.where(spread > 0, spread, 1.0)
