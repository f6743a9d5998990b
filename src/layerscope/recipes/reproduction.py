"""`Reproduction`, the result of `ls.reproduce`: a verdict for every claim, model and task, and what was left out."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from layerscope.drawing.captions import listed, numbers
from layerscope.recipes.claims import Claim, Statistic, verdict
from layerscope.recipes.experiment_run import ExperimentRun
from layerscope.registry import UNITS
from layerscope.results import Finding, Result
from layerscope.results.finding import ANSWER, DETAIL, SUPPORT

if TYPE_CHECKING:
    import pandas

    from layerscope.drawing.figure import Figure
    from layerscope.drawing.figures.grid import GridFigure
    from layerscope.recipes.layout import PaperTable

VERDICTS = ("holds", "does not hold", "undecided", "not testable")
COLUMNS = [
    *(
        "claim",
        "paper",
        "experiment",
        "where",
        "on",
        "models",
        "value",
        "low",
        "high",
        "threshold",
        "unit",
        "verdict",
        "n",
    ),
    "note",
]
_MOST = 5  # claims that a sentence names
Done = Sequence[tuple[ExperimentRun, Mapping[str, Statistic]]]


class Reproduction(Result):
    """The claims of a paper put to the test; `ls.reproduce` makes one.

    `frame` (also `claims`) has one row per claim and combination: claim, paper, experiment, where, on (which
    combination), models (of the combination), value, low, high (95 % over texts), threshold, unit (what
    the value is a number of), verdict, n, note.

    Attributes:
        missing: What could not be fetched or done, by name, with the reason.
        folder: Where records, the report, and the paper's figures and tables are.
        paper_figures: The paper's figures by their numbers (`fig2`), each a grid of panels.
        paper_tables: The paper's tables by their numbers (`table6`), as `.tables()` gives them.

    Example:
        >>> import tempfile, layerscope as ls
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     done = ls.reproduce("ren2023", only="norms", models="garden:bert-s0", profile="smoke", out=folder)
        >>> list(done.summary)[:4]
        ['claim', 'paper', 'where', 'holds']
    """

    name = "reproduction"

    def __init__(
        self,
        frame: pandas.DataFrame,
        provenance: Mapping[str, Any],
        missing: Mapping[str, str],
        folder: Path,
        figures: Mapping[str, GridFigure] | None = None,
        tables: Mapping[str, PaperTable] | None = None,
    ) -> None:
        self._frame, self.provenance, self.missing, self.folder = frame, provenance, dict(missing), folder
        self.paper_figures, self.paper_tables = dict(figures or {}), dict(tables or {})

    @property
    def frame(self) -> pandas.DataFrame:
        return self._frame

    @property
    def claims(self) -> pandas.DataFrame:
        """The same."""
        return self._frame

    @property
    def summary(self) -> pandas.DataFrame:
        """One row per claim: how many combinations have each verdict, and in which of the decided models it held."""
        return summarised(self._frame)

    def tables(self) -> dict[str, pandas.DataFrame]:
        """The paper's tables by their numbers (`table6`): one row per cell, with mean, deviation, n, or the reason."""
        return {number: table.frame for number, table in self.paper_tables.items()}

    def figures(self) -> list[Figure]:
        """The claims and every verdict as tables, then the paper's figures, and then its tables."""
        shows = "In how many combinations of models and tasks each claim held."
        reading = "Undecided: the interval over texts spans the threshold, or there is none."
        every = "Every claim and combination, with the statistic that decides it and its interval over texts."
        return [
            numbers("Claims", f"{shows} {reading}", self.summary),
            numbers("Verdicts", f"{every} {reading}", self._frame.drop(columns=["paper", "models"])),
            *self.paper_figures.values(),
            *(table.figure() for table in self.paper_tables.values()),
        ]

    def findings(self) -> list[Finding]:
        """Each claim in a sentence, how many hold, and what is missing."""
        findings = []
        for row in self.summary.to_dict("records"):
            tested = sum(row[v] for v in VERDICTS[:3])
            sure = row["undecided"] == 0 if tested else None
            findings.append(Finding(f"{row['claim']}: {_counted(row)}.", "", sure, SUPPORT))
        if findings:
            findings.append(self._held())
        return [
            *findings,
            *(Finding(f"Left out: {name}: {why}", "", None, DETAIL) for name, why in self.missing.items()),
        ]

    def _held(self) -> Finding:
        """Return how many claims hold wherever they were tested."""
        tested = self._frame[self._frame["verdict"].isin(VERDICTS[:3])]
        if not len(tested):
            return Finding("No claim could be tested.", f"{len(self._frame)} combinations were tried", False, ANSWER)
        names = list(dict.fromkeys(tested["claim"]))
        holding = [name for name in names if set(tested[tested["claim"] == name]["verdict"]) == {VERDICTS[0]}]
        text = f"{len(holding)} of {len(names)} claims hold wherever they were tested"
        text += f": {listed(holding[:_MOST])}." if holding else "."
        undecided = int((tested["verdict"] == "undecided").sum())
        evidence = f"{len(tested)} combinations of models and tasks, of which {undecided} are undecided"
        return Finding(text, evidence, undecided == 0, ANSWER)

    def __repr__(self) -> str:
        counts = self._frame["verdict"].value_counts()
        verdicts = ", ".join(f"{counts[v]} {v}" for v in VERDICTS if v in counts)
        return f"Reproduction({verdicts or 'no claim was decided'}; {len(self.missing)} left out)"


