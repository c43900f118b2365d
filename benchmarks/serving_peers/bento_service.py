"""An exported file under BentoML: `bentoml serve bento_service:Classifier`, the file in PEER_FILE."""

import os
from pathlib import Path
from typing import Any

import bentoml
from answering import Answering

# The default, and more than any client waits: BentoML drops what it thinks will take longer, and its documents advise
# to raise the limit where answers are refused.
_LONGEST_MS = 60_000
_BATCH = int(os.environ.get("PEER_BATCH", "8"))
# BentoML has no limit unless one is set; with one it refuses what comes beyond it.
_MOST = os.environ.get("PEER_CONCURRENCY")


@bentoml.service(workers=1, traffic={"timeout": 60, **({"max_concurrency": int(_MOST)} if _MOST else {})})
class Classifier:
    """One process, adaptive batching; a request brings a list of one image."""

    def __init__(self) -> None:
        self._answering = Answering(os.environ["PEER_FILE"])

    @bentoml.api(batchable=True, max_batch_size=_BATCH, max_latency_ms=_LONGEST_MS)
    def predict(self, image: list[Path]) -> list[dict[str, Any]]:
        """Answers of a batch."""
        return self._answering([path.read_bytes() for path in image])
