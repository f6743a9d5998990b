"""The summary of a page: what was asked, three to six findings, and the command to run next."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from layerscope.reporting.findings.asking import Next, next_step, question
from layerscope.reporting.findings.finding import Finding
from layerscope.reporting.findings.readers import findings_of

if TYPE_CHECKING:
    from layerscope.results import Record

MOST = 6  # findings on top of a page


@dataclass(frozen=True)
class Told:
    """A finding, and the place of its record among those of the page."""

    finding: Finding
    record: int


@dataclass(frozen=True)
class Summary:
    """What stands on top of a page.

    Attributes:
        questions: What was asked, each question once, with the place of the first record that was asked it.
        findings: At most six, each with the place of its record.
        next: The recommended command, or None.
    """

    questions: Mapping[str, int]
    findings: Sequence[Told]
    next: Next | None


def summarize(records: Sequence[Record]) -> Summary:
    """What records say together. Every record has its say before one has a second."""
    told = [
        (rank, Told(finding, k)) for k, record in enumerate(records) for rank, finding in enumerate(findings_of(record))
    ]
    told.sort(key=lambda part: (part[0], -part[1].finding.weight, part[1].finding.sure is None))  # stable
    chosen = sorted(told[:MOST], key=lambda part: (part[1].record, part[0]))
    asked: dict[str, int] = {}
    for k, record in enumerate(records):
        asked.setdefault(question(record), k)
    return Summary(asked, [part for _, part in chosen], _next(records))


def _next(records: Sequence[Record]) -> Next | None:
    """What the last record leads on to that no other record of the page has done already."""
    for k, record in reversed(list(enumerate(records))):
        others = {_done(other) for j, other in enumerate(records) if j != k}
        if (step := next_step(record)) is not None and step.target not in others:
            return step
    return None


def _done(record: Record) -> tuple[str, str]:
    """The command of a record and the model that it names."""
    return record.kind, next((str(model.get("name", "")) for model in record.models), "")
