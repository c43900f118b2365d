"""Networks that learn without labels: what is hidden of an image is predicted from the rest."""

from vitrail.models.masked.build import build_masked
from vitrail.models.masked.network import MaskedNetwork, Seen

__all__ = ["MaskedNetwork", "Seen", "build_masked"]
