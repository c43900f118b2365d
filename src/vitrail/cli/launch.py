"""Several processes of one command whose words all of them read: `--processes N` of verbs that measure."""

import os
from collections.abc import Sequence

from vitrail.errors import UsageError


def split_processes(words: Sequence[str]) -> tuple[int | None, list[str]]:
    """The number after `--processes`, if it is there, and the other words."""
    rest: list[str] = []
    found: str | None = None
    waiting = iter(words)
    for word in waiting:
        name, equals, value = word.partition("=")
        if name == "--processes":
            found = value if equals else next(waiting, "")
        else:
            rest.append(word)
    if found is None:
        return None, rest
    if not found.isdecimal() or not 1 <= int(found) <= 1024:
        raise UsageError(f"--processes is {found!r}", wanted="a number from 1 to 1024")
    if "RANK" in os.environ:
        raise UsageError(
            "--processes is given to one of several processes", fix="Leave it out: torchrun has its --nproc-per-node."
        )
    return int(found), rest


def launch(verb: str, words: Sequence[str], processes: int) -> None:
    """Run `vitrail VERB WORDS` in so many processes on this machine, until all have ended."""
    from vitrail.runtime.launch import launch as start

    start("vitrail", [verb, *words], processes)
