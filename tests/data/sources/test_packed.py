"""Reading a packed copy: from any process, and never what was not written."""

import hashlib
import json
import multiprocessing
import os
import pickle
from pathlib import Path

import numpy as np
import pytest
from PIL import Image
from safetensors.numpy import load_file, save
from tests.data.loading.tiny import make_arrays, make_folder, prepared

from vitrail.config import AugmentConfig
from vitrail.data.check import check, open_splits
from vitrail.data.loading.loader import training_batches
from vitrail.data.loading.order import Stream
from vitrail.data.pack import PackOptions, pack
from vitrail.data.sources.folder import open_folder
from vitrail.data.sources.packed import Packed, is_packed, open_packed, pack_image
from vitrail.errors import DataError


@pytest.fixture
def copy(tmp_path: Path) -> Path:
    """A pack of twelve images of 8 x 8 x 3 and five of them again."""
    pack({"train": make_arrays(12), "val": make_arrays(5)}, tmp_path / "copy", PackOptions())
    return tmp_path / "copy"


def refusal(path: Path, split: str = "train") -> str:
    with pytest.raises(DataError) as caught:
        open_packed(path, split)
    assert "\n" not in str(caught.value)
    return str(caught.value)


def flip(path: Path, place: int) -> None:
    content = bytearray(path.read_bytes())
    content[place] ^= 0x10
    path.write_bytes(content)


def test_images_in_any_order(copy):
    source, expected = open_packed(copy), make_arrays(12)
    for index in (11, 0, 5, 5):
        assert np.array_equal(source.read(index), expected.pixels[index])
    assert source.labels.values.tolist() == expected.labels.values.tolist()
    assert len(open_packed(copy, "val")) == 5
    assert source.damaged() == []


def test_what_is_read_cannot_be_written(copy):
    image = open_packed(copy).read(0)
    assert isinstance(image, np.ndarray)
    with pytest.raises(ValueError, match="read-only"):
        image[0, 0, 0] = 1


def test_nothing_is_opened_before_the_first_read(copy):
    source = open_packed(copy)
    assert source._map is None
    source.read(0)
    again = pickle.loads(pickle.dumps(source))  # noqa: S301
    assert again._map is None
    assert np.array_equal(again.read(3), source.read(3))
    # The pixels stay in their file.
    assert len(pickle.dumps(source)) < 5_000


def _read_all(source: Packed) -> list[bytes]:
    return [np.asarray(source.read(index)).tobytes() for index in range(len(source))]


@pytest.mark.filterwarnings("ignore:This process:DeprecationWarning")
def test_other_processes_read_the_same(copy):
    source = open_packed(copy)
    here = _read_all(source)
    with multiprocessing.get_context("fork").Pool(1) as pool:
        assert pool.apply(_read_all, [source]) == here


def test_the_digest_is_that_of_the_content(copy, tmp_path):
    source = open_packed(copy)
    assert len(source.digest()) == 64
    pack({"train": make_arrays(12)}, tmp_path / "again", PackOptions())
    assert open_packed(tmp_path / "again").digest() == source.digest()
    pack({"train": make_arrays(12)}, tmp_path / "smaller", PackOptions(short_side=4))
    assert open_packed(tmp_path / "smaller").digest() != source.digest()
    assert open_packed(copy, "val").digest() != source.digest()


def test_what_counts_as_a_pack(copy, tmp_path):
    assert is_packed(copy)
    assert not is_packed(tmp_path)
    assert not is_packed(tmp_path / "nothing")


@pytest.mark.parametrize("place", [0, 191, 192, 12 * 192 - 1])
def test_a_wrong_byte_in_the_pixels_is_found(copy, place):
    flip(copy / "train.pixels", place)
    source, damaged = open_packed(copy), place // 192
    assert source.damaged() == [damaged]
    assert open_packed(copy, "val").damaged() == []
    for _ in range(2):
        with pytest.raises(DataError) as caught:
            source.read(damaged)
        assert str(caught.value) == (
            f"{copy}/train.pixels: image {damaged}: its bytes are not what was packed. Copy it again, or pack it again."
        )
    assert np.array_equal(source.read(5), make_arrays(12).pixels[5])


