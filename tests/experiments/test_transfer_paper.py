"""The numbers of Tables 2 and 5, and which of their rows belong above a table of one's own."""

from dataclasses import replace

import pytest

from vitrail.experiments.transfer_paper import REAL, TABLE_2, TABLE_5, network_name, paper_rows
from vitrail.recipes import RECIPES
from vitrail.zoo import ZOO, zoo_row


def numbers(network: str, pretrained_on: str) -> dict[str, float]:
    (row,) = (row for row in TABLE_5 if (row.network, row.pretrained_on) == (network, pretrained_on))
    return {score.data: score.mean for score in row.scores}


def test_table_5_column_by_column() -> None:
    assert numbers("ViT-B/16", "ImageNet-21k") == {
        "cifar10": 98.95, "cifar100": 91.67, "imagenet": 83.97, REAL: 88.35, "flowers102": 99.38, "oxford-pets": 94.43,
    }  # fmt: skip
    assert numbers("ViT-L/32", "ImageNet")["imagenet"] == 71.16
    assert numbers("ViT-H/14", "JFT")["oxford-pets"] == 97.56
    assert numbers("ViT-H/14", "ImageNet") == {}
    assert len(TABLE_5) == 15


def test_the_recipes_quote_the_same_numbers() -> None:
    quoted = 0
    for data, mean in numbers("ViT-B/16", "ImageNet-21k").items():
        row = RECIPES.get(f"finetune-{data}")
        if row is not None:
            assert row.score is not None
            assert row.score.value == mean
            quoted += 1
    assert quoted == 5


def test_table_2_comes_with_the_deviation_of_imagenet() -> None:
    first = TABLE_2[0].score("imagenet")
    assert first is not None
    assert (first.mean, first.std) == (88.55, 0.04)
    assert all((score.std is None) == (score.data != "imagenet") for row in TABLE_2 for score in row.scores)
    assert [row.score("cifar10").mean for row in TABLE_2] == [99.50, 99.42, 99.15, 99.37]  # type: ignore[union-attr]


def test_the_rows_of_the_network_or_the_nearest() -> None:
    titles = [row.title for row in paper_rows(["ViT-B/32", None], {"cifar10"})]
    assert titles[:3] == ["ViT-H/14, JFT (Table 2)", "ViT-L/16, JFT (Table 2)", "ViT-L/16, ImageNet-21k (Table 2)"]
    assert titles[3:] == [f"ViT-B/32, {data} (Table 5)" for data in ("ImageNet", "ImageNet-21k", "JFT")]
    assert [row.title for row in paper_rows([None], {"cifar10"})][3:] == ["ViT-B/16, ImageNet-21k (Table 5)"]
    assert "BiT R152x4, JFT (Table 2)" in [row.title for row in paper_rows(["BiT R50x1"], {"cifar10"})]
    assert "BiT R152x4, JFT (Table 2)" not in titles
    assert paper_rows(["ViT-B/32"], {"photos"}) == []
    # A column that is not asked for is gone from the rows as well.
    assert all(row.score("imagenet") is None for row in paper_rows([None], {"cifar10"}))


@pytest.mark.parametrize("key", sorted(ZOO))
def test_a_network_is_known_whatever_its_head_and_size(key: str) -> None:
    row = zoo_row(key)
    assert network_name(replace(row.config, num_classes=7, image_size=(96, 64))) == row.name
    assert network_name(replace(row.config, width=row.config.width * 8)) is None
