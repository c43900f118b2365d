"""The model in a process of its own, and the one who keeps it running."""

from vitrail.serve.engine.engine import Engine
from vitrail.serve.engine.job import Job, Observer, Refused
from vitrail.serve.looks.reply import Reply

__all__ = ["Engine", "Job", "Observer", "Refused", "Reply"]
