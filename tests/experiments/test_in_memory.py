"""What a program holds in memory, stored and opened again: to the pixel and to the bit, or refused by name."""

import copy
import os
import signal
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from PIL import Image
from tests.data.conftest import state_of
from tests.experiments.conftest import SMALL
from torch import nn

import vitrail
from vitrail.cli import main
from vitrail.config import BitConfig, preset
from vitrail.data import open_data
from vitrail.errors import DataError, Notice, UsageError
from vitrail.experiments import in_memory
from vitrail.experiments.in_memory import is_in_memory, store_images, store_network
from vitrail.models import VisionTransformer
from vitrail.training.folder import RunFolder, read_run


def pixels(*shape: int, seed: int = 0) -> np.ndarray:
    return np.random.default_rng(seed).integers(0, 256, shape, dtype=np.uint8)


GREY, COLOUR = pixels(6, 5, 7), pixels(6, 5, 7, 3)
LABELS = [0, 1, 2, 2, 1, 0]


def assert_opens_as(name: str, images: Any, labels: list[str], split: str = "train") -> None:
    """A stored split has these pixels and these class names, in this order."""
    source = open_data(name, split)
    assert len(source) == len(images)
    for index, image in enumerate(images):
        stored = source.read(index)
        assert isinstance(stored, np.ndarray)
        np.testing.assert_array_equal(stored, image, strict=True)
    assert [source.classes[number] for number in source.labels.values] == labels


def refusal(call: Callable[..., str], *arguments: Any, kind: type[Exception] = UsageError) -> str:
    """What a refusal says, in one line; nothing is left behind."""
    folder = arguments[-1]
    with pytest.raises(kind) as caught:
        call(*arguments)
    assert "\n" not in str(caught.value)
    assert not folder.exists()
    return str(caught.value)


# Images.


@pytest.mark.parametrize(
    ("given", "stored"),
    [
        (GREY, GREY),
        (GREY[..., None], GREY),
        (GREY[:, None], GREY),
        (COLOUR, COLOUR),
        (COLOUR.transpose(0, 3, 1, 2), COLOUR),
        (torch.from_numpy(GREY), GREY),
        (torch.from_numpy(COLOUR).permute(0, 3, 1, 2), COLOUR),
        (np.asfortranarray(COLOUR)[::-1], COLOUR[::-1]),
        (list(torch.from_numpy(COLOUR)), COLOUR),
        (tuple(map(Image.fromarray, COLOUR)), COLOUR),
        (list(map(Image.fromarray, GREY)), GREY),
    ],
)
def test_pixels_labels_and_order_come_back(tmp_path: Path, given: Any, stored: np.ndarray) -> None:
    name = store_images((given, LABELS), tmp_path / "data")
    assert_opens_as(name, stored, list("012210"))
    assert Path(name).is_absolute()
    assert list(tmp_path.iterdir()) == [tmp_path / "data"]


def test_images_of_different_sizes_grey_and_colour(tmp_path: Path) -> None:
    images = [pixels(4, 9), pixels(8, 2, 3), pixels(5, 5, 1), pixels(3, 6, 4), pixels(70, 50, 3)]
    wanted = [images[0], images[1], images[2][..., 0], images[3].transpose(1, 2, 0), images[4]]
    for number, given in enumerate((images, np.array([*images, None], dtype=object)[:5])):
        name = store_images((given, ["a", "b", "a", "b", "c"]), tmp_path / str(number))
        assert_opens_as(name, wanted, ["a", "b", "a", "b", "c"])


def test_pillow_images_are_read_as_their_files_are(tmp_path: Path) -> None:
    images = [Image.fromarray(pixels(4, 6, 4), "RGBA"), Image.fromarray(pixels(4, 6) > 127)]
    turned = Image.fromarray(pixels(4, 6, 3))
    turned.getexif()[0x0112] = 6
    name = store_images(([*images, turned], [0, 1, 1]), tmp_path / "data")
    on_white = Image.alpha_composite(Image.new("RGBA", (6, 4), "white"), images[0]).convert("RGB")
    wanted = [np.asarray(on_white), np.asarray(images[1].convert("L")), np.rot90(np.asarray(turned), -1)]
    assert_opens_as(name, wanted, ["0", "1", "1"])


