"""A model that is ready to answer: the fastest backend for it, and the torch network where one can be looked into."""

import threading
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np

from vitrail.config.serve import ServeConfig
from vitrail.exporting.exported import is_exported
from vitrail.prediction import Predictor
from vitrail.prediction.answers import ensure_finite
from vitrail.serving.looks.facts import abilities, model_facts, network_config

if TYPE_CHECKING:
    from vitrail.models import Classifier

# So many that the fastest backend pays, whatever it takes to make it.
_MANY_IMAGES = 1_000_000


class Network:
    """The torch network, loaded by the first thread that needs it; torch is not imported before."""

    def __init__(self, load: "Callable[[], Classifier]") -> None:
        self._load, self._lock = load, threading.Lock()
        self._model: Classifier | None = None

    def __call__(self) -> "Classifier":
        with self._lock:
            if self._model is None:
                self._model = self._load()
            return self._model

    def parameters(self) -> int:
        """How many numbers were learnt."""
        return sum(parameter.numel() for parameter in self().parameters())


@dataclass
class Loaded:
    """One generation of a served model."""

    predictor: Predictor
    network: Network | None
    """None for an exported file, which holds no network that could be looked into."""
    facts: dict[str, Any]
    max_pixels: int
    fixed: dict[tuple[str, int], Any] = field(default_factory=dict)
    """Answers that need no image, computed once."""

    @property
    def generation(self) -> int:
        return self.facts["generation"]

    def run(self, images: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Logits and features of prepared images; a network that gives no numbers gives no answer."""
        logits, features = self.predictor.backend.run(images)
        ensure_finite(logits, self.facts["name"])
        return logits, features

    def without_network(self) -> None:
        """Go on with the backend alone, where the network cannot be loaded beside it."""
        self.network = None
        self.facts["can"] = abilities(network_config(self.predictor), has_network=False)


def load(config: ServeConfig, generation: int = 1) -> Loaded:
    """Open a source for serving; a VitrailError says why it cannot be."""
    predictor = Predictor(
        config.source,
        backend=config.backend,
        device=config.device,
        image_size=config.image_size,
        preprocessing=config.preprocessing,
        classes=config.classes,
        batch_size=config.batch_size,
        images=_MANY_IMAGES,
    )
    network = None if is_exported(config.source) else Network(lambda: predictor.backend.network or _read(config))
    facts = model_facts(config, predictor, generation, has_network=network is not None)
    return Loaded(predictor, network, facts, config.max_pixels)


def _read(config: ServeConfig) -> "Classifier":
    from vitrail.runtime.device import find_device
    from vitrail.weights.load import load_model

    model = load_model(config.source, image_size=config.image_size, preprocessing=config.preprocessing)
    return model.to(find_device(config.device)).eval()
