"""A few images as the network was given them, with what it says about each."""

from dataclasses import dataclass
from pathlib import PurePath

import numpy as np
import torch
from torch import Tensor

from vitrail.config import Preprocessing
from vitrail.report.glyphs import Naming

_ONE_PERCENT = 0.01


@dataclass(frozen=True)
class Shown:
    """Images that are drawn."""

    images: Tensor
    """What the network is fed: normalised, (batch, channels, height, width)."""
    preprocessing: Preprocessing
    names: tuple[str, ...]
    """Where a person finds each."""
    guesses: np.ndarray
    """The class that the network takes each for."""
    confidence: np.ndarray
    """How sure it is of that."""
    labels: tuple[str, ...] | None
    """Names of the classes of the network."""

    def __len__(self) -> int:
        return len(self.images)

    @property
    def pictures(self) -> np.ndarray:
        """The same in colours 0 .. 1, (batch, height, width, 3)."""
        mean, std = (
            torch.tensor(value).view(1, -1, 1, 1) for value in (self.preprocessing.mean, self.preprocessing.std)
        )
        if len(mean[0]) != self.images.shape[1]:
            mean, std = mean.mean(dim=1, keepdim=True), std.mean(dim=1, keepdim=True)
        pixels = (self.images.cpu().float() * std + mean).clamp(0, 1).permute(0, 2, 3, 1).numpy()
        return pixels.repeat(3, axis=-1) if pixels.shape[-1] == 1 else pixels

    def named(self) -> dict[int, str]:
        """The names of the classes that are guessed, where there are some."""
        if self.labels is None:
            return {}
        return {int(number): self.labels[number] for number in self.guesses}

    def answer(self, place: int, naming: Naming) -> str:
        """The guess for one image, for people."""
        sure = float(self.confidence[place])
        share = f"{sure:.0%}" if sure >= _ONE_PERCENT else f"{sure:.1%}"
        return f"{naming(int(self.guesses[place]))} {share}" if sure else ""

    def facts(self) -> list[dict[str, object]]:
        """One record for each image."""
        return [
            {
                "image": name,
                "file": PurePath(name).name,
                "guess": int(guess),
                "label": None if self.labels is None else self.labels[guess],
                "probability": float(sure),
            }
            for name, guess, sure in zip(self.names, self.guesses, self.confidence, strict=True)
        ]
