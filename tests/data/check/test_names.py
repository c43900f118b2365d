import os
import unicodedata

import pytest

from vitrail.data.check.names import strange_names

NFC, NFD = (unicodedata.normalize(form, "고양이.jpg") for form in ("NFC", "NFD"))


@pytest.mark.parametrize(
    ("name", "reason"),
    [
        (os.fsdecode(b"latin-\xe9.jpg"), "has bytes that are not UTF-8"),
        ("line\nbreak.jpg", "has control characters"),
        ("bell\a.jpg", "has control characters"),
        ("c1\x85.jpg", "has control characters"),
        ("photo\u202egpj.exe", "has marks that turn the direction of text"),
        (" front.jpg", "begins or ends with a space"),
        ("behind.jpg ", "begins or ends with a space"),
        ("n" * 201, "is longer than 200 bytes"),
        ("고" * 67 + ".jpg", "is longer than 200 bytes"),
        ("..", "leads out of its folder"),
    ],
)
def test_a_strange_name_is_told_with_the_reason(name: str, reason: str):
    assert list(strange_names([f"cat/{name}"])) == [(f"cat/{name}", reason)]
    assert (name, reason) in list(strange_names([f"{name}/a.jpg", f"{name}/b.jpg"]))


@pytest.mark.parametrize(
    "name",
    [
        "plain.jpg",
        "a space.jpg",
        "it's.jpg",
        '"quoted".jpg',
        "고양이.jpg",
        "👩‍👩‍👧.jpg",
        "a..b.jpg",
        "<b>.jpg",
        "n" * 200,
    ],
)
def test_unusual_is_not_strange(name: str):
    assert list(strange_names([f"cat/{name}"])) == []


def test_a_strange_folder_is_told_once_and_not_for_each_file():
    paths = [f"train/ cat/{number}.jpg" for number in range(10)]
    assert list(strange_names(paths)) == [("train/ cat", "begins or ends with a space")]


@pytest.mark.parametrize("pair", [("a.JPG", "A.jpg"), (NFC, NFD)])
def test_twins_in_one_folder(pair: tuple[str, str]):
    first, second = pair
    told = list(strange_names([f"cat/{first}", f"cat/{second}"]))
    assert told == [(f"cat/{second}", f"differs from {first!r} only in capitals or Unicode spelling")]
    assert list(strange_names([f"cat/{first}", f"dog/{second}"])) == []


def test_the_same_path_twice_is_no_twin():
    assert list(strange_names(["cat/a.jpg", "cat/a.jpg"])) == []


def test_absolute_paths_end():
    assert list(strange_names(["/data/cat/a.jpg"])) == []
