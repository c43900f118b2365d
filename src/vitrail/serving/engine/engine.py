"""The keeper of the model: a worker is there, another takes its place when it ends, and a swap loses no question."""

import asyncio
import logging
from collections.abc import Coroutine
from typing import Any

from vitrail.config.serve import ServeConfig
from vitrail.serving.engine.job import Job, Nobody, Observer, Refused
from vitrail.serving.engine.process import WorkerProcess
from vitrail.serving.engine.room import Room
from vitrail.serving.looks.kinds import BATCHED
from vitrail.serving.looks.reply import Reply, error_reply

_FIRST_PAUSE, _LONGEST_PAUSE = 0.1, 5.0
# A worker that lived so long did not die of its start.
_SETTLED = 10.0
# Before anything is measured.
_GUESS = 0.1

_log = logging.getLogger("vitrail.serving.engine")


class Engine:
    """Answers questions about images with a model that lives in another process."""

    def __init__(self, config: ServeConfig, generation: int = 0) -> None:
        """Processes that load the model are counted on from `generation`; no two of them have the same number."""
        self.config = config
        self.observe: Observer = Nobody()
        """Who counts; set it before the start."""
        self.facts: dict[str, Any] | None = None
        """What the model is; None until the first is ready."""
        self.failure: tuple[str, int] | None = None
        """Why the newest model could not be loaded, in a sentence, and the exit code of that; None when it could."""
        # Looks may wait longer than images, because a page asks for several at once.
        self._rooms = {"images": Room(config.queue_seconds, _GUESS), "looks": Room(config.deadline / 2, _GUESS)}
        self._worker: WorkerProcess | None = None
        self._generation = generation
        self._is_stopped = False
        self._swap = asyncio.Lock()
        self._started, self._settled = asyncio.Event(), asyncio.Event()
        self._workers: set[WorkerProcess] = set()
        self._tasks: set[asyncio.Task[None]] = set()

    @property
    def state(self) -> str:
        """loading, ready, swapping, restarting or stopped."""
        if self._is_stopped:
            return "stopped"
        if self._living() is None:
            return "loading" if self.facts is None else "restarting"
        return "swapping" if self._swap.locked() else "ready"

    async def start(self) -> None:
        """Begin; the first worker is then on its way."""
        self._spawn(self._keep())
        await self._started.wait()

    async def wait_ready(self, timeout: float) -> bool:
        """Wait until the first model is loaded; False at once where its process could not load it."""
        try:
            await asyncio.wait_for(self._settled.wait(), timeout)
        except TimeoutError:
            return False
        return self._living() is not None

    def ensure_room(self, kind: str) -> None:
        """Refuse a question before its body is read, where it could not be answered soon."""
        if self._is_stopped:
            raise Refused("draining", 1.0)
        if self._living() is None:
            raise Refused("loading" if self.facts is None else "broken", 1.0)
        self._room(kind).ensure()

    async def ask(self, job: Job, deadline: float) -> Reply:
        """Answer a job before `deadline`, a time of the loop; a task that is cancelled drops it."""
        if len(job.body) > self.config.max_bytes:
            return error_reply(
                413, "too_large", f"The body has {len(job.body):,} bytes; wanted at most {self.config.max_bytes:,}."
            )
        self.ensure_room(job.kind)
        worker, room = self._living(), self._room(job.kind)
        assert worker is not None, "there is no room without a worker"
        try:
            with room.taken():
                self._tell_waiting()
                async with asyncio.timeout_at(deadline):
                    return await worker.ask(job, deadline)
        except TimeoutError:
            raise Refused("late", max(1.0, room.seconds_each)) from None
        finally:
            self._tell_waiting()

    async def swap(self) -> bool:
        """Read the model anew in a second worker, which then takes over; one that cannot be read changes nothing.

        Says whether that is done.
        """
        async with self._swap:
            worker = await self._launched()
            if worker is None or not await worker.is_ready():
                await self._give_up(worker, "the new model is not served")
                return False
            old = self._worker
            self._use(worker)
            if old is not None:
                self._spawn(self._let_go(old))
            return True

    async def stop(self) -> None:
        """End every process; who still waits is told."""
        self._is_stopped = True
        for task in list(self._tasks):
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        await asyncio.gather(*(worker.end() for worker in self._workers))
        self._workers.clear()

    async def _keep(self) -> None:
        """See to it that there is a worker, with growing pauses where it does not last."""
        pause, loop = _FIRST_PAUSE, asyncio.get_running_loop()
        while True:
            if self._living() is None:
                worker = await self._launched()
                self._started.set()
                is_ready = worker is not None and await worker.is_ready()
                # A swap may have brought another meanwhile.
                if worker is not None and is_ready and self._living() is None:
                    self._use(worker)
                else:
                    await self._give_up(worker, "the model cannot be loaded")
                self._settled.set()
            began = loop.time()
            while (living := self._living()) is not None:
                await living.gone.wait()
                # A swap lets one go that another has taken the place of.
                if living is self._worker:
                    _log.error("the worker %d ended; another is started", living.pid)
                    await self._let_go(living)
            self.observe.restarted()
            pause = _FIRST_PAUSE if loop.time() - began > _SETTLED else pause
            await asyncio.sleep(pause)
            pause = min(2 * pause, _LONGEST_PAUSE)

    async def _launched(self) -> WorkerProcess | None:
        """A process that loads the next generation, or none where the system gives us none."""
        worker = WorkerProcess(self.config, self._told)
        self._generation += 1
        try:
            await worker.launch(self._generation)
        except OSError as error:
            _log.error("no process can be started: %s", error)
            return None
        self._workers.add(worker)
        return worker

    def _use(self, worker: WorkerProcess) -> None:
        """From now on questions go to this one."""
        self._worker, self.facts, self.failure = worker, worker.facts, None
        self._rooms["images"].expect(float(worker.hello["seconds"]))
        self._rooms["looks"].expect(float(worker.hello["look_seconds"]))

    async def _give_up(self, worker: WorkerProcess | None, what: str) -> None:
        if worker is None:
            return
        if worker.failure is not None:
            self.failure = worker.failure
        if worker.is_gone and not self._is_stopped:
            reason = worker.failure[0] if worker.failure else "its process ended before it was ready"
            _log.error("%s%s: %s", what, ", the old one goes on" if self._living() else "", reason)
        await self._let_go(worker)

    async def _let_go(self, worker: WorkerProcess) -> None:
        await worker.finish()
        self._workers.discard(worker)

    def _told(self, header: dict[str, Any]) -> None:
        """What a worker tells beside its answers."""
        if header["is"] == "done":
            self._rooms[header["lane"]].measure(header["count"], header["since"], header["ended"])
            if header["lane"] == "images":
                self.observe.batch(header["count"])
        elif header["is"] == "facts" and (living := self._living()) is not None:
            self.facts = living.facts
        for stage, seconds in header.get("spent", {}).items():
            self.observe.seconds(stage, seconds)

    def _tell_waiting(self) -> None:
        self.observe.waiting(sum(room.count for room in self._rooms.values()))

    def _living(self) -> WorkerProcess | None:
        return None if self._worker is None or self._worker.is_gone else self._worker

    def _room(self, kind: str) -> Room:
        return self._rooms["images" if kind in BATCHED else "looks"]

    def _spawn(self, work: Coroutine[Any, Any, None]) -> None:
        task = asyncio.create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
