"""What a worker does with a few images: nothing is replaced, nothing is changed, and the GPU gets what it decodes."""

from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image
from tests.data.loading.tiny import EVERYTHING, make_arrays, make_folder, picture, prepared

from vitrail.config import AugmentConfig, DecodePolicy, preset
from vitrail.data.loading.order import Picks
from vitrail.data.loading.prepare import Chunk, Preparation, prepare_chunk
from vitrail.data.sources.folder import open_folder
from vitrail.data.sources.source import Part, Source
from vitrail.data.transforms.boxes import training_boxes
from vitrail.runtime.counter import uniforms


def chunk_of(source: Source, preparation: Preparation, indices: list[int] | None = None, epoch: int = 2) -> Chunk:
    chosen = np.arange(len(source)) if indices is None else np.array(indices)
    return prepare_chunk(source, Picks(chosen, np.full(len(chosen), epoch)), preparation)


@pytest.fixture
def photos(tmp_path: Path) -> Path:
    return make_folder(tmp_path / "photos", 8)


def test_a_chunk_for_training(photos):
    source = open_folder(photos)
    chunk = chunk_of(source, prepared(EVERYTHING, (12, 20), augment_here=True), [4, 1, 1])
    assert chunk.images is not None
    assert (chunk.images.shape, chunk.images.dtype) == ((3, 3, 12, 20), torch.uint8)
    assert torch.equal(chunk.images[1], chunk.images[2])
    assert not torch.equal(chunk.images[0], chunk.images[1])
    assert (chunk.ids.tolist(), chunk.epochs.tolist()) == ([4, 1, 1], [2, 2, 2])
    assert chunk.targets.tolist() == source.labels.values[[4, 1, 1]].tolist()
    assert (chunk.failures, chunk.left) == ((), None)


@pytest.mark.parametrize(("name", "kind"), [("augreg", torch.uint8), ("google", torch.float32)])
def test_a_chunk_for_evaluation_has_one_type_for_all_sizes(photos, name, kind):
    chunk = chunk_of(open_folder(photos), prepared(preprocessing=preset(name)))
    assert chunk.images is not None
    assert (chunk.images.shape, chunk.images.dtype) == ((8, 3, 16, 16), kind)


@pytest.mark.parametrize("augment", [None, AugmentConfig()])
def test_every_image_that_cannot_be_read_is_told(photos, augment):
    source = open_folder(photos)
    source.path(2).write_bytes(b"")
    source.path(5).write_bytes(source.path(5).read_bytes()[:60])
    source.path(6).unlink()
    chunk = chunk_of(source, prepared(augment))
    assert [failure.where for failure in chunk.failures][:2] == [str(source.path(2)), str(source.path(6))]
    assert [failure.came for failure in chunk.failures][:2] == [
        "the file is empty",
        "the file could not be read (No such file or directory)",
    ]
    if augment is None:
        assert chunk.images is None


def test_damage_that_only_decoding_finds(photos):
    source = open_folder(photos)
    path = source.path(0)
    path.write_bytes(path.read_bytes()[:-150])
    for decoder in ("pillow", "fast"):
        for augment in (None, AugmentConfig()):
            (failure,) = chunk_of(source, prepared(augment, decoder=decoder)).failures
            assert failure.where == str(path)
            assert failure.came.startswith("the JPEG data is damaged or cut off (")


@pytest.mark.parametrize("decoder", ["pillow", "fast"])
@pytest.mark.parametrize("augment", [None, AugmentConfig()])
def test_the_policy_is_heeded(photos, augment, decoder):
    policy = DecodePolicy(max_pixels=300)
    chunk = chunk_of(open_folder(photos), prepared(augment, decoder=decoder, policy=policy))
    # All but the two of 16 x 16.
    assert len(chunk.failures) == 6
    assert all(failure.came.startswith("the header says ") for failure in chunk.failures)


def test_an_image_that_lies_on_its_side(tmp_path):
    turned = Image.Exif()
    turned[0x0112] = 6
    for name, image, options in (
        ("upright", picture(0), {}),
        ("turned", picture(0).transpose(Image.Transpose.ROTATE_90), {"exif": turned}),
    ):
        for kind in "ab":
            (tmp_path / name / kind).mkdir(parents=True)
            image.save(tmp_path / name / kind / "x.png", **options)
    for augment in (None, *(AugmentConfig(crop=crop, resize=20) for crop in ("inception", "resize", "pad", "whole"))):
        for epoch in range(4):
            chunks = [
                chunk_of(open_folder(tmp_path / name), prepared(augment), epoch=epoch) for name in ("upright", "turned")
            ]
            assert torch.equal(chunks[0].images, chunks[1].images)


