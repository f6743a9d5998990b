"""What a reproduction gives: a verdict for every claim, model and task, and what was left out."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from itertools import product
from pathlib import Path
from typing import TYPE_CHECKING, Any

from layerscope.drawing.figures.table import TableFigure
from layerscope.recipes.cell import Cell
from layerscope.recipes.claims import Claim, Statistic, verdict
from layerscope.results import Result

if TYPE_CHECKING:
    import pandas

    from layerscope.drawing.figure import Figure

VERDICTS = ("holds", "does not hold", "undecided", "not testable")
Done = Sequence[tuple[Cell, Mapping[str, Statistic]]]


class Reproduction(Result):
    """The claims of a paper put to the test; `ls.reproduce` makes one.

    `frame` (also `claims`) has one row per claim and combination: claim, experiment, where, on (the combination),
    value, low, high, threshold, verdict, n, note.

    Attributes:
        missing: What could not be had or done, by name, with the reason.
        folder: Where records and the report are.
    """

    name = "reproduction"

    def __init__(
        self, frame: pandas.DataFrame, provenance: Mapping[str, Any], missing: Mapping[str, str], folder: Path
    ) -> None:
        self._frame, self.provenance, self.missing, self.folder = frame, provenance, dict(missing), folder

    @property
    def frame(self) -> pandas.DataFrame:
        return self._frame

    @property
    def claims(self) -> pandas.DataFrame:
        """The same."""
        return self._frame

    @property
    def summary(self) -> pandas.DataFrame:
        """One row per claim: in how many combinations it held, of those in which it could be decided, and so on."""
        import pandas

        rows = []
        for claim, part in self._frame.groupby("claim", sort=False):
            counts = part["verdict"].value_counts()
            rows.append({"claim": claim, "where": part["where"].iloc[0], **{v: int(counts.get(v, 0)) for v in VERDICTS}})
        return pandas.DataFrame(rows, columns=["claim", "where", *VERDICTS])

    def figures(self) -> list[Figure]:
        shows = "In how many combinations of models and tasks each claim held."
        reading = "Undecided: the interval over texts spans the threshold, or there is none."
        every = "Every claim and combination, with the statistic that decides it and its interval over texts."
        return [
            TableFigure.of(self.summary.to_dict("records"), title="Claims", shows=shows, reading=reading, caveat=""),
            TableFigure.of(self._frame.to_dict("records"), title="Verdicts", shows=every, reading=reading, caveat=""),
        ]

    def findings(self) -> list[str]:
        """Each claim in a sentence, and what is missing."""
        said = [f"{row.claim}: {_counted(row)}." for row in self.summary.itertuples(index=False)]
        return [*said, *(f"Left out: {name}: {reason}" for name, reason in self.missing.items())]

    def __repr__(self) -> str:
        counts = self._frame["verdict"].value_counts()
        said = ", ".join(f"{counts[v]} {v}" for v in VERDICTS if v in counts)
        return f"Reproduction({said or 'no claim was decided'}; {len(self.missing)} left out)"


def _counted(row: Any) -> str:
    """`holds in 3 of 4, undecided in 1`."""
    counts = dict(zip(("claim", "where", *VERDICTS), row, strict=True))
    decided = sum(counts[v] for v in VERDICTS[:3])
    said = f"holds in {counts['holds']} of {decided}"
    for name in VERDICTS[1:]:
        if counts[name]:
            said += f", {name} in {counts[name]}"
    return said


def verdicts(claims: Sequence[Claim], done: Done) -> pandas.DataFrame:
    """One row per claim and combination, in the order of the claims."""
    import pandas

    rows = []
    for claim in claims:
        for label, value in _compared(claim, done) if claim.over else _alone(claim, done):
            rows.append(
                {
                    "claim": claim.name,
                    "experiment": claim.experiment,
                    "where": claim.where,
                    "on": label,
                    "value": value.value,
                    "low": value.low,
                    "high": value.high,
                    "threshold": claim.threshold,
                    "verdict": verdict(claim, value),
                    "n": value.n,
                    "note": value.reason or value.note,
                }
            )
    columns = ["claim", "experiment", "where", "on", "value", "low", "high", "threshold", "verdict", "n", "note"]
    return pandas.DataFrame(rows, columns=columns)


def _alone(claim: Claim, done: Done) -> Iterator[tuple[str, Statistic]]:
    for cell, said in done:
        if claim.name in said:
            yield cell.label, said[claim.name]


def _compared(claim: Claim, done: Done) -> Iterator[tuple[str, Statistic]]:
    """The statistic of one model less that of another, for all else that is the same."""
    assert claim.over is not None
    first, second = ([(c, s[claim.name]) for c, s in done if claim.name in s and c.chosen.get("model") == m] for m in claim.over)
    for (cell, value), (other, less) in product(first, second):
        rest = [{k: v for k, v in c.chosen.items() if k != "model"} for c in (cell, other)]
        if rest[0] == rest[1]:
            label = ", ".join([" less ".join(claim.over), *map(str, rest[0].values())])
            yield label, value.minus(less)
    if not first or not second:
        absent = claim.over[0] if not first else claim.over[1]
        yield " less ".join(claim.over), Statistic.missing(f"{absent} is none of the models that were run")


def is_known(value: float) -> bool:
    return not math.isnan(value)
