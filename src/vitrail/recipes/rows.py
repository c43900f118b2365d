"""The kinds of rows: a line of Table 3 and a line of Table 4."""

from dataclasses import dataclass


@dataclass(frozen=True, kw_only=True)
class Score:
    """A number the source reports for this recipe, so that a run can be judged."""

    value: float
    """Top-1 accuracy in percent."""
    what: str
    """What was measured on what."""
    source: str
    """Where the number is printed."""


@dataclass(frozen=True, kw_only=True)
class PretrainRow:
    """A network, a data set and what was tuned for them (Table 3)."""

    model: str
    data: str
    epochs: int
    lr: float
    decay: str
    weight_decay: float
    dropout: float
    score: Score | None = None
    source: str = "Table 3"

    @property
    def name(self) -> str:
        """What people type after `vitrail train`."""
        return f"{self.model}-{self.data}-{self.epochs}ep"


@dataclass(frozen=True, kw_only=True)
class FinetuneRow:
    """A data set and the learning rates to sweep on held-out training data (Table 4)."""

    data: str
    steps: int
    learning_rates: tuple[float, ...]
    warmup_steps: int
    held_out: float
    """Share of the training set on which the learning rate is selected."""
    score: Score
    source: str = "Table 4"

    @property
    def name(self) -> str:
        """What people type after `--recipe`."""
        return f"finetune-{self.data}"
