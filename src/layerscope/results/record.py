"""Records: what commands leave, as values."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

from layerscope.drawing.figure import Figure
from layerscope.results.result import Result, view
from layerscope.store import json_text

if TYPE_CHECKING:
    import pandas

FORMAT = 2  # raise it when an older program would misread what is written


@dataclass(frozen=True, kw_only=True)
class Record:
    """What a command left: its figures and tables, its findings in sentences, and everything they depend on.

    Attributes:
        kind: The command.
        title: The record's title.
        figures: What is drawn, as data.
        tables: The results' tables by name.
        findings: What came out, in sentences.
        command: The command as it was typed.
        models: The models: name, weights (a hash), revision, class, blocks.
        data: The task, its split, fingerprint and number of rows.
        settings: Pool, seed, lengths and the like.
        versions: Of layerscope and the libraries under it.
        created: When it was written.
        seconds: How long the command took.
        format: The version of the files.
        results: Where the tables come from, where that is known.
        files: What the command wrote beside the record: names of files, and of folders of trainings.

    Example:
        >>> import numpy as np, layerscope as ls
        >>> curve = ls.Curve("nu", ["model"] * 2, [0, 1], np.array([2.0, 1.0]))
        >>> record = ls.Record.of("specialty", "Specialty", {"nu": curve})
        >>> [figure.title for figure in record.figures]
        ['nu of every layer']
    """

    kind: str  # the command
    title: str
    figures: Sequence[Figure]
    tables: Mapping[str, pandas.DataFrame] = field(default_factory=dict)  # of the results, by name
    findings: Sequence[str] = ()
    command: str = ""
    models: Sequence[Mapping[str, Any]] = ()  # name, weights (a hash), revision, class, blocks
    data: Mapping[str, Any] = field(default_factory=dict)  # task, split, fingerprint, n
    settings: Mapping[str, Any] = field(default_factory=dict)  # pool, seed, lengths ..
    versions: Mapping[str, str] = field(default_factory=dict)  # layerscope and the libraries under it
    created: str = ""
    seconds: float | None = None
    format: int = FORMAT
    results: Mapping[str, Result] = field(default_factory=dict, compare=False)  # where the tables come from, if known
    files: Sequence[str] = ()  # beside the record

    @staticmethod
    def of(kind: str, title: str, results: Mapping[str, Result], **about: Any) -> Record:
        """The record of some results: figures, findings, models, data and settings are theirs."""
        parts = list(results.values())
        known = [part.provenance for part in parts]
        models = {json_text(m, sort_keys=True): m for p in known for m in p.get("models", ())}
        settings = {name: value for p in reversed(known) for name, value in p.get("settings", {}).items()}
        said = [sentence for part in parts for sentence in part.findings()]
        findings = [*about.pop("findings", ()), *said]
        return Record(
            kind=kind,
            title=title,
            figures=about.pop("figures", None) or [figure for part in parts for figure in part.figures()],
            findings=findings,
            models=list(models.values()),
            data={**next((p["data"] for p in known if p.get("data")), {}), **(about.pop("data", None) or {})},
            settings={**settings, **{k: v for k, v in about.pop("settings", {}).items() if v is not None}},
            versions=next((p["versions"] for p in known if p.get("versions")), {}),
            results=results,
            **about,
        )

    def _repr_html_(self) -> str:
        """The findings, the first picture and the first table, for notebooks."""
        frames = [*self.tables.values(), *(result.frame for result in self.results.values())]
        return view(self.title, self.findings, self.figures, frames[0] if frames else None)

    def with_findings(self, findings: Sequence[str]) -> Record:
        """The same record with other sentences."""
        return replace(self, findings=list(findings))
