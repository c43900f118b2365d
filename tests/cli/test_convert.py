import json
from pathlib import Path

import numpy as np
import pytest
import torch

import vitrail
from vitrail.cli import main
from vitrail.weights import read_checkpoint


@pytest.fixture
def npz(fixtures: Path) -> Path:
    return fixtures / "vit_token" / "params.npz"


def printed_by(capsys, *words: object) -> str:
    assert main(["convert", *map(str, words)]) == 0
    printed = capsys.readouterr()
    assert printed.err == ""
    return printed.out


def failure(capsys, code: int, *words: object) -> str:
    assert main(["convert", *map(str, words)]) == code
    printed = capsys.readouterr()
    assert printed.out == ""
    assert printed.err.startswith("error: ")
    assert printed.err.count("\n") == 1
    assert "Traceback" not in printed.err
    return printed.err


def arrays_of(path: Path) -> dict[str, np.ndarray]:
    with np.load(path, allow_pickle=False) as archive:
        return {name: archive[name] for name in archive.files}


def assert_bit_equal(first: Path, second: Path) -> None:
    one, other = arrays_of(first), arrays_of(second)
    assert one.keys() == other.keys()
    for name, array in one.items():
        assert array.dtype == other[name].dtype, name
        assert array.shape == other[name].shape, name
        assert array.tobytes() == other[name].tobytes(), name


@pytest.mark.parametrize("case", ["vit_token", "bv_tok_learn"])
def test_to_a_folder_and_back_bit_by_bit(capsys, fixtures: Path, tmp_path: Path, case: str):
    source, folder, back = fixtures / case / "params.npz", tmp_path / "model", tmp_path / "back.npz"
    out = printed_by(capsys, source, folder)
    assert out.startswith(f"{folder}: layout vitrail, ")
    assert "read back: all 44 tensors bit-equal" in out
    assert sorted(path.name for path in folder.iterdir()) == ["README.md", "config.json", "model.safetensors"]
    out = printed_by(capsys, folder, back, "--layout", "google")
    assert out.startswith(f"{back}: layout google, ")
    assert_bit_equal(source, back)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["back.npz", "model"]


def test_the_number_of_parameters_is_told(capsys, npz: Path, tmp_path: Path):
    assert "62,986 parameters" in printed_by(capsys, npz, tmp_path / "model")


def test_a_converted_network_computes_the_same(capsys, npz: Path, fixtures: Path, tmp_path: Path):
    printed_by(capsys, npz, tmp_path / "model")
    images = torch.from_numpy(np.load(fixtures / "vit_token" / "input.npy")).permute(0, 3, 1, 2)
    with torch.no_grad():
        before, after = (vitrail.load_model(source)(images) for source in (npz, tmp_path / "model"))
    assert torch.equal(before, after)


def test_missing_folders_are_made(capsys, npz: Path, tmp_path: Path):
    target = tmp_path / "a" / "b" / "weights.npz"
    printed_by(capsys, npz, target, "--layout", "google")
    assert_bit_equal(npz, target)


@pytest.mark.parametrize(
    ("target", "words"), [("model", []), ("weights.npz", ["--layout", "google"]), ("file.txt", [])]
)
def test_a_target_that_is_there_is_left_alone(capsys, npz: Path, tmp_path: Path, target: str, words: list[str]):
    (tmp_path / target).write_text("mine")
    message = failure(capsys, 2, npz, tmp_path / target, *words)
    assert message == f"error: {tmp_path / target}: is there already. Choose another target, or add --overwrite.\n"
    assert (tmp_path / target).read_text() == "mine"


def test_overwriting_a_model_folder_keeps_its_other_files(capsys, npz: Path, tmp_path: Path):
    folder = tmp_path / "model"
    vitrail.save_model(vitrail.create_model("vit-test"), folder)
    (folder / "notes.txt").write_text("mine")
    printed_by(capsys, npz, folder, "--overwrite")
    assert read_checkpoint(folder).config.width == 48
    assert (folder / "notes.txt").read_text() == "mine"


def test_overwriting_a_file(capsys, npz: Path, tmp_path: Path):
    target = tmp_path / "weights.npz"
    target.write_text("old")
    printed_by(capsys, npz, target, "--layout", "google", "--overwrite")
    assert_bit_equal(npz, target)


@pytest.mark.parametrize("kind", ["file", "folder"])
def test_overwriting_never_removes_what_is_no_model(capsys, npz: Path, tmp_path: Path, kind: str):
    target = tmp_path / "precious"
    if kind == "folder":
        target.mkdir()
    (file := target / "thesis.txt" if kind == "folder" else target).write_text("mine")
    message = failure(capsys, 2, npz, target, "--overwrite")
    assert f"{target}: is there already and is not a model folder." in message
    assert file.read_text() == "mine"


@pytest.mark.parametrize("name", ["weights", "weights.bin", "weights.safetensors"])
def test_the_google_layout_needs_its_file_ending(capsys, npz: Path, tmp_path: Path, name: str):
    message = failure(capsys, 2, npz, tmp_path / name, "--layout", "google")
    assert f"cannot be written to '{tmp_path / name}'; wanted a name that ends in .npz." in message
    assert list(tmp_path.iterdir()) == []


