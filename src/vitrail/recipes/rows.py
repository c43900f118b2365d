"""The kinds of rows: a line of Table 3, of Table 4, of AugReg, one of our own, and a rule that needs the data."""

from dataclasses import dataclass, field

from vitrail.config import AugmentConfig, MaskingConfig, Preprocessing, VitConfig, preset
from vitrail.config.training import Optimizer


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
    """A data set and the learning rates to sweep on held-out training data (Table 4, or AugReg's)."""

    data: str
    steps: int
    learning_rates: tuple[float, ...]
    warmup_steps: int
    held_out: float
    """Share of the training set on which the learning rate is selected."""
    image_size: int = 384
    prefix: str = "finetune"
    score: Score | None = None
    source: str = "Table 4"

    @property
    def name(self) -> str:
        """What people type after `--recipe`."""
        return f"{self.prefix}-{self.data}"


@dataclass(frozen=True, kw_only=True)
class AugRegRow:
    """A network, a data set and a point of AugReg's grid of 28."""

    model: str
    data: str
    epochs: int
    level: str
    """Of RandAugment and mixup, from "none" to "strong2"."""
    weight_decay: float = 0.1
    drop: float = 0.0
    """Dropout and stochastic depth: the grid has 0 for both, or 0.1 for both."""
    score: Score | None = None
    source: str = "AugReg"

    @property
    def name(self) -> str:
        """What people type after `vitrail train`."""
        return f"augreg-{self.model}-{self.data}-{self.epochs}ep"


@dataclass(frozen=True, kw_only=True)
class SmallRow:
    """Training from scratch on small data, as we tuned it."""

    name: str
    data: str
    model: VitConfig
    """Its number of classes gives way to that of the data."""
    lr: float
    weight_decay: float
    batch_size: int
    epochs: int
    augment: AugmentConfig
    held_out: float | None
    preprocessing: Preprocessing = field(default_factory=lambda: preset("google"))
    optimizer: Optimizer = "adam"
    label_smoothing: float = 0.0
    average: float = 0.0
    for_gpu: bool = False
    """Computed in bfloat16 and compiled."""
    score: Score | None = None
    source: str = "ours"


@dataclass(frozen=True, kw_only=True)
class RuleRow:
    """Fine-tuning that is decided by the size of the data."""

    name: str
    data: str
    learning_rates: tuple[float, ...]
    needs: str
    """What has to be known of the data."""
    function: str
    """What turns it into a recipe."""
    score: None = None
    source: str


@dataclass(frozen=True, kw_only=True)
class MaskedRow:
    """Learning without labels: what is hidden, from what network, for how long."""

    name: str
    data: str
    model: VitConfig
    masking: MaskingConfig
    lr: float
    weight_decay: float
    batch_size: int
    augment: AugmentConfig
    preprocessing: Preprocessing
    held_out: float | None
    epochs: int | None = None
    steps: int | None = None
    """In place of epochs."""
    warmup_steps: int = 0
    warmup_share: float = 0.0
    """In place of warmup_steps."""
    optimizer: Optimizer = "adam"
    betas: tuple[float, float] = (0.9, 0.999)
    clip: float | None = None
    for_gpu: bool = False
    """Computed in bfloat16 and compiled."""
    score: Score | None = None
    source: str


Row = PretrainRow | FinetuneRow | AugRegRow | SmallRow | MaskedRow | RuleRow
