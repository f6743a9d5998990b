"""What came out of records, in sentences with numbers and how sure they are, and the command to run next."""

from layerscope.reporting.findings.finding import Finding
from layerscope.reporting.findings.readers import findings_of
from layerscope.reporting.findings.summary import Summary, summarize

__all__ = ["Finding", "Summary", "findings_of", "summarize"]
