"""From configs to a network that learns without labels."""

from vitrail.config import MaskingConfig, Preprocessing, VitConfig
from vitrail.models.masked.autoencoder import MaskedAutoencoder
from vitrail.models.masked.network import MaskedNetwork
from vitrail.models.masked.patch_prediction import MaskedPatchPrediction

METHODS: dict[str, type[MaskedNetwork]] = {"patches": MaskedPatchPrediction, "autoencoder": MaskedAutoencoder}


def build_masked(config: VitConfig, masking: MaskingConfig, preprocessing: Preprocessing) -> MaskedNetwork:
    """Build the network around the encoder that a config describes."""
    return METHODS[masking.method](config, masking, preprocessing)
