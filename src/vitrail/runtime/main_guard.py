"""A script without a main guard runs again in each process that it starts without a fork."""

import multiprocessing
import os

from vitrail.errors import UsageError, setting

RAN_AGAIN = 78
"""How a process ends that was only to read images, and found itself training."""


def end_if_run_again() -> None:
    """End the process where it is one that runs its script again; who started it says why, in a sentence."""
    if getattr(multiprocessing.current_process(), "_inheriting", False):
        os._exit(RAN_AGAIN)


def missing_guard() -> UsageError:
    """What to tell then."""
    return UsageError(
        "the processes that read images died before they began, as they do when a script has no main guard: "
        "each of them runs the script again",
        fix='Put what the script does under `if __name__ == "__main__":`, or read in the main process '
        f"({setting('data.workers', 0)}).",
    )