def test_a_damaged_pack_is_found_by_a_check_and_stops_loading(copy):
    flip(copy / "train.pixels", 3 * 192)
    findings = check(open_splits(copy), workers=0)
    assert findings.has_problems
    assert [(one.image.index, one.reason) for one in findings.bad] == [(3, "its bytes are not what was packed")]
    source = open_packed(copy)
    stream = Stream(length=12, batch_size=12, seed=0)
    with pytest.raises(DataError, match="image 3: its bytes are not what was packed"):
        next(training_batches(source, stream, prepared(AugmentConfig()), stop=1))


def test_a_damaged_jpeg_that_still_decodes(tmp_path):
    copies = pack({"train": make_arrays(12)}, tmp_path / "copy", PackOptions(quality=90))
    # A number that says how fine a coefficient is: the decoder cannot know.
    flip(tmp_path / "copy" / "train.pixels", 40)
    assert copies["train"].damaged() == [0]
    with pytest.raises(DataError, match="its bytes are not what was packed"):
        open_packed(tmp_path / "copy").read(0)


@pytest.mark.parametrize("change", [-1, 1, -12 * 192])
def test_pixels_of_another_size_are_refused(copy, change):
    os.truncate(copy / "train.pixels", 12 * 192 + change)
    message = refusal(copy)
    assert message == (
        f"{copy}/train.pixels: it has {12 * 192 + change:,} bytes; wanted 2,304. Copy it again, or pack it again."
    )
    assert len(open_packed(copy, "val")) == 5


@pytest.mark.parametrize("place", [0, 9, 40, 300, -1, -100])
def test_a_wrong_byte_in_the_index_is_refused(copy, place):
    flip(copy / "train.safetensors", place)
    message = refusal(copy)
    assert message.startswith(f"{copy}/train.safetensors: it is not what was written with pack.json. Copy it again")


def test_an_index_that_is_cut_off_or_of_another_split(copy):
    index = copy / "train.safetensors"
    content = index.read_bytes()
    for other in (content[:-1], b"", (copy / "val.safetensors").read_bytes()):
        index.write_bytes(other)
        assert "train.safetensors: it is not what was written" in refusal(copy)


NO_NUMBERS = np.zeros(0, np.int64)
FORGERIES = [
    ({"labels": None}, "it is no index of a pack ('labels')"),
    ({"offsets": None}, "it is no index of a pack ('offsets')"),
    ({"offsets": NO_NUMBERS}, "the places of the images are wrong"),
    ({"offsets": np.array([[0, 5]])}, "the places of the images are wrong"),
    ({"offsets": np.arange(13) * 192.0}, "the places of the images are wrong"),
    ({"offsets": np.array([0, -192, *range(384, 12 * 192 + 1, 192)])}, "the places of the images are wrong"),
    ({"offsets": np.arange(1, 14) * 192}, "the places of the images are wrong"),
    ({"offsets": np.array([0, 191, *range(384, 12 * 192 + 1, 192)])}, "do not fit their shapes"),
    ({"shapes": np.full((12, 3), 9, np.int32)}, "the shapes of the images are wrong"),
    ({"shapes": np.full((12, 3), -8, np.int32)}, "the shapes of the images are wrong"),
    ({"shapes": np.full((12, 2), 8, np.int32)}, "the shapes of the images are wrong"),
    ({"shapes": np.zeros((0, 3), np.int32)}, "there are 12 checksums for 0 images"),
    ({"checksums": np.zeros(3, np.uint32)}, "there are 3 checksums for 12 images"),
    ({"labels": np.full(12, 77)}, "a label is not one of the 5 classes"),
    ({"labels": np.full(12, -1)}, "a label is not one of the 5 classes"),
    ({"labels": np.zeros(3, np.int64)}, "there are 3 labels for 12 images"),
    ({"labels": np.zeros(12)}, "the labels are no class numbers"),
    ({"label_offsets": NO_NUMBERS}, "the places of the labels are wrong"),
    ({"label_offsets": np.array([0, 9, *[3] * 11])}, "the places of the labels are wrong"),
    ({"label_offsets": np.zeros(13, np.int64)}, "there are 12 labels for 12 images"),
]


