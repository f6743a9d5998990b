"""The shape that every result has, curves over layers, and records: results kept in a folder."""

from layerscope.results.curve import Curve
from layerscope.results.provenance import provenance_of
from layerscope.results.record import Record
from layerscope.results.record_files import find_records, read_record, write_record
from layerscope.results.result import Result, Table, Tabled, read_table
from layerscope.results.spreadsheet import csv_text

__all__ = [
    "Curve",
    "Record",
    "Result",
    "Table",
    "Tabled",
    "csv_text",
    "find_records",
    "provenance_of",
    "read_record",
    "read_table",
    "write_record",
]
