"""A run from its present step to its end: nobody else at work on it, signals heard, everything logged."""

from dataclasses import replace

from vitrail.errors import DiskError, UsageError, notice, setting
from vitrail.runtime.atomic import recover
from vitrail.runtime.lock import MovedFolder
from vitrail.runtime.processes import LostProcess, Standstill
from vitrail.runtime.threads import in_threads, own_threads
from vitrail.training import checkpoint as checkpoints
from vitrail.training.events import Measuring, ProcessesChanged, Resumed, ThreadsChanged, from_record
from vitrail.training.finish import Outcome, finish
from vitrail.training.folder import PartFolder, RunFolder
from vitrail.training.log import Log, Watcher
from vitrail.training.loop import Loop
from vitrail.training.session import Session
from vitrail.training.start import write_images
from vitrail.training.stopping import Interrupted, Stopped, Stopping
from vitrail.training.whole import held


def run(session: Session, folder: RunFolder, watcher: Watcher) -> Outcome:
    """Train, measure and keep; raises `Stopped` when a signal came, with everything saved."""
    processes = session.processes
    stopping = Stopping(is_alone=processes.ranks == 1)

    def measured(images: int) -> None:
        watcher(Measuring(step=session.progress.step, images=images * processes.ranks))
        stopping.obey(processes)

    with processes.together():
        if processes.is_first:
            _ensure_plain(folder)
    with (
        held(folder, processes, doing="training") as hold,
        stopping.listening(),
        in_threads(settled_threads(session)),
    ):
        log = Log(folder.log, watcher, is_written=processes.is_first, hold=hold)
        try:
            lost = processes.first_says(lambda: _tidied(session, folder, log))
            _tell_move(session, watcher)
            if session.progress.step:
                log.write(Resumed(step=session.progress.step))
            loop = Loop(session, folder, log, stopping)
            if lost:
                loop.tell_lost(lost)
            loop.run()
            with stopping.interruptible():
                return finish(session, folder, log, measured)
        except MovedFolder as moved:
            raise _with_command(moved, folder) from None
        except DiskError:
            if checkpoints.listed(folder.checkpoints):
                notice(f"The last checkpoint is whole. Once there is space: {folder.resume_command}")
            raise
        except Interrupted:
            raise Stopped(
                "stopped while the finished model was being measured",
                fix=f"To go on: {folder.resume_command}",
            ) from None
        except Standstill as found:
            raise _written(found, session, folder) from None
        except LostProcess as lost:
            raise LostProcess(lost.came, gone=lost.gone, fix=f"To go on: {folder.resume_command}") from None
        finally:
            log.close()


def _written(found: Standstill, session: Session, folder: RunFolder) -> Standstill:
    """A standstill with what each process was doing in `standstill.txt`: it is a fault of ours, and that finds it."""
    path = folder.path / "standstill.txt"
    if session.processes.is_first:
        path.write_text(f"{found}\n\n{found.stacks}", encoding="utf-8")
    return Standstill(
        found.hearts, fix=f"{path} has more for a report of this fault. To go on: {folder.resume_command}"
    )


def _tell_move(session: Session, watcher: Watcher) -> None:
    """Another number of processes or threads is in the log already, as an event; whoever watches hears it now."""
    for event in map(from_record, session.progress.events[-1:]):
        if isinstance(event, ProcessesChanged | ThreadsChanged) and event.step == session.progress.step:
            watcher(event)


def settled_threads(session: Session) -> int | None:
    """In how many threads the run is computed on a CPU: those it was begun with, because others round otherwise."""
    if session.device.type != "cpu":
        return None
    mine = own_threads(session.model, session.device)
    # The first process counts for all, whose machines may have more cores or fewer.
    count = session.processes.told(session.progress.threads or mine)
    session.progress = replace(session.progress, threads=count)
    if count != mine:
        notice(
            f"Computed in {count} thread{'s' if count > 1 else ''}, as before, and not in {mine}: the bits depend on "
            f"their number. {setting('allow_changed', True)} takes the other."
        )
    return count


def _with_command(moved: MovedFolder, folder: RunFolder) -> MovedFolder:
    """What happened to the folder of a run, with the command that goes on where it is now."""
    if moved.now is None:
        return moved
    # A run that is part of a whole goes on with the whole, which was moved or not.
    own = "" if isinstance(folder, PartFolder) else f": {replace(folder, path=moved.now).resume_command}"
    return MovedFolder(moved.was, moved.now, fix=f"Everything up to its last checkpoint is there; go on with it{own}.")


def _tidied(session: Session, folder: RunFolder, log: Log) -> int:
    """Begin with what the checkpoint knows, and nothing that a killed process left half done; counts lost records."""
    _ensure_newest(session, folder)
    recover(folder.model)
    write_images(session, folder)
    if session.resumed_from is not None:
        checkpoints.clean(folder.checkpoints, session.resumed_from)
    return log.rewind(session.progress.records, session.progress.events)


def _ensure_newest(session: Session, folder: RunFolder) -> None:
    """Refuse a session that was made before another process went on with the run."""
    if tuple(checkpoints.listed(folder.checkpoints)) != session.checkpoints:
        raise UsageError(
            "another process went on with this run in the meantime",
            where=str(folder.path),
            fix=f"Start again: {folder.resume_command}",
        )


def _ensure_plain(folder: RunFolder) -> None:
    """Nothing of a run is written elsewhere, as a link in its folder would have it."""
    for path in (folder.checkpoints, folder.log):
        if path.is_symlink():
            raise UsageError("is a link", wanted="files of the run itself", where=str(path))