# torch warns of pixels that it may write to and must not.
@pytest.mark.filterwarnings("error")
@pytest.mark.parametrize("channels", [1, 3])
@pytest.mark.parametrize("grey", [True, False])
def test_pixels_in_memory_are_copied_and_never_changed(grey, channels):
    source = make_arrays(12, grey=grey)
    before = source.pixels.copy()
    source.pixels.setflags(write=False)
    for augment in (None, EVERYTHING, AugmentConfig(crop="whole"), AugmentConfig(crop="pad")):
        chunk = chunk_of(source, prepared(augment, (8, 8), channels=channels, augment_here=True))
        assert chunk.images is not None
        assert chunk.images.shape == (12, channels, 8, 8)
        chunk.images.zero_()
    assert np.array_equal(source.pixels, before)


def test_whole_images_are_mirrored_in_half_of_the_cases():
    source = make_arrays(200)
    chunk = chunk_of(source, prepared(AugmentConfig(crop="whole"), (8, 8), augment_here=True, seed=5))
    assert chunk.images is not None
    pixels = torch.from_numpy(source.pixels).permute(0, 3, 1, 2)
    mirrored = torch.tensor([torch.equal(one, other.flip(-1)) for one, other in zip(chunk.images, pixels, strict=True)])
    straight = torch.tensor([torch.equal(one, other) for one, other in zip(chunk.images, pixels, strict=True)])
    assert (mirrored ^ straight).all()
    assert 70 < mirrored.sum() < 130


def test_the_augmentation_goes_with_the_id_and_not_with_the_place(photos):
    whole = open_folder(photos)
    part = Part(whole, np.array([6, 2]), "some")
    preparation = prepared(AugmentConfig(randaugment_layers=1), augment_here=True)
    some, all_of_them = chunk_of(part, preparation), chunk_of(whole, preparation)
    assert some.images is not None
    assert all_of_them.images is not None
    assert torch.equal(some.images, all_of_them.images[[6, 2]])


def test_plain_jpegs_are_left_to_the_gpu(photos):
    turned = Image.Exif()
    turned[0x0112] = 3
    picture(9).save(photos / "ant" / "900.jpg", exif=turned)
    picture(9).save(photos / "ant" / "901.jpg", "PNG")
    source = open_folder(photos)
    names = [source.path(index).name for index in range(len(source))]
    augment = AugmentConfig()
    chunk = chunk_of(source, prepared(augment, decoder="fast", leave_jpegs=True, seed=3))
    assert chunk.left is not None
    expected = [row for row, name in enumerate(names) if name.endswith(".jpg") and not name.startswith("90")]
    assert chunk.left.rows.tolist() == expected
    files = [source.path(row).read_bytes() for row in expected]
    assert chunk.left.lengths.tolist() == [len(file) for file in files]
    assert bytes(chunk.left.data.numpy()) == b"".join(files)
    sizes = np.array([Image.open(source.path(row)).size for row in expected])
    epochs = np.full(len(expected), 2)
    boxes = training_boxes(augment, 3, epochs, np.array(expected), sizes[:, 1], sizes[:, 0])
    assert chunk.left.boxes.tolist() == [list(boxes[number]) for number in range(len(expected))]
    others = [row for row in range(len(names)) if row not in expected]
    here = chunk_of(source, prepared(augment, decoder="pillow", seed=3), others)
    assert chunk.images is not None
    assert torch.equal(chunk.images, here.images)


def test_a_chunk_of_nothing_but_jpegs(photos):
    source = open_folder(photos)
    jpegs = [index for index in range(len(source)) if source.path(index).suffix == ".jpg"]
    chunk = chunk_of(source, prepared(AugmentConfig(), decoder="fast", leave_jpegs=True), jpegs)
    assert chunk.images is None
    assert chunk.left is not None
    assert chunk.left.rows.tolist() == list(range(len(jpegs)))
    # Grey input is converted by Pillow alone.
    grey = chunk_of(source, prepared(AugmentConfig(), decoder="fast", leave_jpegs=True, channels=1), jpegs)
    assert grey.left is None
    assert grey.images is not None
    assert grey.images.shape == (len(jpegs), 1, 16, 16)


def test_random_numbers_are_those_of_the_counter():
    # The flip of image 7 in epoch 2, drawn by hand.
    source = make_arrays(10)
    chunk = chunk_of(source, prepared(AugmentConfig(crop="whole"), (8, 8), augment_here=True, seed=11), [7])
    assert chunk.images is not None
    pixels = torch.from_numpy(source.pixels[7]).permute(2, 0, 1)
    flipped = uniforms(11, 6, 2, 7, 1)[0] < 0.5
    assert torch.equal(chunk.images[0], pixels.flip(-1) if flipped else pixels)
