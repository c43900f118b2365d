"""The command line: one module per verb, imported when it is asked for."""

from vitrail.cli.main import main

__all__ = ["main"]
