"""Images that are dear to decode, in processes of their own: `python -m vitrail.serving.engine.heavy`.

Some decoders keep every other thread of their process waiting, for seconds where a file of a few bytes stands for
millions of pixels, and what they take of memory is not given back at once. Here they hold up nobody: the process steps
back when others want the processor, does one image at a time, and is ended when nobody waits for the answer any more.
"""

import contextlib
import os
import signal
import subprocess
import sys
import threading
from pathlib import Path
from typing import Any, BinaryIO, cast

import numpy as np

from vitrail.config import DecodePolicy, Preprocessing, from_json, to_json
from vitrail.data.decoding.decode import decode
from vitrail.data.transforms.fit_image import fit_image, normalised
from vitrail.errors import DamagedImage, DataError, NoMemory, TooManyPixels
from vitrail.prediction.predictor import Prepared
from vitrail.serving.engine.frames import FrameError, packed, read_frame
from vitrail.serving.looks.loaded import Loaded
from vitrail.serving.looks.prepare import WHERE

_COURTESY = 10
# What a large image took goes back to the system, and is not kept for the next.
_GIVING_BACK = {"MALLOC_MMAP_THRESHOLD_": str(2**20)}
_MOST_BODY = 2**31


class DecoderEnded(Exception):
    """A process that ended while it decoded: the image may have done that, or the system, which needed its memory."""


class HeavyDecoder:
    """A process that decodes, started at the first image if not before, and again after it was ended.

    For one thread at a time.
    """

    def __init__(self, loaded: Loaded) -> None:
        described = loaded.predictor.described
        assert described.preprocessing is not None, "the backend is opened only where it is known"
        self._preprocessing = described.preprocessing
        self._first = {
            "mode": "L" if described.config.channels == 1 else "RGB",
            "size": list(loaded.predictor.size),
            "preprocessing": to_json(self._preprocessing),
            "max_pixels": loaded.max_pixels,
        }
        self._process: subprocess.Popen[bytes] | None = None

    def start(self) -> None:
        """Start the process ahead of the first image, which then does not wait for it."""
        self._living()

    def prepare(self, body: bytes, seconds: float) -> Prepared:
        """Decode and fit as prediction does, within some seconds; a DataError says what is wrong with the image."""
        process, is_late = self._living(), threading.Event()
        assert process.stdin and process.stdout
        end = threading.Timer(seconds, lambda: (is_late.set(), process.kill()))
        end.daemon = True
        end.start()
        try:
            _write(process.stdin, {}, body)
            frame = read_frame(cast("BinaryIO", process.stdout), _MOST_BODY)
        except (OSError, FrameError):
            frame = None
        finally:
            end.cancel()
        if frame is None:
            self.end()
            if is_late.is_set():
                raise DataError("decoding it took too long", wanted="another image", where=WHERE)
            raise DecoderEnded(f"the process of the decoder ended ({process.returncode})")
        header, pixels = frame
        if "wrong" in header:
            raise _told(header)
        seen = np.frombuffer(pixels, dtype=header["dtype"]).reshape(header["shape"])
        return Prepared(normalised(seen, self._preprocessing), seen, header["frames"])

    def end(self) -> None:
        """End the process, if there is one."""
        if self._process is not None:
            self._process.kill()
            self._process.communicate()
            self._process = None

    def _living(self) -> subprocess.Popen[bytes]:
        if self._process is None or self._process.poll() is not None:
            self.end()
            command = [sys.executable, "-P", "-m", "vitrail.serving.engine.heavy"]
            self._process = subprocess.Popen(
                command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, env={**os.environ, **_GIVING_BACK}
            )
            assert self._process.stdin
            _write(self._process.stdin, self._first)
        return self._process


_KINDS = {kind.__name__: kind for kind in (TooManyPixels, DamagedImage, NoMemory)}


def _told(header: dict[str, Any]) -> DataError:
    """What the process found wrong, as it would be raised here."""
    kind = _KINDS.get(header["kind"], DataError)
    return kind(header["wrong"], wanted=header["wanted"], where=header["where"], fix=header["fix"])


def _write(stream: Any, header: dict[str, Any], body: bytes = b"") -> None:
    for piece in packed(header, body):
        stream.write(piece)
    stream.flush()


def _serve(asked: BinaryIO, answers: BinaryIO) -> None:
    """Answer until there is nobody to answer."""
    first = read_frame(asked, 0)
    if first is None:
        return
    told, size = first[0], tuple(first[0]["size"])
    preprocessing = from_json(Preprocessing, told["preprocessing"], where="the first frame")
    policy = DecodePolicy(max_pixels=told["max_pixels"])
    while (frame := read_frame(asked, _MOST_BODY)) is not None:
        try:
            decoded = decode(frame[1], told["mode"], where=WHERE, policy=policy)
            seen = np.ascontiguousarray(fit_image(decoded.image, size, preprocessing))
        except DataError as error:
            wrong = {"wrong": error.came, "wanted": error.wanted, "where": error.where, "fix": error.fix}
            _write(answers, {**wrong, "kind": type(error).__name__})
            continue
        _write(answers, {"shape": seen.shape, "dtype": seen.dtype.str, "frames": decoded.frames}, seen.tobytes())
        del decoded, seen


def main() -> None:
    """Serve standard input and output."""
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGUSR1):
        signal.signal(number, signal.SIG_IGN)
    os.nice(_COURTESY)
    # Where memory runs out, Linux ends this process and not the one of the model.
    with contextlib.suppress(OSError):
        Path("/proc/self/oom_score_adj").write_text("1000", encoding="ascii")
    answers = os.fdopen(os.dup(1), "wb")
    # What libraries print belongs into the log.
    os.dup2(2, 1)
    with contextlib.suppress(FrameError, OSError):
        _serve(sys.stdin.buffer, answers)
    # Not `sys.exit`: there is nothing to tidy up, and nobody who waits.
    os._exit(0)


if __name__ == "__main__":
    main()
