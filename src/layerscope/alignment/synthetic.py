"""Does a method find a map that is known to be there? (Ren et al. 2023, table 3)"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from torch import Tensor

from layerscope.alignment.fitting import Fitting, fit_all
from layerscope.alignment.methods import Options, by_place, check_methods
from layerscope.alignment.networks import random_couplings
from layerscope.alignment.results import RELATIVE, Study
from layerscope.data.resampling import halves
from layerscope.drawing.figures.box import BoxFigure
from layerscope.drawing.words import caveat, numbers
from layerscope.engine import check_engine
from layerscope.errors import InputError, check_seed, choose
from layerscope.extraction.finite import check_finite
from layerscope.extraction.representations import Representations
from layerscope.results import provenance_of
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


def _boxes(rows: pandas.DataFrame) -> BoxFigure:
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
    reps: Representations,
    *,
    layer: int | None = None,
    truths: Sequence[str] = TRUTHS,
    noise: Sequence[float] = (0.0, 0.1),
    methods: Sequence[str] | None = None,
    repeats: int = 3,
    seed: int = 0,
    options: Options | None = None,
    engine: str = "local",
) -> SyntheticStudy:
    """How close each method comes to Y = f(X) on the half of the texts that it did not learn from.

    Args:
        reps: X are a layer's states of these, standardised.
        layer: Which layer; the last one if not given.
        truths: Kinds of f: `inn` is a random invertible network of one coupling block that splits the features as they
            come, `rotated inn` the same in other coordinates, `linear` a random matrix. No method is told anything
            of f.
        noise: Added to Y, as shares of its standard deviation: then no method can come below the
            share of the noise in the variance of Y.
        methods: Alignment methods; all of them if not given.
        repeats: How many f of each kind.
        seed: Decides f, the noise, folds and networks.
        options: A method's own, such as `{"inn": {"start": "plain"}}`.
        engine: Where the fits run: `local` (one after another, here), `processes:N`, `ray` or `ray:ADDRESS`.

    Returns:
        The study: `frame` has one row per truth, noise, repeat and method, `summary` averages over repeats.

    Example:
        >>> import numpy as np
        >>> import layerscope as ls
        >>> reps = ls.Representations.from_arrays([np.random.default_rng(0).normal(size=(200, 4))])
        >>> study = ls.synthetic_study(reps, truths=["linear"], noise=[0.0], methods=["mean", "linear"], repeats=1)
        >>> errors = study.frame.set_index("method")["relative"]
        >>> bool(errors["linear"] < 1e-6 < errors["mean"])
        True
    """
    import pandas

    check_seed(seed)
    check_engine(engine)
    for truth in truths:
        choose("truth", truth, TRUTHS)
    check_methods(methods, options)
    chosen = by_place() if methods is None else list(methods)
    taken = reps.layers[-1] if layer is None else layer
    check_finite(reps.select([taken]))
    given = Given(reps[taken], reps.rows.row)
    cases = [
        Case(given, truth, seed + repeat, float(share))
        for truth in truths
        for repeat in range(repeats)
        for share in noise
    ]
    asked = [(case, method) for case in cases for method in chosen]
    fitted = fit_all(
        [Fitting(given, case, [(0, 0)], method, seed, (options or {}).get(method, {})) for case, method in asked],
        "synthetic study",
        engine,
        [f"{method} to {case.truth}, noise {case.noise:g}, repeat {case.seed - seed}" for case, method in asked],
    )
    rows = []
    for (case, method), (aligner,) in zip(asked, fitted, strict=True):
        about = {"truth": case.truth, "noise": case.noise, "repeat": case.seed - seed, "method": method}
        x, y = given.rows[given.learned :], given.image(case)[given.learned :]
        rows.append({**about, "n": len(x), **aligner.error(x, y, texts=given.all_texts[given.learned :])})
    settings = {
        "layer": taken,
        "truths": list(truths),
        "noise": [float(share) for share in noise],
        "methods": chosen,
        "repeats": repeats,
        "seed": seed,
        "options": {name: dict(own) for name, own in options.items()} if options else None,
    }
    models = [reps.info["described"]] if "described" in reps.info else []
    return SyntheticStudy(pandas.DataFrame(rows), provenance_of(models, reps.info.get("data"), settings))


class Given:
    """X: a layer's rows, standardised, texts in another order. As a side, those of the half that is learned from."""

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
    """Y = f(X) with noise; f and the noise follow from the seed. As a side, the half that is learned from."""

    given: Given
    truth: str
    seed: int
    noise: float

    def spec(self) -> dict[str, Any]:
        return {"content": self.given.content, "truth": self.truth, "seed": self.seed, "noise": self.noise}

    def __getitem__(self, layer: int) -> Tensor:
        return self.given.image(self)[: self.given.learned]

    @property
    def texts(self) -> np.ndarray:
        return self.given.texts


def mapped(truth: str, x: Tensor, seed: int) -> Tensor:
    """f(X) for a random f of the kind."""
    width = x.shape[1]
    generator = torch.Generator().manual_seed(seed)
    turn = torch.linalg.qr(torch.randn(width, width, generator=generator))[0]
    if truth == "linear":
        return x @ torch.randn(width, width, generator=generator) / width**0.5
    network = random_couplings(width, _HIDDEN, seed)
    with torch.no_grad():
        return network(x) if truth == "inn" else network(x @ turn) @ turn.T


def _standard(x: Tensor) -> Tensor:
    spread = x.std(dim=0)
    return (x - x.mean(dim=0)) / torch.where(spread > 0, spread, 1.0)
