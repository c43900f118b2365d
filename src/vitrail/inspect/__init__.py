"""What a network has learnt, as numbers: filters, positions, attention, what each layer would answer."""

from vitrail.inspect.distance import attention_distance, distances_of_images, uniform_distance
from vitrail.inspect.filters import Filters, embedding_filters, principal_filters
from vitrail.inspect.lens import logit_lens
from vitrail.inspect.maps import attention_maps, reading_maps
from vitrail.inspect.occlusion import Covers, covers, occlusion
from vitrail.inspect.positions import position_similarity
from vitrail.inspect.rollout import attention_rollout

__all__ = [
    "Covers",
    "Filters",
    "attention_distance",
    "attention_maps",
    "attention_rollout",
    "covers",
    "distances_of_images",
    "embedding_filters",
    "logit_lens",
    "occlusion",
    "position_similarity",
    "principal_filters",
    "reading_maps",
    "uniform_distance",
]
