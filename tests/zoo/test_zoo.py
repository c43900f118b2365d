import pytest

from vitrail.errors import UsageError
from vitrail.models.cost import measure_cost
from vitrail.zoo import ZOO, ZooRow, zoo_row

# Depth, width, MLP width, heads: Table 1 of the paper, AugReg for Ti and S, big_vision for g and G.
SIZES = {
    "ti": (12, 192, 768, 3),
    "s": (12, 384, 1536, 6),
    "b": (12, 768, 3072, 12),
    "l": (24, 1024, 4096, 16),
    "h": (32, 1280, 5120, 16),
    "g": (40, 1408, 6144, 16),
    "bigg": (48, 1664, 8192, 16),
}
VITS = [
    ("ti", 16, "ViT-Ti/16"),
    ("s", 16, "ViT-S/16"),
    ("s", 32, "ViT-S/32"),
    ("b", 8, "ViT-B/8"),
    ("b", 16, "ViT-B/16"),
    ("b", 32, "ViT-B/32"),
    ("l", 14, "ViT-L/14"),
    ("l", 16, "ViT-L/16"),
    ("l", 32, "ViT-L/32"),
    ("h", 14, "ViT-H/14"),
    ("h", 16, "ViT-H/16"),
    ("g", 14, "ViT-g/14"),
    ("bigg", 14, "ViT-G/14"),
]


@pytest.mark.parametrize(("size", "patch", "name"), VITS)
def test_vision_transformers_have_the_sizes_of_the_paper(size: str, patch: int, name: str):
    row = zoo_row(f"vit-{size}{patch}")
    config = row.config
    assert (config.depth, config.width, config.mlp_width, config.num_heads) == SIZES[size]
    assert config.patch_size == (patch, patch)
    assert config.image_size == (224, 224)
    assert config.num_classes == 1000
    assert row.name == name


def test_the_network_of_the_study_notes():
    row = zoo_row("vit-tiny-mnist")
    config = row.config
    assert (config.image_size, config.patch_size, config.channels, config.num_classes) == ((28, 28), (7, 7), 1, 10)
    assert (config.width, config.depth, config.num_heads, config.mlp_width) == (16, 2, 2, 64)
    assert row.parameters == 7_562 + 16 + 17 * 16
    assert "7,562" in row.note


# One of each kind always; the others take seconds each.
_QUICK = {"vit-b16", "vit-tiny-mnist", "r50-vit-b16", "bit-r50x1"}


@pytest.mark.parametrize(
    "row",
    [pytest.param(row, id=key, marks=() if key in _QUICK else pytest.mark.slow) for key, row in ZOO.items()],
)
def test_stored_costs_are_the_measured_ones(row: ZooRow):
    cost = measure_cost(row.config)
    assert (row.parameters, row.macs) == (cost.parameters, cost.macs)


@pytest.mark.parametrize("key", list(ZOO))
def test_rows_are_found_by_their_key_and_say_what_they_are(key: str):
    row = zoo_row(key)
    assert row.key == key
    assert row.name
    assert row.about


def test_names_are_not_shared():
    assert len({row.name for row in ZOO.values()}) == len(ZOO)


def test_an_unknown_key_gets_a_suggestion():
    with pytest.raises(UsageError, match=r"^Unknown model 'vit_b16'\. Did you mean 'vit-b16'"):
        zoo_row("vit_b16")
    with pytest.raises(UsageError, match=r"^Unknown model 'alexnet'\. Choose from vit-ti16, "):
        zoo_row("alexnet")
