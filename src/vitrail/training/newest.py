"""The checkpoint that all processes of a run go on from."""

from vitrail.errors import DataError
from vitrail.runtime.processes import Processes
from vitrail.training import checkpoint as checkpoints
from vitrail.training.folder import RunFolder


def newest_of_all(folder: RunFolder, processes: Processes) -> checkpoints.Checkpoint | None:
    """The newest that the first process finds whole, read by every one; none where there is none yet.

    One that another process cannot read ends the run, because it may not choose an older one by itself.
    """
    found: list[checkpoints.Checkpoint] = []

    def name() -> list[str]:
        if not checkpoints.listed(folder.checkpoints):
            return []
        found.append(checkpoints.newest(folder.checkpoints))
        return [found[0].path.name, str(found[0].state["sha256"])]

    chosen = processes.first_says(name)
    with processes.together():
        if chosen and not found:
            found.append(checkpoints.read(folder.checkpoints / chosen[0]))
            if str(found[0].state["sha256"]) != chosen[1]:
                raise DataError("this process reads another checkpoint of that name", where=str(found[0].path))
    return found[0] if found else None
