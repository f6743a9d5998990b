"""What stands in the `record.json` of a record and in the metadata of a saved result, as schemas."""

from __future__ import annotations

from typing import Annotated, Any

from pydantic import ConfigDict, Field

from layerscope.store import Saved

LONGEST = 20_000  # characters of a sentence or a name
MOST_FIGURES = 2000
Text = Annotated[str, Field(max_length=LONGEST)]
Mark = Annotated[list[Text | float | int], Field(min_length=2, max_length=2)]


class SettingsCard(Saved):
    """What is not a column of a figure; each kind of figure has some of these."""

    x_name: Text | None = None
    y_name: Text | None = None
    value_name: Text | None = None
    row_name: Text | None = None
    column_name: Text | None = None
    references: list[Mark] | None = None
    marks: list[Mark] | None = None
    scale: Annotated[list[float], Field(min_length=2, max_length=2)] | None = None
    shape: Annotated[list[Annotated[int, Field(ge=0)]], Field(min_length=2, max_length=2)] | None = None
    extras: list[Text] | None = None
    cuts: list[int] | None = None
    marked: list[Annotated[list[int], Field(min_length=2, max_length=2)]] | None = None
    joined: list[Text] | None = None
    stressed: list[Text] | None = None
    log: bool | None = None
    n: int | None = None


class FigureCard(Saved):
    """A figure of a record: its words, and the file with its columns."""

    kind: str
    file: str
    title: Text
    shows: Text
    reading: Text
    caveat: Text
    group: Text
    facets: dict[str, Text]
    settings: dict[str, Any]


class ModelCard(Saved):
    """A model of a record; what else is known of it stands beside its name."""

    model_config = ConfigDict(extra="allow")
    name: Text


class RecordCard(Saved):
    """`record.json`."""

    kind: Text
    title: Text
    command: Text
    created: Text
    seconds: float | None
    findings: list[Text]
    models: list[ModelCard]
    data: dict[str, Any]
    settings: dict[str, Any]
    versions: dict[str, str]
    tables: dict[str, str]
    files: list[str] = Field(default_factory=list)
    figures: list[FigureCard] = Field(max_length=MOST_FIGURES)


class ResultCard(Saved):
    """The metadata of a result's Parquet file."""

    model_config = ConfigDict(extra="allow")
    format: Any
    result: str = "similarity"
    provenance: dict[str, Any] = Field(default_factory=dict)
