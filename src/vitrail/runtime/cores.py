"""How many cores this process may use."""

import os


def usable_cores() -> int:
    """Of the machine, or of what a container or a job leaves of it."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