def _counted(row: Mapping[Any, Any]) -> str:
    """Return `holds in 3 of 4, undecided in 1`; what could not be tested is not among the four."""
    tested = sum(row[v] for v in VERDICTS[:3])
    first = [f"holds in {row['holds']} of {tested}"] if tested else []
    return ", ".join([*first, *(f"{v} in {row[v]}" for v in VERDICTS[1:] if row[v])])


def summarised(frame: pandas.DataFrame) -> pandas.DataFrame:
    """Return a table with one row per claim of a table of verdicts.

    A model is decided where the claim holds or does not on some task. The claim held in it where it holds in every such
    task; in some of them is `in part`.
    """
    import pandas

    rows = []
    for (paper, claim), part in frame.groupby(["paper", "claim"], sort=False):
        counts = part["verdict"].value_counts()
        decided = part[part["verdict"].isin(VERDICTS[:2])]
        holding = (decided["verdict"] == VERDICTS[0]).groupby(decided["models"], sort=False).mean()
        rows.append(
            {
                "claim": claim,
                "paper": paper,
                "where": part["where"].iloc[0],
                **{v: int(counts.get(v, 0)) for v in VERDICTS},
                "held in": ", ".join(holding[holding == 1].index),
                "held in part in": ", ".join(holding[(holding > 0) & (holding < 1)].index),
                "models decided": len(holding),
            }
        )
    columns = ["claim", "paper", "where", *VERDICTS, "held in", "held in part in", "models decided"]
    return pandas.DataFrame(rows, columns=columns)


def verdicts(claims: Sequence[Claim], done: Done) -> pandas.DataFrame:
    """Return a table with one row per claim and combination, in the order of the claims."""
    import pandas

    rows = []
    for claim in claims:
        for label, subject, value in _compared(claim, done) if claim.over else _alone(claim, done):
            no_interval = "no interval" if math.isnan(value.low) or math.isnan(value.high) else ""
            rows.append(
                {
                    "claim": claim.name,
                    "paper": claim.paper,
                    "experiment": claim.experiment,
                    "where": claim.where,
                    "on": label,
                    "models": subject,
                    "value": value.value,
                    "low": value.low,
                    "high": value.high,
                    "threshold": claim.threshold,
                    "unit": UNITS[claim.statistic],
                    "verdict": verdict(claim, value),
                    "n": value.n,
                    "note": value.reason or "; ".join(filter(None, [value.note, no_interval])),
                }
            )
    return pandas.DataFrame(rows, columns=COLUMNS)


def _alone(claim: Claim, done: Done) -> Iterator[tuple[str, str, Statistic]]:
    """Yield the combination, the models and the statistic of every run that decides a claim."""
    for cell, statistics in done:
        if claim.name in statistics:
            yield cell.label, cell.subject, statistics[claim.name]


def _compared(claim: Claim, done: Done) -> Iterator[tuple[str, str, Statistic]]:
    """Yield the statistic of one model less that of another, for all else that is the same."""
    assert claim.over is not None
    subject = " less ".join(claim.over)
    first, second = (
        [
            (cell, statistics[claim.name])
            for cell, statistics in done
            if claim.name in statistics and cell.chosen.get("model") == model
        ]
        for model in claim.over
    )
    for side, others, absent in ((first, second, claim.over[1]), (second, first, claim.over[0])):
        for cell, value in side if others else ():
            label = cell.label.replace(str(cell.chosen["model"]), subject, 1)
            same = [less for other, less in others if _rest(other) == _rest(cell)]
            if not same:
                yield label, subject, Statistic.missing(f"{absent} was not run, or failed, on the same")
            elif side is first:
                yield label, subject, value.minus(same[0])
    if not first or not second:
        absent = claim.over[0] if not first else claim.over[1]
        yield subject, subject, Statistic.missing(f"{absent} is none of the models that were run")


def _rest(cell: ExperimentRun) -> dict[str, Any]:
    """Return what a run runs over, other than its model."""
    return {name: value for name, value in cell.chosen.items() if name != "model"}
