"""The same work on every image, in this process or in several."""

import multiprocessing
import os
import signal
import warnings
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ProcessPoolExecutor, ThreadPoolExecutor, wait
from concurrent.futures.process import BrokenProcessPool
from multiprocessing.context import BaseContext
from multiprocessing.synchronize import Event
from typing import Any, NamedTuple, TypeVar

import numpy as np

from vitrail.config.checks import count
from vitrail.config.decoding import DecodePolicy
from vitrail.data.sources.source import Source
from vitrail.errors import DataError, setting
from vitrail.runtime.main_guard import missing_guard

Result = TypeVar("Result")
Advance = Callable[[int], None]
Work = Callable[[Source, DecodePolicy, np.ndarray], Result]
"""Given some images of a source; a function of a module, so that another process finds it by name."""

_PIECE = 32
# Starting processes takes seconds, in which one process has read this many images.
_WORTH_A_POOL = 500
_QUEUED_PER_WORKER = 4


class Piece(NamedTuple):
    """Some images of one of the sources."""

    source: int
    indices: np.ndarray


def pieces_of(source: int, indices: np.ndarray) -> list[Piece]:
    """Cut the images of a source into pieces of work."""
    return [Piece(source, indices[start : start + _PIECE]) for start in range(0, len(indices), _PIECE)]


def worker_count(workers: int | None, images: int) -> int:
    """How many processes to start; None means as many as there are cores, or none when there is little to do."""
    if workers is not None:
        count("workers", workers)
        return workers
    if images < _WORTH_A_POOL:
        return 0
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def over_images(
    work: Work[Result],
    sources: Sequence[Source],
    pieces: list[Piece],
    *,
    policy: DecodePolicy,
    workers: int,
    threads: bool = False,
    advance: Advance | None = None,
) -> Iterator[tuple[Piece, Result]]:
    """Do the work on every piece, in processes or in threads, and give each result when it is ready, in any order.

    What Pillow warns of is not told: oddities of files that it reads all the same.
    """
    if not workers:
        results = _here(work, sources, pieces, policy)
    else:
        results = (_in_threads if threads else _in_processes)(work, sources, pieces, policy, workers)
    for piece, result in results:
        yield piece, result
        if advance:
            advance(len(piece.indices))


def _here(
    work: Work[Result], sources: Sequence[Source], pieces: list[Piece], policy: DecodePolicy
) -> Iterator[tuple[Piece, Result]]:
    for piece in pieces:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            result = work(sources[piece.source], policy, piece.indices)
        yield piece, result


def _in_threads(
    work: Work[Result], sources: Sequence[Source], pieces: list[Piece], policy: DecodePolicy, workers: int
) -> Iterator[tuple[Piece, Result]]:
    def done(piece: Piece) -> Result:
        return work(sources[piece.source], policy, piece.indices)

    # Around all threads, because there is one list of filters for all of them.
    with warnings.catch_warnings(), ThreadPoolExecutor(workers) as pool:
        warnings.simplefilter("ignore")
        try:
            yield from zip(pieces, pool.map(done, pieces), strict=True)
        finally:
            pool.shutdown(cancel_futures=True)


def _in_processes(
    work: Work[Result], sources: Sequence[Source], pieces: list[Piece], policy: DecodePolicy, workers: int
) -> Iterator[tuple[Piece, Result]]:
    context = _context()
    begun = context.Event()
    pool = ProcessPoolExecutor(workers, context, initializer=_begin, initargs=(work, tuple(sources), policy, begun))
    waiting: dict[Future[Any], Piece] = {}
    todo = iter(pieces)
    try:
        while True:
            for piece in todo:
                waiting[pool.submit(_work_on, piece)] = piece
                # A short queue, so that a million pieces need no memory.
                if len(waiting) >= workers * _QUEUED_PER_WORKER:
                    break
            if not waiting:
                return
            done, _ = wait(waiting, return_when=FIRST_COMPLETED)
            for future in done:
                yield waiting.pop(future), future.result()
    except BrokenProcessPool:
        raise (_died(sources[0].name) if begun.is_set() else missing_guard()) from None
    finally:
        if waiting:
            # Stopped half-way: a worker may hang on a dead network drive, and is not waited for.
            for process in list((pool._processes or {}).values()):
                process.terminate()
        pool.shutdown(cancel_futures=True)


def _died(name: str) -> DataError:
    return DataError(
        "a process that reads images died, perhaps for lack of memory",
        where=name,
        fix=f"Try {setting('data.workers', 1)}, or {setting('data.workers', 0)}, which reads them in the main process.",
    )


def _context() -> BaseContext:
    """New processes come from a small server where there is one: forking this process would copy its threads' locks."""
    if "forkserver" not in multiprocessing.get_all_start_methods():
        return multiprocessing.get_context("spawn")
    context = multiprocessing.get_context("forkserver")
    # Imported once, in the server, and not by every worker.
    context.set_forkserver_preload(["vitrail.data.check.scan"])
    return context


_settings: tuple[Work[Any], tuple[Source, ...], DecodePolicy]


def _begin(work: Work[Any], sources: tuple[Source, ...], policy: DecodePolicy, begun: Event) -> None:
    global _settings
    _settings = work, sources, policy
    begun.set()
    # Ctrl-C reaches the whole group; the main process decides, and its workers say nothing.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    warnings.simplefilter("ignore")


def _work_on(piece: Piece) -> Any:
    work, sources, policy = _settings
    return work(sources[piece.source], policy, piece.indices)
