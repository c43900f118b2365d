"""Broken, foreign and hostile files: one sentence that names the file and the key, and nothing executed."""

import io
import json
import os
import pickle
import struct
import zipfile

import numpy as np
import pytest
import torch

import vitrail
from vitrail.cli import main
from vitrail.errors import DataError, DiskError, UsageError


def refusal(source) -> str:
    """The message `load_model` refuses a source with; it must be short and name the file."""
    with pytest.raises(DataError) as caught:
        vitrail.load_model(source)
    message = str(caught.value)
    assert str(source) in message
    assert len(message) < 500
    return message


@pytest.fixture
def arrays(fixtures) -> dict[str, np.ndarray]:
    with np.load(fixtures / "vit_token" / "params.npz") as file:
        return {name: file[name] for name in file.files}


class Bomb:
    """Unpickling it would create a file."""

    def __init__(self, path: str) -> None:
        self.path = path

    def __reduce__(self):
        return os.mkdir, (self.path,)


def test_missing_file(tmp_path) -> None:
    assert "there is no such file or folder" in refusal(tmp_path / "nothing.npz")


@pytest.mark.parametrize("keep", [0, 1, 100, 0.3, 0.9, -30])
def test_truncated_npz(keep, fixtures, tmp_path) -> None:
    blob = (fixtures / "vit_token" / "params.npz").read_bytes()
    cut = int(keep * len(blob)) if isinstance(keep, float) else keep
    path = tmp_path / "cut.npz"
    path.write_bytes(blob[:cut])
    assert "is not a complete .npz archive" in refusal(path)