def test_splits_have_one_list_of_classes(tmp_path: Path) -> None:
    data = {
        "train": (COLOUR, ["cow", "ant", "bee", "ant", "cow", "bee"]),
        "validation": (GREY[:2], ["bee", "ant"]),
        "test": (GREY[2:], np.array(["cow", "cow", "ant", "bee"])),
    }
    name = store_images(data, tmp_path / "data")
    assert_opens_as(name, COLOUR, ["cow", "ant", "bee", "ant", "cow", "bee"])
    assert_opens_as(name, GREY[:2], ["bee", "ant"], "val")
    assert_opens_as(name, GREY[2:], ["cow", "cow", "ant", "bee"], "test")
    assert open_data(name, "test").classes == open_data(name).classes == ("ant", "bee", "cow")


def test_a_test_split_alone(tmp_path: Path) -> None:
    assert_opens_as(store_images({"test": (GREY, LABELS)}, tmp_path / "data"), GREY, list("012210"), "test")


@pytest.mark.parametrize("kind", [list, np.array, torch.tensor, lambda values: np.array(values, np.uint8)[:, None]])
def test_numbers_are_padded_so_that_names_sort_as_numbers(tmp_path: Path, kind: Callable[[list[int]], Any]) -> None:
    name = store_images((GREY, kind([11, 2, 10, 0, 5, 1])), tmp_path / "data")
    assert_opens_as(name, GREY, ["11", "02", "10", "00", "05", "01"])
    classes = open_data(name).classes
    assert len(classes) == 12
    assert list(classes) == sorted(classes)


def test_given_class_names_number_the_labels(tmp_path: Path) -> None:
    classes = ["zebra", "ant", "mule", "no such image"]
    wanted = [classes[number] for number in LABELS]
    by_number, by_name = (GREY, np.array(LABELS), classes), (GREY, wanted, classes)
    in_dict = {"train": (GREY, LABELS), "classes": np.array(classes)}
    for number, data in enumerate((by_number, by_name, in_dict)):
        name = store_images(data, tmp_path / str(number))
        assert_opens_as(name, GREY, wanted)
        assert open_data(name).classes == tuple(classes)


def test_five_thousand_images(tmp_path: Path) -> None:
    images, labels = pixels(5000, 28, 28), np.arange(5000) % 100
    source = open_data(store_images((images, labels), tmp_path / "data"))
    np.testing.assert_array_equal(np.stack([np.asarray(source.read(index)) for index in range(5000)]), images)
    np.testing.assert_array_equal(source.labels.values, labels)


def test_the_same_images_are_stored_once_and_others_are_refused(tmp_path: Path) -> None:
    folder = tmp_path / "data"
    name = store_images((COLOUR, LABELS), folder)
    before = state_of(folder)
    assert store_images((torch.from_numpy(COLOUR).permute(0, 3, 1, 2), torch.tensor(LABELS)), folder) == name
    other = COLOUR.copy()
    other[3, 2, 1, 0] ^= 1
    for data in (
        (other, LABELS),
        (COLOUR, [*LABELS[:5], 1]),
        (COLOUR, LABELS, ["a", "b", "c"]),
        {"train": (COLOUR, LABELS), "test": (COLOUR, LABELS)},
    ):
        with pytest.raises(UsageError, match="stored there"):
            store_images(data, folder)
    assert state_of(folder) == before
    (folder / "train.pixels").write_bytes(b"short")
    with pytest.raises(DataError, match="bytes"):
        store_images((COLOUR, LABELS), folder)


def test_what_lies_there_is_kept(tmp_path: Path) -> None:
    (tmp_path / "mine.txt").write_text("mine")
    for folder in (tmp_path, tmp_path / "mine.txt"):
        with pytest.raises(UsageError, match="something already"):
            store_images((GREY, LABELS), folder)
    assert list(tmp_path.iterdir()) == [tmp_path / "mine.txt"]


