"""The model in a process of its own, and the one who keeps it running."""

from vitrail.serving.engine.engine import Engine
from vitrail.serving.engine.job import Job, Observer, Refused
from vitrail.serving.looks.reply import Reply

__all__ = ["Engine", "Job", "Observer", "Refused", "Reply"]
