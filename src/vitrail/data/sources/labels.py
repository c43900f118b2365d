"""What is in each image: one class, any number of them, or a share of each."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from torch import Tensor


@dataclass(frozen=True)
class Labels:
    """Class numbers of all images in one array; with several per image, i owns values[offsets[i]:offsets[i + 1]].

    Shares (images, classes) are what a teacher made of images with one class each, and `values` its first guesses.
    """

    values: np.ndarray
    num_classes: int
    offsets: np.ndarray | None = None
    shares: np.ndarray | None = None

    @classmethod
    def of(cls, classes_per_image: list[int] | np.ndarray, num_classes: int) -> "Labels":
        """One class per image."""
        return cls(np.asarray(classes_per_image, dtype=np.int64), num_classes)

    @classmethod
    def of_many(cls, classes_per_image: list[list[int]], num_classes: int) -> "Labels":
        """Any number of classes per image."""
        counts = [len(classes) for classes in classes_per_image]
        offsets = np.concatenate([[0], np.cumsum(counts, dtype=np.int64)]).astype(np.int64)
        values = np.asarray([number for classes in classes_per_image for number in classes], dtype=np.int64)
        return cls(values, num_classes, offsets)

    @classmethod
    def joined(cls, parts: Sequence["Labels"]) -> "Labels":
        """One behind the other; where one has shares, a known class has all of its image."""
        values, classes = np.concatenate([part.values for part in parts]), parts[0].num_classes
        if all(part.shares is None for part in parts):
            return cls.of(values, classes)
        return cls(values, classes, shares=np.concatenate([part._rows() for part in parts]))

    @property
    def is_multi(self) -> bool:
        """Whether an image may have several classes, or none."""
        return self.offsets is not None

    def __len__(self) -> int:
        return len(self.values) if self.offsets is None else len(self.offsets) - 1

    def classes_of(self, index: int) -> tuple[int, ...]:
        """The class numbers of one image."""
        if self.offsets is None:
            return (int(self.values[index]),)
        return tuple(int(value) for value in self.values[self.offsets[index] : self.offsets[index + 1]])

    def counts(self) -> np.ndarray:
        """Images per class."""
        return np.bincount(self.values, minlength=self.num_classes)

    def select(self, indices: np.ndarray) -> "Labels":
        """The labels of some images, in the order given."""
        if self.offsets is None:
            shares = None if self.shares is None else self.shares[indices]
            return Labels(self.values[indices], self.num_classes, shares=shares)
        return Labels.of_many([list(self.classes_of(int(index))) for index in indices], self.num_classes)

    def targets(self, indices: np.ndarray) -> "Tensor":
        """What a loss takes: class numbers (batch,), or rows of zeros, ones or shares (batch, classes)."""
        # Here and not above, so that looking at data needs no torch.
        import torch

        if self.shares is not None:
            return torch.from_numpy(self.shares[indices].astype(np.float32))
        if self.offsets is None:
            return torch.from_numpy(self.values[indices])
        rows = torch.zeros(len(indices), self.num_classes)
        for row, index in enumerate(indices):
            rows[row, list(self.classes_of(int(index)))] = 1.0
        return rows

    def _rows(self) -> np.ndarray:
        if self.shares is not None:
            return self.shares
        rows = np.zeros((len(self), self.num_classes), np.float16)
        rows[np.arange(len(self)), self.values] = 1
        return rows
