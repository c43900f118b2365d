"""A network without weights is the network, quickly."""

import subprocess
import sys

import pytest

from vitrail.models import build
from vitrail.models.empty import build_empty
from vitrail.zoo import zoo_row


@pytest.mark.parametrize("key", ["vit-test", "vit-tiny-mnist", "vit-ti16", "r-vit-ti16"])
def test_it_has_every_tensor_and_no_memory(key) -> None:
    config = zoo_row(key).config
    empty = build_empty(config).state_dict()
    assert all(tensor.is_meta for tensor in empty.values())
    assert {name: tensor.shape for name, tensor in empty.items()} == {
        name: tensor.shape for name, tensor in build(config).state_dict().items()
    }


def test_networks_that_are_built_later_start_their_weights() -> None:
    config = zoo_row("vit-test").config
    build_empty(config)
    assert build(config).blocks[0].attention.qkv.weight.std() > 0


def test_no_compiler_is_loaded() -> None:
    code = (
        "import sys, vitrail.zoo; from vitrail.models.empty import build_empty;"
        "build_empty(vitrail.zoo.zoo_row('vit-ti16').config); sys.exit('torch._dynamo' in sys.modules)"
    )
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0
