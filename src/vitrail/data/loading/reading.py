"""How many processes read the images of a source."""

from vitrail.config.checks import count
from vitrail.data.loading.resident import can_be_resident
from vitrail.data.sources.source import Source
from vitrail.runtime.cores import usable_cores

_MOST = 16


def reading_workers(asked: int | None, source: Source, *, on_gpu: bool, processes: int = 1) -> int:
    """As many as asked for; else none for a set that lives in memory, and on a CPU few, because the network needs it.

    The processes of a run that are on one machine share its cores.
    """
    if asked is not None:
        count("workers", asked)
        return asked
    if can_be_resident(source):
        return 0
    mine = max(1, usable_cores() // processes)
    return min(mine, _MOST) if on_gpu else max(1, mine // 4)
