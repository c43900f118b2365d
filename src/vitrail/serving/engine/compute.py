"""What the threads of the worker do: decode images, run the model over batches, look at one thing at a time."""

import contextlib
import functools
import hashlib
import math
import os
import sys
import threading
import time
import traceback
from collections import OrderedDict, deque
from collections.abc import Callable

import numpy as np

from vitrail.config.serve import ServeConfig
from vitrail.config.spelling import OPTIONS
from vitrail.errors import DamagedImage, DataError, NoMemory, TooManyPixels, UsageError, VitrailError, marked, spelled
from vitrail.prediction.predictor import Prepared
from vitrail.serving.engine.board import Board, Task
from vitrail.serving.engine.heavy import DecoderEnded, HeavyDecoder
from vitrail.serving.engine.watch import Watch
from vitrail.serving.looks.answers import answer
from vitrail.serving.looks.kinds import BATCHED
from vitrail.serving.looks.loaded import Loaded
from vitrail.serving.looks.look import look
from vitrail.serving.looks.prepare import prepare, weigh
from vitrail.serving.looks.reply import NotAvailable, Reply, error_reply, json_reply

Send = Callable[..., None]

# A model that fails so often in a row will not come round; a new process may.
_MOST_FAILURES = 3
_NEWEST = 0.2
# An image that ends its decoder so often is to blame itself; so many others are remembered meanwhile.
_MOST_ENDED, _REMEMBERED = 3, 1000


