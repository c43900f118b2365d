"""Networks that learn without labels: what is hidden of an image is predicted from the rest."""

from vitrail.models.masked.build import MaskedNetwork, build_masked

__all__ = ["MaskedNetwork", "build_masked"]