def test_flipped_bytes_in_an_array(fixtures, tmp_path) -> None:
    blob = bytearray((fixtures / "vit_token" / "params.npz").read_bytes())
    blob[len(blob) // 2] ^= 0xFF
    path = tmp_path / "flipped.npz"
    path.write_bytes(blob)
    assert "cannot be read (Bad CRC-32" in refusal(path)


def test_text_named_npz_and_other_endings(tmp_path) -> None:
    path = tmp_path / "page.npz"
    path.write_text("<html>404</html>")
    assert "is not a complete .npz archive" in refusal(path)
    other = tmp_path / "model.tflite"
    other.write_bytes(b"TFL3")
    assert "the file ending '.tflite' is not one that is read" in refusal(other)


def test_a_zip_that_is_no_checkpoint(tmp_path) -> None:
    path = tmp_path / "other.npz"
    np.savez(path, weights=np.zeros(3), biases=np.zeros(2))
    assert "there is no array 'embedding/kernel' (found biases, weights)" in refusal(path)


def test_pickled_array_is_not_executed(arrays, tmp_path) -> None:
    marker = tmp_path / "executed"
    path = tmp_path / "bomb.npz"
    np.savez(path, **(arrays | {"head/bias": np.array([Bomb(str(marker))], dtype=object)}))
    assert "the array 'head/bias' holds pickled Python objects, which are never loaded" in refusal(path)
    assert not marker.exists()


@pytest.mark.parametrize("name", ["model.safetensors", "model.npz"])
def test_a_pickle_under_another_name_is_not_executed(name, tmp_path) -> None:
    marker = tmp_path / "executed"
    path = tmp_path / name
    path.write_bytes(pickle.dumps(Bomb(str(marker))))
    refusal(path)
    torch.save({"state": Bomb(str(marker))}, path)
    refusal(path)
    assert not marker.exists()


def test_an_array_header_that_lies_about_its_size(arrays, tmp_path) -> None:
    header = io.BytesIO()
    np.lib.format.write_array_header_1_0(header, {"descr": "<f4", "fortran_order": False, "shape": (2**58,)})
    path = tmp_path / "lie.npz"
    np.savez(path, **{name: array for name, array in arrays.items() if name != "head/bias"})
    with zipfile.ZipFile(path, "a") as archive:
        archive.writestr("head/bias.npy", header.getvalue())
    assert "the array 'head/bias' cannot be read" in refusal(path)


def test_a_config_that_no_network_needs_is_not_parsed(tmp_path) -> None:
    """Each of its letters would take forty bytes of memory."""
    (tmp_path / "model.safetensors").write_bytes(b"")
    (tmp_path / "config.json").write_text('{"junk": [' + "{}," * (5 << 20) + "0]}", encoding="utf-8")
    assert "letters of JSON" in refusal(tmp_path)


def test_an_archive_that_unpacks_to_a_thousand_times_its_size(arrays, tmp_path) -> None:
    """It is refused by what it says of its size, before memory is taken for it; torch unpacks such files too."""
    large = np.zeros(20_000_000, np.float32)
    path = tmp_path / "bomb.npz"
    np.savez_compressed(path, **(arrays | {"head/bias": large}))
    assert "would unpack to" in refusal(path)
    torch.save({"head.weight": torch.from_numpy(large)}, tmp_path / "model.pt")
    with zipfile.ZipFile(tmp_path / "model.pt") as good, zipfile.ZipFile(tmp_path / "bomb.pt", "w", 8) as bad:
        for name in good.namelist():
            bad.writestr(name, good.read(name))
    assert "is compressed" in refusal(tmp_path / "bomb.pt")
    np.savez_compressed(tmp_path / "good.npz", **arrays)
    assert vitrail.load_model(tmp_path / "good.npz").config.width == 48


@pytest.mark.parametrize(
    "missing",
    [
        "head/bias",
        "Transformer/encoderblock_1/MlpBlock_3/Dense_0/kernel",
        "Transformer/encoderblock_0/MultiHeadDotProductAttention_1/query/kernel",
        "Transformer/encoder_norm/scale",
    ],
)
def test_a_missing_array_is_named(missing, arrays, tmp_path) -> None:
    path = tmp_path / "missing.npz"
    np.savez(path, **{name: array for name, array in arrays.items() if name != missing})
    assert f"the array {missing!r} is missing" in refusal(path)


def test_missing_positions_of_a_2020_file_are_named(arrays, tmp_path) -> None:
    path = tmp_path / "positions.npz"
    missing = "Transformer/posembed_input/pos_embedding"
    np.savez(path, **{name: array for name, array in arrays.items() if name != missing})
    with pytest.raises(DataError, match=f"the array '{missing}' is missing"):
        vitrail.load_model(path, image_size=32)


@pytest.mark.parametrize(
    ("change", "told"),
    [
        ({"Transformer/posembed_input/pos_embedding": (1, 0, 48)}, "no empty axis"),
        ({"Transformer/posembed_input/pos_embedding": (1, 1, 48)}, "0 rows for patches; wanted at least one"),
        ({"embedding/kernel": (0, 0, 3, 48)}, "no empty axis"),
        ({"Transformer/encoderblock_0/MultiHeadDotProductAttention_1/query/kernel": (48, 5, 9)}, "not divisible by"),
    ],
)
def test_shapes_that_make_no_network_name_the_file(change, told, arrays, tmp_path) -> None:
    path = tmp_path / "odd.npz"
    np.savez(path, **(arrays | {name: np.zeros(shape, np.float32) for name, shape in change.items()}))
    assert told in refusal(path)


def test_members_that_break_the_reader_are_one_sentence(arrays, tmp_path) -> None:
    for header in (b"{'descr': ((((((", b"\x93NUMPY\x01\x00", b""):
        path = tmp_path / "member.npz"
        np.savez(path, **arrays)
        with zipfile.ZipFile(path, "a") as archive:
            archive.writestr("extra.npy", b"\x93NUMPY\x01\x00" + len(header).to_bytes(2, "little") + header)
        assert "cannot be read" in refusal(path)


def test_big_endian_arrays_are_read(arrays, tmp_path) -> None:
    path = tmp_path / "big.npz"
    np.savez(path, **{name: array.astype(">f4") for name, array in arrays.items()})
    assert vitrail.load_model(path).config.width == 48


def test_a_name_longer_than_any_file_system_takes() -> None:
    with pytest.raises(DataError, match=r"cannot be read|no such file"):
        vitrail.load_model("a" * 5000)


def test_a_missing_block_is_named(arrays, tmp_path) -> None:
    path = tmp_path / "gap.npz"
    np.savez(path, **{name: array for name, array in arrays.items() if "encoderblock_1/" not in name})
    assert "the part 'Transformer/encoderblock_1' is missing" in refusal(path)


def test_an_extra_array_is_named(arrays, tmp_path) -> None:
    path = tmp_path / "extra.npz"
    np.savez(path, **arrays, **{"Transformer/adapter/kernel": np.zeros((2, 2), np.float32)})
    assert "the array 'Transformer/adapter/kernel' is not part of this network" in refusal(path)


@pytest.mark.parametrize(
    ("name", "shape", "told"),
    [
        ("head/bias", (9,), r"has shape (9,); wanted (10,)"),
        ("Transformer/encoderblock_2/LayerNorm_2/scale", (48, 1), "has shape (48, 1); wanted (48,)"),
        ("Transformer/encoderblock_0/MlpBlock_3/Dense_1/kernel", (96, 47), "has shape (96, 47); wanted (96, 48)"),
        ("embedding/kernel", (16, 3, 48), "has 3 axes; wanted 4"),
    ],
)
def test_a_wrong_shape_is_named(name, shape, told, arrays, tmp_path) -> None:
    path = tmp_path / "shape.npz"
    np.savez(path, **(arrays | {name: np.zeros(shape, np.float32)}))
    message = refusal(path)
    assert repr(name) in message
    assert told in message


def test_a_position_table_of_no_square(arrays, tmp_path) -> None:
    path = tmp_path / "rows.npz"
    np.savez(path, **(arrays | {"Transformer/posembed_input/pos_embedding": np.zeros((1, 64, 48), np.float32)}))
    assert "63 rows for patches, which make no square" in refusal(path)


def test_a_safetensors_header_of_an_exabyte(tmp_path) -> None:
    path = tmp_path / "huge.safetensors"
    path.write_bytes(struct.pack("<Q", 2**60) + b"{}")
    assert "is not a complete .safetensors file" in refusal(path)


@pytest.mark.parametrize("blob", [b"", b"{}", struct.pack("<Q", 2) + b"{", struct.pack("<Q", 9) + b'{"a": [}}'])
def test_safetensors_that_are_none(blob, tmp_path) -> None:
    path = tmp_path / "bad.safetensors"
    path.write_bytes(blob)
    assert "is not a complete .safetensors file" in refusal(path)


@pytest.fixture
def folder(tmp_path):
    path = tmp_path / "ours"
    vitrail.save_model(vitrail.create_model("vit-test"), path)
    return path


def edit(folder, change) -> None:
    values = json.loads((folder / "config.json").read_text())
    change(values)
    (folder / "config.json").write_text(json.dumps(values))


@pytest.mark.parametrize(
    ("change", "told"),
    [
        (lambda v: v.update(format="vitrail/2"), "the format tag is 'vitrail/2'; wanted 'vitrail/1'"),
        (lambda v: v.pop("format"), "the format tag is None; wanted 'vitrail/1'"),
        (lambda v: v.update(weights="../../etc/passwd"), "Unknown field 'weights'"),
        (lambda v: v["model"].update(dropot=0.1), "Unknown field 'dropot'. Did you mean 'dropout'"),
        (lambda v: v["model"].pop("width"), "the field 'width' is missing"),
        (lambda v: v["model"].update(width="32"), "found '32'; wanted a value of type int"),
        (lambda v: v["model"].update(width=33), "width 33 is not divisible by num_heads 2"),
        (lambda v: v["model"].update(width=10**9), "width is 1000000000; wanted a whole number from 1 to 1,048,576"),
        (lambda v: v["model"].update(depth=10**9), "depth is 1000000000; wanted a whole number from 1 to 1,000"),
        (lambda v: v["model"].update(gelu="../tanh"), "found '../tanh'; wanted one of 'tanh', 'erf'"),
        (lambda v: v["model"].update(image_size=[32, 32, 32]), "found 3 values; wanted 2"),
        (lambda v: v.update(labels=["only one"]), "there are 1 labels for 10 classes"),
        (lambda v: v.update(family="../vit"), "the family is '../vit'"),
        (lambda v: v["model"].update(depth=3), "the array 'blocks.2."),
    ],
)
def test_an_edited_config_is_refused_with_the_field_named(change, told, folder) -> None:
    edit(folder, change)
    assert told in refusal(folder)


@pytest.mark.parametrize("text", ["", "{", "[]", "null", '"vitrail/1"', "[" * 100_000, "\ufeff{}"])
def test_a_config_that_is_no_record(text, folder) -> None:
    (folder / "config.json").write_text(text, encoding="utf-8")
    assert "config.json" in refusal(folder)


def test_a_config_that_is_no_text(folder) -> None:
    (folder / "config.json").write_bytes(b"\xff\xfe\x00")
    assert "cannot be read" in refusal(folder)


def test_swapped_weights_are_noticed(folder, tmp_path) -> None:
    vitrail.save_model(vitrail.create_model("vit-test", num_classes=11), tmp_path / "other")
    (tmp_path / "other" / "model.safetensors").replace(folder / "model.safetensors")
    assert "the tensor 'head.weight' has shape (11, 32); wanted (10, 32)" in refusal(folder)


def test_a_folder_without_a_model(tmp_path) -> None:
    assert "is a folder without a model" in refusal(tmp_path)


def test_a_folder_of_runs_names_one_of_them(tmp_path) -> None:
    (tmp_path / "notes").mkdir()
    (tmp_path / "run-1").mkdir()
    (tmp_path / "run-1/config.json").write_text("{}")
    assert f"There is one inside: {tmp_path / 'run-1'}." in refusal(tmp_path)


def test_a_failed_write_leaves_nothing_behind(tmp_path, monkeypatch) -> None:
    def full(*_args, **_kwargs):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(np, "savez", full)
    target = tmp_path / "model.npz"
    with pytest.raises(DiskError, match="could not be written"):
        vitrail.save_model(vitrail.create_model("vit-test"), target, layout="google")
    assert list(tmp_path.iterdir()) == []


def test_a_google_file_needs_its_ending_and_layouts_are_suggested(tmp_path) -> None:
    model = vitrail.create_model("vit-test")
    with pytest.raises(UsageError, match="wanted a name that ends in"):
        vitrail.save_model(model, tmp_path / "model.bin", layout="google")
    with pytest.raises(UsageError, match=r"Unknown layout 'gogle'\. Did you mean 'google'"):
        vitrail.save_model(model, tmp_path / "model.npz", layout="gogle")


def test_the_command_line_says_it_in_one_line(tmp_path, capsys) -> None:
    path = tmp_path / "page.npz"
    path.write_text("<html>")
    assert main(["info", str(path)]) == 3
    shown = capsys.readouterr().err
    assert shown == f"error: {path}: is not a complete .npz archive. Download or copy the file again.\n"
