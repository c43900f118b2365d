"""Every test runs with the shapes in the signatures checked."""

from pathlib import Path

import pytest
from hypothesis import HealthCheck, settings
from jaxtyping import install_import_hook

# Before any test imports the package: annotated functions then check their tensors' shapes on every call.
install_import_hook("vitrail.models", "beartype.beartype")

# The first draw of a text strategy builds a table of characters, which takes longer than hypothesis likes.
settings.register_profile("vitrail", suppress_health_check=[HealthCheck.too_slow], deadline=None)
settings.load_profile("vitrail")

FIXTURES = Path(__file__).parent / "data" / "fixtures"


@pytest.fixture
def fixtures() -> Path:
    """Inputs and outputs of the original code."""
    return FIXTURES
