"""From any source of images to batches: exact, and never silently wrong."""

from vitrail.data.labels import Labels
from vitrail.data.open import OpenOptions, open_data
from vitrail.data.source import Arrays, Part, Source

__all__ = ["Arrays", "Labels", "OpenOptions", "Part", "Source", "open_data"]
