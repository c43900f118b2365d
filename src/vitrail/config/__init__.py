"""Small frozen dataclasses: values only, no torch."""

from vitrail.config.augment import AugmentConfig
from vitrail.config.backbone import Backbone, ConvLayerConfig, ConvStemConfig, ResNetConfig
from vitrail.config.bit import BitConfig
from vitrail.config.checks import pair, times
from vitrail.config.data import DataConfig
from vitrail.config.decoding import DecodePolicy
from vitrail.config.masking import MaskingConfig
from vitrail.config.peer import PeerConfig, PeerName, peer_name
from vitrail.config.preprocessing import PRESETS, Preprocessing, preset
from vitrail.config.run import RunConfig
from vitrail.config.serve import ServeConfig
from vitrail.config.settings import Names, Settings, read_texts, read_values
from vitrail.config.training import OptimConfig, ScheduleConfig, TrainConfig
from vitrail.config.values import from_json, replace, to_json
from vitrail.config.vit import VitConfig

ModelConfig = VitConfig | BitConfig | PeerConfig

__all__ = [
    "PRESETS",
    "AugmentConfig",
    "Backbone",
    "BitConfig",
    "ConvLayerConfig",
    "ConvStemConfig",
    "DataConfig",
    "DecodePolicy",
    "MaskingConfig",
    "ModelConfig",
    "Names",
    "OptimConfig",
    "PeerConfig",
    "PeerName",
    "Preprocessing",
    "ResNetConfig",
    "RunConfig",
    "ScheduleConfig",
    "ServeConfig",
    "Settings",
    "TrainConfig",
    "VitConfig",
    "from_json",
    "pair",
    "peer_name",
    "preset",
    "read_texts",
    "read_values",
    "replace",
    "times",
    "to_json",
]