@pytest.mark.parametrize(("change", "message"), FORGERIES)
def test_an_index_that_was_sealed_but_does_not_fit_together(copy, change, message):
    arrays = {**load_file(copy / "train.safetensors"), **change}
    forge(copy, save({name: array for name, array in arrays.items() if array is not None}))
    assert f"{copy}/train.safetensors: {message}" in refusal(copy).replace("the places of the images do not", "do not")


@pytest.mark.parametrize("content", [b"", b"words", b"\xff" * 100])
def test_an_index_that_was_sealed_but_is_none(copy, content):
    forge(copy, content)
    assert f"{copy}/train.safetensors: it is no index of a pack" in refusal(copy)


def forge(copy: Path, content: bytes) -> None:
    (copy / "train.safetensors").write_bytes(content)
    record = json.loads((copy / "pack.json").read_text())
    record["indexes"]["train"] = hashlib.sha256(content).hexdigest()
    (copy / "pack.json").write_text(json.dumps(record))


@pytest.mark.parametrize("name", ["train.safetensors", "train.pixels"])
def test_a_file_that_is_missing(copy, name):
    (copy / name).unlink()
    assert refusal(copy) == (
        f"{copy}/{name}: it could not be read (No such file or directory). Copy it again, or pack it again."
    )


@pytest.mark.parametrize("content", [b"", b"{", b"[]", b'"words"', b"\xff\xfe", b"null", b"[" * 200_000])
def test_a_record_that_is_no_record(copy, content):
    (copy / "pack.json").write_bytes(content)
    assert f"{copy}/pack.json" in refusal(copy)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"format": "vitrail-pack/2"}, "the format is 'vitrail-pack/2'; wanted 'vitrail-pack/1'"),
        ({"short_side": "large"}, "field 'short_side': found 'large'"),
        ({"colour": 1}, "Unknown field 'colour'"),
        ({"indexes": {}}, "train.safetensors: it is not what was written with pack.json"),
        ({"digests": {"val": "0"}}, "there is no 'train' part; it has val"),
        ({"digests": {"train": 5}}, "the digests are no hashes; wanted one for each split"),
        ({"digests": {}}, "the digests are no hashes"),
        ({"classes": [1, 2]}, "field 'classes': found 1"),
        ({"classes": ["a"]}, "a label is not one of the 1 classes"),
    ],
)
def test_a_record_that_says_something_else(copy, change, message):
    record = json.loads((copy / "pack.json").read_text())
    (copy / "pack.json").write_text(json.dumps({**record, **change}))
    assert message in refusal(copy)


def test_a_file_that_goes_away_before_the_first_read(copy):
    source, cut = open_packed(copy), open_packed(copy, "val")
    (copy / "train.pixels").unlink()
    with pytest.raises(DataError, match=r"train\.pixels: the pack could not be read \(.*No such file"):
        source.read(0)
    os.truncate(copy / "val.pixels", 100)
    with pytest.raises(DataError, match=r"val\.pixels: the pack could not be read"):
        cut.read(4)


def test_a_name_that_is_no_utf8(tmp_path):
    folder = Path(os.fsdecode(os.fsencode(tmp_path) + b"/caf\xe9"))
    make_folder(folder / "photos", 3)
    copy = pack({"train": open_folder(folder / "photos")}, folder / "copy", PackOptions())["train"]
    assert copy.name == f"{tmp_path}/caf\\xe9/copy"
    assert copy.where(1) == f"{tmp_path}/caf\\xe9/copy/train.pixels: image 1"
    assert copy.damaged() == []


@pytest.mark.parametrize(
    ("size", "short_side", "expected"),
    [
        ((100, 50), 25, (50, 25)),
        ((50, 100), 25, (25, 50)),
        ((33, 20), 10, (16, 10)),
        ((20, 20), 20, (20, 20)),
        ((500, 3), 10, (500, 3)),
        ((999, 10), 1, (100, 1)),
    ],
)
def test_the_stored_size(size, short_side, expected):
    for mode, channels in (("RGB", 3), ("L", 1)):
        data, shape = pack_image(Image.new(mode, size), short_side, None)
        assert shape == (expected[1], expected[0], channels)
        assert len(data) == expected[0] * expected[1] * channels
