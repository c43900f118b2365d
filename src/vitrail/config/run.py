"""Everything that decides a training run: values only."""

from dataclasses import dataclass

from vitrail.config.augment import AugmentConfig
from vitrail.config.bit import BitConfig
from vitrail.config.data import DataConfig
from vitrail.config.masking import MaskingConfig
from vitrail.config.peer import PeerConfig
from vitrail.config.preprocessing import Preprocessing
from vitrail.config.training import OptimConfig, ScheduleConfig, TrainConfig
from vitrail.config.vit import VitConfig


@dataclass(frozen=True, kw_only=True)
class RunConfig:
    """A run is a function of this, of its step and of the events in its log."""

    recipe: str
    """The row it came from."""
    model: VitConfig | BitConfig | PeerConfig
    preprocessing: Preprocessing
    data: DataConfig
    augment: AugmentConfig
    optim: OptimConfig
    schedule: ScheduleConfig
    train: TrainConfig
    masking: MaskingConfig | None = None
    """What is hidden and predicted by a run that learns without labels; none for one that learns from them."""
    start: str | None = None
    """The weights it starts from; none for fresh ones."""
    start_fingerprint: str | None = None
    """A hash of those weights, so that others in their place are noticed; none for runs from before it was kept."""
