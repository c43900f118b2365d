"""Every test runs with the shapes in the signatures checked."""

from pathlib import Path

import pytest
from jaxtyping import install_import_hook

# Before any test imports the package: annotated functions then check their tensors' shapes on every call.
install_import_hook("vitrail.models", "beartype.beartype")

FIXTURES = Path(__file__).parent / "data" / "fixtures"


@pytest.fixture
def fixtures() -> Path:
    """Inputs and outputs of the original code."""
    return FIXTURES
