"""Small frozen dataclasses: values only, no torch."""

from vitrail.config.preprocessing import PRESETS, Preprocessing, preset
from vitrail.config.training import OptimConfig, ScheduleConfig, TrainConfig
from vitrail.config.values import from_json, replace, to_json
from vitrail.config.vit import VitConfig, pair, times

__all__ = [
    "PRESETS",
    "OptimConfig",
    "Preprocessing",
    "ScheduleConfig",
    "TrainConfig",
    "VitConfig",
    "from_json",
    "pair",
    "preset",
    "replace",
    "times",
    "to_json",
]
