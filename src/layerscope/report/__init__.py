"""Run folders, the HTML report and figures for papers."""

from layerscope.report.runs import RunRecord, find_runs, read_run, write_run

__all__ = ["RunRecord", "find_runs", "read_run", "write_run"]
