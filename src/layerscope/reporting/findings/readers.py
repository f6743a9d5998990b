"""Which function reads which table: a table is known by its columns."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from layerscope.errors import log
from layerscope.reporting.findings import claims, cuts, healing, layers, maps, tuning
from layerscope.reporting.findings.finding import Finding

if TYPE_CHECKING:
    import pandas

    from layerscope.results import Record

DAMAGED = (TypeError, ValueError, KeyError, IndexError, AttributeError, ArithmeticError)
Reader = Callable[["pandas.DataFrame", "Record"], list[Finding]]
# The first reader whose columns a table has reads it.
READERS: tuple[tuple[frozenset[str], Reader], ...] = tuple(
    (frozenset(columns.split()), reader)
    for columns, reader in (
        ("row_model row_layer column_model column_layer measure value low high p_value baseline n", layers.similarity),
        ("block first_layer last_layer strength p_value reason", layers.blocks),
        ("layer score majority low high metric n macs", cuts.truncation),
        ("first last score whole low high metric n", cuts.skips),
        ("blocks removed change change_low score low high parameters metric chosen", cuts.advice),
        ("blocks removed before after low high metric chosen", healing.healed_advice),
        ("metric uncut cut healed tokens", healing.healing),
        ("blocks metric score parameters", cuts.cut),
        ("layer nu", tuning.specialty),
        ("strategy method score low high seeds trainable parameters metric", tuning.study),
        ("seed metric score majority trainable parameters", tuning.trainings),
        ("strategy trainable forward backward", tuning.costs),
        ("layer target_layer method split relative n", maps.alignment),
        ("truth noise method relative", maps.synthetic),
        ("layer method score low high target_score metric n", maps.injection),
        ("claim verdict", claims.claims),
        ("model task metric score", cuts.score),
    )
)


def findings_of(record: Record) -> list[Finding]:
    """What the tables of a record say, the answers to what was asked first."""
    findings: list[Finding] = []
    for frame in frames_of(record).values():
        if len(frame) and (reader := _reader(frame)) is not None:
            try:
                findings += reader(frame, record)
            except DAMAGED:  # somebody else's table, with our columns and not our values
                log.warning(
                    "A table of %r is not as layerscope writes it; the summary leaves it out.", record.title[:60]
                )
    return sorted(dict.fromkeys(findings), key=lambda finding: -finding.weight)


def frames_of(record: Record) -> dict[str, pandas.DataFrame]:
    """The tables of a record, whether it was read from its folder or just made."""
    return {**{name: result.frame for name, result in record.results.items()}, **record.tables}


def _reader(frame: pandas.DataFrame) -> Reader | None:
    columns = [str(name) for name in frame.columns]
    for needed, reader in READERS:
        if needed <= set(columns):
            return reader
    return layers.curve if columns[:2] == ["model", "layer"] and len(columns) > 2 else None
