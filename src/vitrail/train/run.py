"""A run from its present step to its end: nobody else at work on it, signals heard, everything logged."""

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager

from vitrail.errors import DiskError, UsageError, notice
from vitrail.runtime.atomic import recover
from vitrail.runtime.lock import only_one
from vitrail.runtime.processes import LostProcess
from vitrail.runtime.threads import is_tiny, one_thread
from vitrail.train import checkpoint as checkpoints
from vitrail.train.finish import Outcome, finish
from vitrail.train.folder import RunFolder
from vitrail.train.log import Log, Watcher
from vitrail.train.loop import Loop
from vitrail.train.session import Session
from vitrail.train.stopping import Interrupted, Stopped, Stopping


def run(session: Session, folder: RunFolder, watcher: Watcher) -> Outcome:
    """Train, measure and keep; raises `Stopped` when a signal came, with everything saved."""
    processes = session.processes
    stopping = Stopping(is_alone=processes.ranks == 1)
    log = Log(folder.log, watcher, is_written=processes.is_first)

    def measured(images: int) -> None:
        watcher({"event": "testing", "images": images * processes.ranks})
        stopping.obey(processes)

    with _held(session, folder), stopping.listening(), one_thread(is_tiny(session.model, session.device)):
        try:
            with processes.together():
                if processes.is_first:
                    _tidy(session, folder)
                    log.rewind(session.progress.records, session.progress.events)
            _tell_move(session, watcher)
            if session.progress.step:
                log.write({"event": "resumed", "step": session.progress.step})
            Loop(session, folder, log, stopping).run()
            with stopping.interruptible():
                return finish(session, folder, log, measured)
        except DiskError:
            notice(f"The last checkpoint is whole. Once there is space: {folder.resume_command}")
            raise
        except Interrupted:
            raise Stopped(
                "stopped while the finished model was being measured",
                fix=f"To go on: {folder.resume_command}",
            ) from None
        except LostProcess as lost:
            raise LostProcess(lost.came, gone=lost.gone, fix=f"To go on: {folder.resume_command}") from None
        finally:
            log.close()


@contextmanager
def _held(session: Session, folder: RunFolder) -> Iterator[None]:
    """The lock of the run, which the first of its processes holds for all."""
    with ExitStack() as held:
        with session.processes.together():
            if session.processes.is_first:
                _ensure_plain(folder)
                held.enter_context(only_one(folder.lock, busy=f"another process is training {folder.path}"))
        yield


def _tell_move(session: Session, watcher: Watcher) -> None:
    """Another number of processes is in the log already, as an event; whoever watches hears it now."""
    last = session.progress.events[-1:]
    if last and last[0]["event"] == "processes" and last[0]["step"] == session.progress.step:
        watcher(last[0])


def _tidy(session: Session, folder: RunFolder) -> None:
    """Begin with what the checkpoint knows, and nothing that a killed process left half done."""
    _ensure_newest(session, folder)
    recover(folder.model)
    if session.resumed_from is not None:
        checkpoints.clean(folder.checkpoints, session.resumed_from)


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
    for path in (folder.lock, folder.checkpoints, folder.log):
        if path.is_symlink():
            raise UsageError("is a link", wanted="files of the run itself", where=str(path))
