"""What is wrong with a data set, before training."""

from vitrail.data.check.examine import check
from vitrail.data.check.findings import Findings
from vitrail.data.check.opening import open_splits
from vitrail.data.check.preflight import preflight

__all__ = ["Findings", "check", "open_splits", "preflight"]