class Computer:
    """A loaded model and the threads' work on it; what comes of it is sent."""

    def __init__(self, config: ServeConfig, loaded: Loaded, board: Board, watch: Watch, send: Send) -> None:
        self._config, self._loaded, self._board, self._watch, self._send = config, loaded, board, watch, send
        self._most_together = config.batch_size
        self._seconds_each = 0.0
        self._failures = 0
        self._ended = _Ended()
        self._decoders: deque[HeavyDecoder] = deque()
        """Those at rest, the one that worked last at the end."""

    def warm_up(self) -> float:
        """Run the model before anybody waits for it; returns seconds per image.

        Batches of 1, 2, 4 and so on up to the largest: a backend that compiles does so now, for every size it needs.
        Those of a slow model stay as small as the ones that were tried.
        """
        network = self._loaded.predictor.described.config
        image = np.zeros((1, network.channels, *self._loaded.predictor.size), dtype=np.float32)
        size, self._most_together = 1, 1
        while True:
            self._seconds_each = self._timed(np.repeat(image, size, axis=0)) / size
            self._most_together = size
            if size == self._config.batch_size or self._seconds_each * size > self._config.queue_seconds / 2:
                break
            size = min(2 * size, self._config.batch_size)
        self._limit_batch()
        return self._seconds_each

    def weigh_forever(self) -> None:
        """The thread that looks at what has come, so that what is refused for its size has not waited for others."""
        while True:
            task = self._board.next_to_weigh()
            with self._watch.working():
                if not self._is_set_aside(task):
                    self._board.add(task)

    def decode_forever(self) -> None:
        """A thread that decodes."""
        while True:
            task = self._board.next_to_decode()
            with self._watch.working():
                image = self._decoded(task)
            self._board.decoded(task, image)

    def decode_heavy_forever(self) -> None:
        """A thread that lets a process decode what would hold up the others."""
        while True:
            task = self._board.next_heavy(self._config.max_pixels)
            assert task.weight is not None, "only such are set aside"
            decoder, started = self._decoder(), time.monotonic()
            seconds = min(task.deadline - started, self._config.wedged)
            image = self._decoded(task, functools.partial(decoder.prepare, seconds=seconds))
            self._board.measured(task.weight, time.monotonic() - started)
            self._decoders.append(decoder)
            self._board.decoded(task, image)

    def start_decoder(self) -> None:
        """Start one process that decodes, so that the first large image does not wait for it."""
        decoder = self._decoder()
        # Where there is no process to be had, the first image says so.
        with contextlib.suppress(OSError):
            decoder.start()
        self._decoders.append(decoder)

    def compute_forever(self) -> None:
        """The thread that computes."""
        while True:
            tasks = self._board.next_work()
            with self._watch.working():
                if tasks[0].kind in BATCHED:
                    self._run_batch(tasks)
                else:
                    self._look(tasks[0])

    def _decoder(self) -> HeavyDecoder:
        """One at rest whose process lives most likely, or a new one."""
        try:
            return self._decoders.pop()
        except IndexError:
            return HeavyDecoder(self._loaded)

    def _is_set_aside(self, task: Task) -> bool:
        """Whether an image is too dear to be decoded here; it then waits for others of its kind, or is refused."""
        try:
            weight = weigh(self._loaded, task.body)
        except Exception:
            return False  # What is wrong is said where it is decoded.
        if not weight.is_heavy:
            return False
        waits = self._board.set_aside(task, weight, self._config.queue_seconds)
        if waits:
            again = max(1, math.ceil(waits - self._config.queue_seconds))
            message = (
                f"As many large images wait as can be decoded in time; ask again in {again} s, or send a smaller one."
            )
            self._reply(task, error_reply(503, "busy", message, {"Retry-After": str(again)}))
        return True

    def _decoded(self, task: Task, decode: Callable[[bytes], Prepared] | None = None) -> Prepared | None:
        # One that is cancelled meanwhile lets its bytes go.
        started, body = time.monotonic(), task.body
        try:
            image = prepare(self._loaded, body) if decode is None else decode(body)
        except (DecoderEnded, NoMemory) as error:
            tell(f"an image was not decoded: {said(error)}")
            self._reply(task, _not_decoded(self._ended.count(body)))
            return None
        except DataError as error:
            # Where the time of an image is over, that was told already, and is not the fault of the image.
            if not task.is_dead(time.monotonic()):
                self._reply(task, _unreadable(error))
            return None
        except Exception:
            self._reply(task, _unforeseen())
            return None
        self._ended.forget(body)
        task.decode_seconds = time.monotonic() - started
        return image

    def _run_batch(self, tasks: list[Task]) -> None:
        started = time.monotonic()
        try:
            logits, features = self._loaded.run(np.stack([task.image.pixels for task in tasks if task.image]))
        except Exception as error:
            self._failed(tasks, error)
            return
        self._failures = 0
        seconds = time.monotonic() - started
        self._seconds_each += _NEWEST * (seconds / len(tasks) - self._seconds_each)
        self._limit_batch()
        for place, task in enumerate(tasks):
            spent = self._spent(task, started, seconds)
            self._reply(task, self._answered(task, logits[place], features[place], spent), spent)
        self._tell(tasks, "images")

    def _answered(self, task: Task, logits: np.ndarray, features: np.ndarray, spent: dict[str, float]) -> Reply:
        assert task.image is not None
        try:
            found = answer(self._loaded, task.kind, task.options, logits, features, task.image.frames)
            return json_reply(found | {"seconds": spent} if task.kind == "predictions" else found)
        except VitrailError as error:
            return _refusal(error)
        except Exception:
            return _unforeseen()

    def _look(self, task: Task) -> None:
        started = time.monotonic()
        try:
            reply = look(self._loaded, task.kind, task.options, task.image)
        except VitrailError as error:
            reply = _refusal(error)
        except Exception:
            reply = _unforeseen()
        self._reply(task, reply, self._spent(task, started, time.monotonic() - started))
        self._tell([task], "looks")

    def _failed(self, tasks: list[Task], error: Exception) -> None:
        """Try each for itself, so that one spoils nothing for others; end where the model fails again and again."""
        if len(tasks) > 1:
            for task in tasks:
                self._run_batch([task])
            return
        self._failures += 1
        self._reply(tasks[0], _broken(error) if isinstance(error, VitrailError) else _unforeseen())
        # As after an error on a GPU, which no later run survives.
        if self._failures >= _MOST_FAILURES and not isinstance(error, VitrailError):
            tell(f"the model failed {self._failures} times in a row, so its process ends")
            os._exit(1)

    def _limit_batch(self) -> None:
        """A batch of a slow model takes no longer than what may wait, so that nobody waits for strangers' images."""
        fitting = int(self._config.queue_seconds / max(self._seconds_each, 1e-9))
        self._board.batch_limit = max(1, min(self._most_together, fitting))

    def _timed(self, images: np.ndarray) -> float:
        # The first run allocates and compiles.
        self._loaded.run(images)
        started = time.monotonic()
        self._loaded.run(images)
        return time.monotonic() - started

    def _spent(self, task: Task, started: float, seconds: float) -> dict[str, float]:
        waited = max(0.0, started - task.asked - task.decode_seconds)
        return {"queue": round(waited, 6), "decode": round(task.decode_seconds, 6), "model": round(seconds, 6)}

    def _reply(self, task: Task, reply: Reply, spent: dict[str, float] | None = None) -> None:
        header = {"is": "reply", "number": task.number, "status": reply.status, "type": reply.content_type}
        self._send({**header, "headers": reply.headers, "spent": spent or {}}, reply.body)

    def _tell(self, tasks: list[Task], lane: str) -> None:
        # How long an image waited for others that were set aside says nothing of the queue.
        since = min(task.asked if task.weight is None else task.ready_at for task in tasks)
        self._send({"is": "done", "lane": lane, "count": len(tasks), "since": since, "ended": time.monotonic()})


