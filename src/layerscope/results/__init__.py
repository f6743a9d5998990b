"""The shape that every result has, curves over layers, and records: results kept in a folder."""

from layerscope.results.curve import Curve
from layerscope.results.finding import Finding, NextStep
from layerscope.results.records import Record, find_records, read_record, record_folder, write_record
from layerscope.results.result import Result, Table, Tabled, csv_text, provenance_of, read_table

__all__ = [
    "Curve",
    "Finding",
    "NextStep",
    "Record",
    "Result",
    "Table",
    "Tabled",
    "csv_text",
    "find_records",
    "provenance_of",
    "read_record",
    "read_table",
    "record_folder",
    "write_record",
]
