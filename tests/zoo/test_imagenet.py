"""The classes of ImageNet-1k, against what timm and torchvision say of them."""

from importlib.resources import files
from pathlib import Path

import pytest

from vitrail.zoo.imagenet import imagenet_classes, imagenet_ids, imagenet_numbers, is_imagenet


def test_the_list_is_that_of_other_packages() -> None:
    info = pytest.importorskip("timm.data").ImageNetInfo("imagenet-1k")
    assert list(imagenet_ids()) == info.label_names()
    for number, identity in enumerate(imagenet_ids()):
        description = info.label_name_to_description(identity)
        assert number in imagenet_numbers(description)
        for name in description.split(", "):
            assert imagenet_numbers(name), name


def test_every_class_is_known_by_number_and_by_name() -> None:
    for number, (identity, name) in enumerate(zip(imagenet_ids(), imagenet_classes(), strict=True)):
        assert imagenet_numbers(identity) == {number}
        assert number in imagenet_numbers(name)
        assert number in imagenet_numbers(name.replace(" ", "_"))
    doubled = [name for name in imagenet_classes() if len(imagenet_numbers(name)) > 1]
    assert doubled == ["crane", "maillot"]


def test_a_first_name_goes_before_a_further_name_of_another_and_case_may_tell_two_apart() -> None:
    assert imagenet_numbers("harp") == {594}
    assert imagenet_numbers("mouth harp") == {593}
    assert (imagenet_numbers("Cardigan"), imagenet_numbers("cardigan")) == ({264}, {474})
    assert imagenet_numbers("panda") == {387, 388}


@pytest.mark.parametrize("name", ["", ",", "n99999999", "7", "unicorn", "tench, goldfish"])
def test_what_is_none_of_them(name: str) -> None:
    assert imagenet_numbers(name) == frozenset()


def test_the_list_says_where_its_words_come_from() -> None:
    first = files("vitrail.zoo").joinpath("imagenet_classes.txt").read_text(encoding="utf-8").splitlines()[0]
    notice = Path(__file__).parents[2].joinpath("NOTICE").read_text(encoding="utf-8")
    assert all("WordNet" in text and "Princeton" in text for text in (first, notice))


def test_only_the_whole_list_in_its_order_is_imagenet() -> None:
    assert is_imagenet(imagenet_classes())
    assert is_imagenet(imagenet_ids())
    assert not is_imagenet(imagenet_classes()[:999])
    assert not is_imagenet(imagenet_classes()[::-1])