class _Ended:
    """How often an image has ended its decoder, without an answer between; for all threads."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._counts: OrderedDict[bytes, int] = OrderedDict()

    def count(self, body: bytes) -> int:
        """It has done so once more; returns how often that was."""
        digest = hashlib.sha256(body).digest()
        with self._lock:
            found = self._counts.pop(digest, 0) + 1
            self._counts[digest] = found
            if len(self._counts) > _REMEMBERED:
                self._counts.popitem(last=False)
            return found

    def forget(self, body: bytes) -> None:
        """It was decoded after all."""
        if self._counts:
            with self._lock:
                self._counts.pop(hashlib.sha256(body).digest(), None)


def tell(message: str) -> None:
    """A line for those who run the server."""
    print(f"vitrail worker: {message}", file=sys.stderr, flush=True)


def said(error: Exception) -> str:
    """What an error says to those who run the server: it was started at the command line."""
    return spelled(marked(error), OPTIONS)


def _unreadable(error: DataError) -> Reply:
    if isinstance(error, TooManyPixels):
        return error_reply(413, "too_large", said(error))
    if isinstance(error, DamagedImage):
        return error_reply(400, "damaged_image", said(error))
    return error_reply(400, "unreadable_image", said(error))


def _not_decoded(times: int) -> Reply:
    """The system may have ended the decoder for its memory, which goes better later; an image that does so never."""
    if times >= _MOST_ENDED:
        message = f"The image: decoding it ended the decoder {times} times in a row; wanted another image."
        return error_reply(400, "unreadable_image", message)
    message = "The decoder ended before the image was decoded; ask again in 1 s."
    return error_reply(503, "broken", message, {"Retry-After": "1"})


def _refusal(error: VitrailError) -> Reply:
    if isinstance(error, NotAvailable):
        return error_reply(404, "not_available", said(error))
    if isinstance(error, UsageError):
        return error_reply(400, "bad_option", said(error))
    return _broken(error)


def _broken(error: VitrailError) -> Reply:
    """Not the fault of the one who asked, and not over soon."""
    return error_reply(503, "broken", said(error), {"Retry-After": "60"})


def _unforeseen() -> Reply:
    """What nobody thought of is for the log; the one who asked is told that it was not their fault."""
    tell(f"an answer failed\n{traceback.format_exc()}")
    return error_reply(
        503, "broken", "The model could not answer this; the server's log says why.", {"Retry-After": "1"}
    )
