"""Published weights of timm and torchvision, from an emulated hub and from files in torch's cache."""

import hashlib
import shutil
from pathlib import Path
from typing import Any
from urllib.error import URLError

import numpy as np
import pytest
import timm
import torch
from PIL import Image
from safetensors.torch import save
from tests.hub_emulator import Hub, hub_fixture, offline_fixture  # noqa: F401
from timm.models import PretrainedCfg
from torchvision import models as torchvision

from vitrail import load_model, save_model
from vitrail.data.transforms.fit import fit_for_evaluation
from vitrail.data.transforms.fit_image import normalised
from vitrail.errors import DataError, Notice, UsageError
from vitrail.models import packages
from vitrail.weights import peer, read_checkpoint

TIMM = "timm:test_efficientnet"
REPO = "timm/test_efficientnet.r160_in1k"
downloads = pytest.mark.filterwarnings("ignore:Downloading:vitrail.errors.Notice")


def published_by_timm() -> torch.nn.Module:
    torch.manual_seed(0)
    return timm.create_model("test_efficientnet").eval()


@downloads
def test_weights_of_timm_come_from_the_hub_as_safetensors(hub: Hub, tmp_path) -> None:
    theirs = published_by_timm()
    commit = hub.add(REPO, {"model.safetensors": save(theirs.state_dict()), "config.json": b"{}"})
    ours = load_model(TIMM)
    images = torch.randn(2, 3, 160, 160)
    with torch.no_grad():
        assert torch.equal(ours(images), theirs(images))
    assert ours.config.image_size == (160, 160) and ours.config.num_classes == 1000
    assert ours.provenance == {
        "layout": "timm",
        "network": "test_efficientnet",
        "tag": "r160_in1k",
        "licence": "apache-2.0",
        "hub": REPO,
        "commit": commit,
    }
    used = ours.preprocessing
    assert used is not None
    assert (used.mean[0], used.std[2], used.interpolation, used.crop) == (0.485, 0.225, "bicubic", 0.95)
    save_model(ours, tmp_path / "kept")
    with torch.no_grad():
        assert torch.equal(load_model(tmp_path / "kept")(images), theirs(images))


@downloads
def test_another_number_of_classes_attaches_a_zero_head_and_keeps_statistics(hub: Hub) -> None:
    theirs = published_by_timm()
    theirs.bn1.running_mean.add_(1)
    theirs.bn1.num_batches_tracked.add_(5)
    hub.add(REPO, {"model.safetensors": save(theirs.state_dict())})
    ours = load_model(TIMM, num_classes=3, image_size=64)
    assert not ours.head.weight.any() and ours.head.weight.shape == (3, 256)
    assert torch.equal(ours.body.bn1.running_mean, theirs.bn1.running_mean)
    assert ours.body.bn1.num_batches_tracked == 5
    assert ours(torch.zeros(1, 3, 64, 64)).shape == (1, 3)


@downloads
def test_weights_of_another_network_are_refused_by_name(hub: Hub) -> None:
    hub.add(REPO, {"model.safetensors": save(timm.create_model("test_resnet").state_dict())})
    with pytest.raises(DataError, match="is missing"):
        read_checkpoint(TIMM)


@downloads
def test_objects_beside_tensors_are_never_loaded(hub: Hub, tmp_path) -> None:
    torch.save({"hidden": Path("x")}, tmp_path / "pytorch_model.bin")
    hub.add(REPO, {"pytorch_model.bin": (tmp_path / "pytorch_model.bin").read_bytes()})
    with pytest.raises(DataError, match="never loaded"):
        read_checkpoint(TIMM)


def test_without_the_hub_it_says_which_files_are_wanted(offline) -> None:
    with pytest.raises(DataError, match="not in the cache"):
        read_checkpoint(TIMM)


@downloads
def test_positions_of_other_packages_are_not_resampled(hub: Hub) -> None:
    hub.add("timm/test_vit.r160_in1k", {"model.safetensors": save(timm.create_model("test_vit").state_dict())})
    assert load_model("timm:test_vit", num_classes=2).config.image_size == (160, 160)
    with pytest.raises(UsageError, match="are for images of 160x160 pixels; wanted the same, not 96x96"):
        load_model("timm:test_vit", image_size=96)


def test_a_network_without_published_weights_is_sent_to_training() -> None:
    with pytest.raises(UsageError, match=r"no weights are published for timm:botnet50ts_256.* `vitrail train"):
        read_checkpoint("timm:botnet50ts_256")


@pytest.fixture
def torch_cache(tmp_path, monkeypatch) -> Path:
    monkeypatch.setenv("TORCH_HOME", str(tmp_path / "torch"))
    return tmp_path / "torch" / "hub" / "checkpoints"


