"""Run folders, the HTML report and figures for papers."""

from layerscope.report.page import report
from layerscope.report.paper import figures
from layerscope.report.runs import RunRecord, find_runs, read_run, write_run

__all__ = ["RunRecord", "figures", "find_runs", "read_run", "report", "write_run"]
