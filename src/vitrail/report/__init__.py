"""Run records become one page that opens anywhere."""

from vitrail.report.summary import SeedResult, Summary, TriedRate
from vitrail.report.write import write_report

__all__ = ["SeedResult", "Summary", "TriedRate", "write_report"]