def test_an_unknown_layout_gets_a_suggestion(capsys, npz: Path, tmp_path: Path):
    message = failure(capsys, 2, npz, tmp_path / "model", "--layout", "gogle")
    assert message == "error: Unknown layout 'gogle'. Did you mean 'google'?\n"
    assert list(tmp_path.iterdir()) == []


def test_a_missing_source(capsys, tmp_path: Path):
    source = tmp_path / "missing.npz"
    hint = "Check the path; `vitrail list models` shows names with published weights."
    assert (
        failure(capsys, 3, source, tmp_path / "model") == f"error: {source}: there is no such file or folder. {hint}\n"
    )
    assert list(tmp_path.iterdir()) == []


def test_a_target_that_cannot_be_written(capsys, npz: Path, tmp_path: Path):
    (tmp_path / "file").write_text("in the way")
    message = failure(capsys, 5, npz, tmp_path / "file" / "model")
    assert f"{tmp_path / 'file' / 'model'}: could not be written" in message


def test_positions_for_another_image_size(capsys, npz: Path, tmp_path: Path):
    out = printed_by(capsys, npz, tmp_path / "model", "--image-size", "64")
    assert "positions resampled from a 8x8 to a 16x16 grid" in out
    made = read_checkpoint(tmp_path / "model")
    assert made.config.image_size == (64, 64)
    wanted = vitrail.load_model(npz, image_size=64).state_dict()
    assert made.state.keys() == wanted.keys()
    assert all(torch.equal(made.state[name], tensor) for name, tensor in wanted.items())


def test_the_same_image_size_resamples_nothing(capsys, npz: Path, tmp_path: Path):
    out = printed_by(capsys, npz, tmp_path / "weights.npz", "--layout", "google", "--image-size", "32")
    assert "resampled" not in out
    assert_bit_equal(npz, tmp_path / "weights.npz")


def test_an_image_that_is_no_square_needs_its_size_when_it_is_read_again(capsys, npz: Path, tmp_path: Path):
    tall, model = tmp_path / "tall.npz", tmp_path / "model"
    printed_by(capsys, npz, tall, "--layout", "google", "--image-size", "64", "32")
    assert arrays_of(tall)["Transformer/posembed_input/pos_embedding"].shape == (1, 1 + 16 * 8, 48)
    assert "128 rows for patches, which make no square" in failure(capsys, 3, tall, model)
    printed_by(capsys, tall, model, "--source-image-size", "64", "32")
    assert read_checkpoint(model).config.image_size == (64, 32)


def test_another_number_of_classes_gives_a_zero_head(capsys, npz: Path, tmp_path: Path):
    printed_by(capsys, npz, tmp_path / "model", "--num-classes", "3")
    made = read_checkpoint(tmp_path / "model")
    assert made.state["head.weight"].shape == (3, 48)
    assert not made.state["head.weight"].any()
    assert not made.state["head.bias"].any()
    assert json.loads((tmp_path / "model" / "config.json").read_text())["model"]["num_classes"] == 3


def test_a_result_that_reads_back_different_is_an_error(capsys, npz: Path, tmp_path: Path, monkeypatch):
    from vitrail.cli import convert

    def write_something_else(checkpoint, path, layout) -> None:
        checkpoint.state["norm.weight"] = checkpoint.state["norm.weight"] + 1
        vitrail.weights.write_checkpoint(checkpoint, path, layout)
        checkpoint.state["norm.weight"] = checkpoint.state["norm.weight"] - 1

    monkeypatch.setattr(convert, "write_checkpoint", write_something_else)
    message = failure(capsys, 3, npz, tmp_path / "model")
    assert "the tensor 'norm.weight' reads back different from what was written" in message


def test_a_bare_file_gets_its_preprocessing_and_class_names(capsys, tmp_path: Path):
    model = vitrail.create_model(
        "vit-ti16", num_classes=3, image_size=32, depth=1, pre_logits=None, gelu="erf", layer_norm_epsilon=1e-6
    )
    vitrail.save_model(model, tmp_path / "bare.safetensors", "timm")
    words = [tmp_path / "bare.safetensors", tmp_path / "hf", "--layout", "huggingface", "--overwrite"]
    assert main(["convert", *map(str, words)]) == 0
    assert "--preprocessing" in capsys.readouterr().err
    assert not (tmp_path / "hf" / "preprocessor_config.json").exists()
    (tmp_path / "names.txt").write_text("cat\ndog\nowl\n")
    printed_by(capsys, *words, "--preprocessing", "augreg", "--classes", tmp_path / "names.txt")
    processor = json.loads((tmp_path / "hf" / "preprocessor_config.json").read_text())
    assert processor["size"] == {"shortest_edge": 35}
    assert processor["crop_size"] == {"height": 32, "width": 32}
    assert json.loads((tmp_path / "hf" / "config.json").read_text())["id2label"] == {"0": "cat", "1": "dog", "2": "owl"}
    assert "3, one for each output" in failure(capsys, 2, *words, "--classes", "imagenet")
    assert "Unknown preprocessing preset" in failure(capsys, 2, *words, "--preprocessing", "augrag")
