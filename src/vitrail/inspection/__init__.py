"""What a network has learnt, as numbers: filters, positions, attention, what each layer would answer."""

from vitrail.inspection.distance import attention_distance, distances_of_images, uniform_distance
from vitrail.inspection.filters import Filters, embedding_filters, principal_filters
from vitrail.inspection.lens import logit_lens
from vitrail.inspection.maps import attention_maps, reading_maps
from vitrail.inspection.occlusion import Covers, covers, occlusion
from vitrail.inspection.positions import position_similarity
from vitrail.inspection.rollout import attention_rollout

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
