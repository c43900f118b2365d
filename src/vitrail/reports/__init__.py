"""Run records become one page that opens anywhere."""

from vitrail.reports.summary import SeedResult, Summary, TriedRate
from vitrail.reports.write import write_report

__all__ = ["SeedResult", "Summary", "TriedRate", "write_report"]
