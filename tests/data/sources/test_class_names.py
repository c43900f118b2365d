"""Names for the outputs of a network that came without them."""

from pathlib import Path

import pytest

from vitrail.data.sources.class_names import read_class_names
from vitrail.errors import DataError, UsageError


@pytest.mark.parametrize("content", ["cat\ndog\n", "\ufeffcat\r\ndog\r\n", "cat  \n dog\n\n\n", "cat\ndog"])
def test_a_file_of_names(tmp_path, content) -> None:
    (tmp_path / "names.txt").write_text(content, encoding="utf-8", newline="")
    assert read_class_names(tmp_path / "names.txt") == ("cat", "dog")


def test_names_are_in_one_spelling(tmp_path) -> None:
    (tmp_path / "names.txt").write_text("e\u0301mu\n고양이\n", encoding="utf-8")
    assert read_class_names(tmp_path / "names.txt") == ("ému", "고양이")


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"", "is empty; wanted a class name per line"),
        (b" \n\n", "is empty"),
        (b"cat\n\ndog\n", "names.txt, line 2: is empty"),
        (b"cat\ndog\ncat\n", "line 3: 'cat' is also line 1"),
        (b"\xff\xfe\x00", "is no text in UTF-8"),
    ],
)
def test_files_that_are_no_list_of_names(tmp_path, content, message) -> None:
    (tmp_path / "names.txt").write_bytes(content)
    with pytest.raises(DataError, match=message):
        read_class_names(tmp_path / "names.txt")


def test_a_file_of_names_that_is_not_there(tmp_path) -> None:
    with pytest.raises(DataError, match=r"cannot be read \(No such file"):
        read_class_names(tmp_path / "names.txt")


def test_the_order_of_data_is_said_to_evaluate_alone(tmp_path, monkeypatch) -> None:
    monkeypatch.chdir(tmp_path)
    with pytest.raises(UsageError, match=r"data-order.*vitrail evaluate.*class name per line"):
        read_class_names(Path("data-order"))
    Path("data-order").write_text("cat\ndog\n", encoding="utf-8")
    assert read_class_names(Path("data-order")) == ("cat", "dog")


def test_imagenet_is_known_by_name_unless_there_is_such_a_file(tmp_path, monkeypatch) -> None:
    from torchvision.models import ViT_B_16_Weights

    monkeypatch.chdir(tmp_path)
    assert read_class_names(Path("imagenet")) == tuple(ViT_B_16_Weights.DEFAULT.meta["categories"])
    Path("imagenet").write_text("cat\ndog\n", encoding="utf-8")
    assert read_class_names(Path("imagenet")) == ("cat", "dog")
