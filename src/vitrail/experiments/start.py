"""What a fine-tuning starts from: a network, adapted to its new classes and image size."""

from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

from vitrail.config import ModelConfig, Preprocessing
from vitrail.evaluation.subject import known_preprocessing
from vitrail.training.start import adapted
from vitrail.weights.checkpoint import Checkpoint
from vitrail.weights.fingerprint import fingerprint
from vitrail.weights.load import read_checkpoint


@dataclass(frozen=True)
class Start:
    """A source that has been read."""

    source: str
    """A path is absolute, because a resume may come from elsewhere."""
    checkpoint: Checkpoint

    @property
    def image_size(self) -> tuple[int, int]:
        """Of the network as it is stored."""
        return self.checkpoint.config.image_size

    @cached_property
    def fingerprint(self) -> str:
        """A hash of the weights as they are stored."""
        return fingerprint(self.checkpoint.config, self.checkpoint.state)

    @property
    def knows_classes(self) -> bool:
        """Whether it has learnt from labels; one of our own runs says when it has not."""
        return not (self.checkpoint.provenance or {}).get("masking")

    def preprocessing(self, name: str | None) -> Preprocessing:
        """The preset of this name, else what travels with the weights."""
        return known_preprocessing(self.checkpoint.preprocessing, name, self.source)

    def network(self, classes: tuple[str, ...], image_size: tuple[int, int]) -> ModelConfig:
        """The network that will be trained: with a zero head, unless the classes are the very same (3.2)."""
        return adapted(self.checkpoint, classes, image_size).config


def read_start(source: str) -> Start:
    """Read whatever `load_model` takes."""
    checkpoint = read_checkpoint(source)
    return Start(str(Path(source).resolve()) if Path(source).exists() else source, checkpoint)