def test_a_kill_leaves_nothing_half(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = tmp_path / "data"
    child = os.fork()
    if not child:
        try:
            monkeypatch.setattr(in_memory, "save_index", lambda *_: os.kill(os.getpid(), signal.SIGKILL))
            store_images((GREY, LABELS), folder)
        finally:
            os._exit(1)
    _, status = os.waitpid(child, 0)
    assert os.WTERMSIG(status) == signal.SIGKILL
    assert not folder.exists()
    assert_opens_as(store_images((GREY, LABELS), folder), GREY, list("012210"))
    assert list(tmp_path.iterdir()) == [tmp_path / "data"]


class Squares(torch.utils.data.Dataset):
    """A data set of torch."""

    def __len__(self) -> int:
        return 3

    def __getitem__(self, index: int) -> tuple[torch.Tensor, int]:
        return torch.zeros(3, 4, 4, dtype=torch.uint8), index


@pytest.mark.parametrize(
    ("data", "words"),
    [
        (torch.utils.data.DataLoader(Squares()), ("DataLoader", "arrays", "path")),
        (Squares(), ("Squares", "arrays", "path")),
        ((Squares(), LABELS), ("Squares", "arrays", "path")),
        ({"train": Squares()}, ("train", "Squares")),
        (GREY, ("ndarray", "(images, labels)")),
        ([GREY, LABELS], ("list", "(images, labels)")),
        ((GREY,), ("tuple of 1",)),
        (None, ("NoneType",)),
        ({}, ("no images",)),
        ({"images": GREY, "labels": LABELS}, ("split", "images", "train")),
        ({"val": (GREY, LABELS), "valid": (GREY, LABELS)}, ("val", "twice")),
        (("photos", LABELS), ("str", "path")),
    ],
)
def test_what_is_no_pair_of_arrays_is_named(tmp_path: Path, data: Any, words: tuple[str, ...]) -> None:
    said = refusal(store_images, data, tmp_path / "data")
    assert all(word in said for word in words), said


@pytest.mark.parametrize(
    ("images", "words"),
    [
        (GREY / 255, ("float64 from 0 to 0.97", "255", "uint8")),
        (torch.from_numpy(GREY).to(torch.bfloat16) - 128, ("float32 from -128", "uint8")),
        (np.full((6, 4, 4), np.nan, np.float32), ("float32", "nan", "uint8")),
        (GREY.astype(np.int64), ("int64", "uint8")),
        (GREY > 3, ("bool", "uint8")),
        ([*GREY[:5], GREY[5] / 2], ("image 5", "float64")),
        ([*GREY[:5], None], ("image 5", "NoneType")),
        (torch.empty(6, 4, 4, dtype=torch.uint8, device="meta"), ("train", "read")),
        (pixels(6, 4, 4, 4), ("(4, 4, 4)", "(N, H, W)")),
        (pixels(6, 16), ("(16,)",)),
        (pixels(6, 2, 2, 2, 3), ("(2, 2, 2, 3)",)),
        (pixels(6, 0, 4), ("(0, 4)",)),
        (pixels(6, 3, 8, 3), ("(3, 8, 3)", "channels")),
        ([*GREY[:5], pixels(1, 9, 3)], ("image 5", "channels")),
        (pixels(0, 4, 4), ("no images",)),
        ([], ("no images",)),
        (GREY[:5], ("5 images", "6 labels")),
    ],
)
def test_images_that_cannot_be_stored_are_named(tmp_path: Path, images: Any, words: tuple[str, ...]) -> None:
    said = refusal(store_images, (images, LABELS), tmp_path / "data")
    assert all(word in said for word in words), said


@pytest.mark.parametrize(
    ("labels", "words"),
    [
        ([0, 1, 2, -1, 0, 1], ("-1", "train")),
        ([0, 1, 2, 2**40, 0, 1], ("1,099,511,627,776", "below")),
        (np.array([0, 1, np.nan, 1, 0, 1]), ("label 2", "nan")),
        ([0, 1, None, 1, 0, 1], ("label 2", "NoneType")),
        (["a", "b", float("nan"), "a", "b", "a"], ("label 2", "nan")),
        (np.array([0.0, 1, 2, 1, 0, 1]), ("label 0", "0.0", "whole")),
        (torch.eye(6), ("(6, 6)", "argmax")),
        (np.eye(6, dtype=np.int64), ("(6, 6)", "argmax")),
        (np.eye(6).tolist(), ("label 0", "list", "argmax")),
        (np.array(LABELS) > 1, ("label 0", "False")),
        (["a", "b", 1, 0, "a", "b"], ("numbers", "names")),
        (["a", "b", "", "a", "b", "a"], ("''", "empty")),
        (["a", "b", "\ud800", "a", "b", "a"], ("text",)),
        (np.int64(3), ("int64", "array")),
        ("abcabc", ("str",)),
    ],
)
def test_labels_that_are_no_classes_are_named(tmp_path: Path, labels: Any, words: tuple[str, ...]) -> None:
    said = refusal(store_images, (GREY, labels), tmp_path / "data")
    assert all(word in said for word in words), said


@pytest.mark.parametrize(
    ("data", "words"),
    [
        ((GREY, LABELS, ["a", "b"]), ("2", "known")),
        ((GREY, list("abcabc"), ["a", "b"]), ("'c'", "known")),
        ((GREY, LABELS, ["a", "b", "a"]), ("'a'", "twice")),
        ((GREY, LABELS, "abc"), ("classes", "str")),
        ((GREY, LABELS, [0, 1, 2]), ("classes", "texts")),
        ({"train": (GREY, LABELS, list("abc")), "test": (GREY, LABELS, list("abd"))}, ("differ",)),
        ({"train": (GREY, LABELS), "test": (GREY, [0, 1, 2, 3, 4, 5])}, ("test", "3")),
        ({"train": (GREY, list("abcabc")), "test": (GREY, list("abcdef"))}, ("test", "'d'")),
    ],
)
def test_classes_that_are_not_known_are_named(tmp_path: Path, data: Any, words: tuple[str, ...]) -> None:
    said = refusal(store_images, data, tmp_path / "data")
    assert all(word in said for word in words), said


def test_a_run_learns_from_stored_images(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    labels = np.arange(48) % 12
    data = {"train": (pixels(48, 8, 8), labels), "test": (pixels(12, 8, 8, seed=1), labels[:12])}
    name = store_images(data, tmp_path / "stored")
    before = state_of(tmp_path / "stored")
    words = ["vit-digits", "--data", name, "--steps", "2", "--image-size", "16", "--batch-size", "8", "--name", "two"]
    small = ["--model.width", "16", "--model.depth", "1", "--model.num-heads", "2", "--model.mlp-width", "16"]
    code = main(["train", *words, *small, "--device", "cpu", "--workers", "0"])
    assert code == 0, capsys.readouterr().err
    record = read_run(RunFolder(Path("runs/two")))
    assert record.classes == tuple(f"{number:02}" for number in range(12))
    assert record.config.model.channels == 1
    assert record.config.data.data == name
    assert state_of(tmp_path / "stored") == before


# Networks.


def network(**overrides: Any) -> VisionTransformer:
    """A network that knows its classes and where it came from."""
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(5)
        made = vitrail.create_model(SMALL, **overrides)
        torch.nn.init.normal_(made.head.weight)  # type: ignore[union-attr]
    assert isinstance(made, VisionTransformer)
    made.labels, made.preprocessing = tuple("abcdefg"), preset("google")
    made.provenance, made.metrics = {"from": "a program"}, {"accuracy": 0.5}
    return made


def assert_same_weights(found: nn.Module, wanted: nn.Module) -> None:
    assert found.state_dict().keys() == wanted.state_dict().keys()
    for name, tensor in wanted.state_dict().items():
        assert torch.equal(found.state_dict()[name], tensor), name


def test_a_network_comes_back_to_the_bit(tmp_path: Path) -> None:
    given = network().train()
    before = copy.deepcopy(given)
    name = store_network(given, tmp_path / "start")
    assert given.training
    assert_same_weights(given, before)
    found = vitrail.load_model(name)
    assert_same_weights(found, given)
    assert (found.labels, found.preprocessing) == (given.labels, given.preprocessing)
    assert (found.provenance, found.metrics) == (given.provenance, given.metrics)
    assert Path(name).is_absolute()


@pytest.mark.parametrize(
    "config",
    [
        BitConfig(width=32, blocks=(1, 1, 1, 1), image_size=(32, 32), num_classes=3),
        "torchvision:mobilenet_v3_small",
        "timm:test_vit",
        "timm:test_resnet",
    ],
)
def test_every_kind_of_network(tmp_path: Path, config: Any) -> None:
    given = vitrail.create_model(config, num_classes=3)
    name = store_network(given, tmp_path / "start")
    assert_same_weights(vitrail.load_model(name), given)
    assert store_network(vitrail.load_model(name), tmp_path / "start") == name


def test_a_compiled_network_and_one_of_half_precision(tmp_path: Path) -> None:
    given = network()
    assert_same_weights(vitrail.load_model(store_network(torch.compile(given), tmp_path / "a")), given)
    half = network().bfloat16()
    assert_same_weights(vitrail.load_model(store_network(half, tmp_path / "b")), half.float())


@pytest.mark.gpu
def test_a_network_on_a_gpu_stays_there(tmp_path: Path) -> None:
    given = network().cuda()
    assert_same_weights(vitrail.load_model(store_network(given, tmp_path / "start")), network())
    assert next(given.parameters()).is_cuda


def test_the_same_network_is_stored_once_and_another_is_refused(tmp_path: Path) -> None:
    given = network()
    name = store_network(given, tmp_path / "start")
    before = state_of(tmp_path / "start")
    assert store_network(vitrail.load_model(name), tmp_path / "start") == name
    other, renamed = network(), network()
    with torch.no_grad():
        other.head.weight[0, 0] += 1  # type: ignore[index, union-attr]
    renamed.labels = tuple("gfedcba")
    for one in (other, renamed):
        with pytest.raises(UsageError, match="another network"):
            store_network(one, tmp_path / "start")
    assert state_of(tmp_path / "start") == before


class Mine(VisionTransformer):
    """A network with an idea of its own."""

    def forward(self, images: torch.Tensor) -> torch.Tensor:
        return super().forward(images.flip(-1))


def without_norm() -> VisionTransformer:
    given = network()
    given.norm = nn.Identity()  # type: ignore[assignment]
    return given


def other_dropout() -> VisionTransformer:
    given = network()
    given.dropout = nn.Dropout(0.5)
    return given


def on_meta() -> nn.Module:
    with torch.device("meta"):
        return vitrail.create_model(SMALL)


class Rows(nn.Module):
    """Positions as nobody has them."""

    def forward(self) -> torch.Tensor:
        return torch.zeros(5, 32)


@pytest.mark.parametrize(
    ("make", "words"),
    [
        (lambda: nn.Linear(2, 2), ("torch.nn.modules.linear.Linear", "load_model", "timm:NAME")),
        (lambda: nn.DataParallel(network()), ("DataParallel", "load_model")),
        (lambda: Mine(SMALL), ("Mine", "load_model")),
        (lambda: {"head.weight": torch.zeros(2)}, ("dict", "path")),
        (lambda: VisionTransformer(SMALL, position=Rows()), ("position", "config")),
        (without_norm, ("norm", "config")),
        (other_dropout, ("dropout", "0.5", "config")),
        (on_meta, ("meta",)),
        (lambda: network().double(), ("float64", "float32")),
    ],
)
def test_a_network_that_cannot_be_stored_is_named(
    tmp_path: Path, make: Callable[[], object], words: tuple[str, ...]
) -> None:
    said = refusal(store_network, make(), tmp_path / "start")
    assert all(word in said for word in words), said


def test_a_network_of_timm_is_told_from_ours(tmp_path: Path) -> None:
    timm = pytest.importorskip("timm")
    said = refusal(store_network, timm.create_model("test_vit"), tmp_path / "start")
    assert "timm.models.vision_transformer.VisionTransformer" in said


def test_frozen_weights_are_told_of(tmp_path: Path) -> None:
    given = network()
    given.blocks.requires_grad_(False)
    with pytest.warns(Notice, match=r"frozen.*blocks"):
        store_network(given, tmp_path / "some")
    store_network(network().requires_grad_(False), tmp_path / "all")


@pytest.mark.parametrize(
    ("value", "answer"), [("digits", False), (Path("photos"), False), ((GREY, LABELS), True), (network(), True)]
)
def test_names_and_paths_are_not_in_memory(value: object, answer: bool) -> None:
    assert is_in_memory(value) is answer
