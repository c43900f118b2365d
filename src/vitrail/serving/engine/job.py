"""What is asked of the model, and the ways in which it is not answered."""

from dataclasses import dataclass
from typing import Any, Literal, Protocol

Reason = Literal["busy", "loading", "draining", "broken", "late"]


@dataclass(frozen=True)
class Job:
    """One question: a kind that `vitrail.serving.looks` answers, its options, and the image as it came."""

    kind: str
    options: dict[str, Any]
    body: bytes = b""


class Refused(Exception):
    """There is no answer now; the one who asks may come again."""

    def __init__(self, reason: Reason, retry_after: float) -> None:
        super().__init__(f"{reason}, again after {retry_after:.2g} s")
        self.reason, self.retry_after = reason, retry_after


class Observer(Protocol):
    """Who counts what happens."""

    def waiting(self, count: int) -> None:
        """So many images wait or are in work now."""

    def batch(self, size: int) -> None:
        """So many images were computed together."""

    def seconds(self, stage: str, seconds: float) -> None:
        """How long an image was in the queue, the decoder or the model."""

    def restarted(self) -> None:
        """The model's process ended and is started again."""


class Nobody:
    """An observer who looks away."""

    def waiting(self, count: int) -> None: ...
    def batch(self, size: int) -> None: ...
    def seconds(self, stage: str, seconds: float) -> None: ...
    def restarted(self) -> None: ...