@pytest.fixture
def web(tmp_path, monkeypatch) -> dict[str, Any]:
    """A file of torchvision on the web, at an address that says its hash, and what was asked for."""
    torch.manual_seed(0)
    theirs = torchvision.mobilenet_v3_small().eval()
    torch.save(theirs.state_dict(), tmp_path / "web.pth")
    found = hashlib.sha256((tmp_path / "web.pth").read_bytes()).hexdigest()
    address = f"https://download.pytorch.org/models/small-{found[:8]}.pth"
    web = {"network": theirs, "file": tmp_path / "web.pth", "asked": []}

    class Published:
        """What torchvision says, with the address of our file."""

        url, name = address, "IMAGENET1K_V1"
        meta = torchvision.MobileNet_V3_Small_Weights.DEFAULT.meta
        transforms = torchvision.MobileNet_V3_Small_Weights.DEFAULT.transforms

    for module in (packages, peer):
        monkeypatch.setattr(module, "published", lambda _peer: Published)

    def download(url: str, target: str, hash_prefix: str, progress: bool) -> None:
        web["asked"].append(url)
        if web["file"] is None:
            raise URLError("no route")
        shutil.copy(web["file"], target)

    monkeypatch.setattr(torch.hub, "download_url_to_file", download)
    return web


def test_weights_of_torchvision_come_from_its_address_once(web, torch_cache) -> None:
    with pytest.warns(Notice, match="Downloading https://download.pytorch.org"):
        ours = load_model("torchvision:mobilenet_v3_small")
    images = torch.randn(2, 3, 224, 224)
    with torch.no_grad():
        assert torch.equal(ours(images), web["network"](images))
    load_model("torchvision:mobilenet_v3_small")
    assert len(web["asked"]) == 1 and len(list(torch_cache.iterdir())) == 1
    assert ours.provenance["tag"] == "IMAGENET1K_V1" and ours.provenance["address"] == web["asked"][0]


@downloads
def test_a_file_that_is_not_what_its_name_promises_is_refused(web, torch_cache) -> None:
    load_model("torchvision:mobilenet_v3_small")
    (file,) = torch_cache.iterdir()
    file.write_bytes(file.read_bytes()[:-1] + b"x")
    with pytest.raises(DataError, match=r"SHA-256 of the file begins with [0-9a-f]{8}; wanted"):
        load_model("torchvision:mobilenet_v3_small")


@downloads
def test_without_the_web_it_says_where_to_put_the_file(web, torch_cache) -> None:
    web["file"] = None
    with pytest.raises(DataError, match=r"cannot be reached \(no route\).*Download it elsewhere and put it at"):
        load_model("torchvision:mobilenet_v3_small")
    assert not list(torch_cache.iterdir())


@pytest.mark.parametrize("name", ["resnet18", "resnet50", "efficientnet_b1"])
def test_images_are_prepared_as_torchvision_prepares_them(name) -> None:
    weights = torchvision.get_model_weights(name).DEFAULT
    used = peer._torchvision(weights)
    generator = np.random.default_rng(0)
    for height, width in ((300, 400), (517, 311), (224, 224)):
        image = Image.fromarray(generator.integers(0, 256, (height, width, 3), dtype=np.uint8))
        wanted = weights.transforms()(image)
        side = wanted.shape[-1]
        pixels = fit_for_evaluation(image, (side, side), used)
        ours = torch.from_numpy(normalised(pixels.permute(1, 2, 0).numpy(), used))
        assert torch.allclose(ours, wanted, atol=1e-5)


def test_every_share_of_torchvision_gives_its_own_size_before_the_crop() -> None:
    for name in torchvision.list_models(module=torchvision):
        for weights in torchvision.get_model_weights(name):
            made, used = weights.transforms(), peer._torchvision(weights)
            assert used.crop is not None
            assert int(made.crop_size[0] / used.crop) == made.resize_size[0], weights


def test_what_timm_does_otherwise_is_told() -> None:
    assert peer._timm(PretrainedCfg(crop_mode="center", crop_pct=0.95)).crop == 0.95
    assert peer._timm(PretrainedCfg(crop_mode="squash", crop_pct=1.0)).crop is None
    squashed = peer._timm(PretrainedCfg(crop_mode="squash", crop_pct=0.9))
    assert (squashed.crop, squashed.squash) == (0.9, True)
    with pytest.warns(Notice, match="only near it"):
        assert peer._timm(PretrainedCfg(crop_mode="border", crop_pct=0.9)).crop == 0.9
