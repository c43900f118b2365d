"""What is counted, for Prometheus: requests, refusals, batches, and where the seconds go."""

from collections.abc import Callable

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, ProcessCollector, generate_latest
from prometheus_client.exposition import CONTENT_TYPE_PLAIN_0_0_4

from vitrail import __version__

CONTENT_TYPE = CONTENT_TYPE_PLAIN_0_0_4
_SECONDS = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0)
_SIZES = (1, 2, 4, 8, 16, 32, 64, 128, 256)


class Metrics:
    """The counters of one server process; a new process begins at 0, which Prometheus expects."""

    def __init__(self, is_ready: Callable[[], bool], generation: Callable[[], int]) -> None:
        self._registry = registry = CollectorRegistry()
        ProcessCollector(registry=registry)
        about = Gauge("vitrail_info", "The version that serves.", ["version"], registry=registry)
        about.labels(__version__).set(1)
        Gauge("vitrail_ready", "1 when the model answers.", registry=registry).set_function(lambda: float(is_ready()))
        Gauge("vitrail_model_generation", "Counts the models that were swapped in.", registry=registry).set_function(
            lambda: float(generation())
        )
        self._requests = Counter(
            "vitrail_requests", "Answered requests; 499 is a client that left.", ["route", "code"], registry=registry
        )
        self._request_seconds = Histogram(
            "vitrail_request_seconds",
            "From the head of a request to the end of its answer.",
            ["route"],
            buckets=_SECONDS,
            registry=registry,
        )
        self._refused = Counter("vitrail_refused", "Requests sent away with 503.", ["reason"], registry=registry)
        self._waiting = Gauge("vitrail_queue_depth", "Images that wait or are in work.", registry=registry)
        self._batch = Histogram("vitrail_batch_size", "Images computed together.", buckets=_SIZES, registry=registry)
        self._stage = Histogram(
            "vitrail_stage_seconds",
            "Seconds of an image in the queue, the decoder and the model.",
            ["stage"],
            buckets=_SECONDS,
            registry=registry,
        )
        self._restarts = Counter(
            "vitrail_worker_restarts", "Times the model's process was replaced.", registry=registry
        )

    def request(self, route: str, code: int, seconds: float) -> None:
        """One more answer."""
        self._requests.labels(route, str(code)).inc()
        self._request_seconds.labels(route).observe(seconds)

    def refused(self, reason: str) -> None:
        """One more that was sent away."""
        self._refused.labels(reason).inc()

    def waiting(self, count: int) -> None:
        """So many images wait or are in work now."""
        self._waiting.set(count)

    def batch(self, size: int) -> None:
        """So many images were computed together."""
        self._batch.observe(size)

    def seconds(self, stage: str, seconds: float) -> None:
        """How long an image was in the queue, the decoder or the model."""
        self._stage.labels(stage).observe(seconds)

    def restarted(self) -> None:
        """The model's process ended and is started again."""
        self._restarts.inc()

    def text(self) -> bytes:
        """All of it, as Prometheus reads it."""
        return generate_latest(self._registry)
