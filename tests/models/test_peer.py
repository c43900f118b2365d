"""Networks of timm and torchvision compute here what they compute there."""

import sys

import pytest
import timm
import torch
from torchvision import models as torchvision

from vitrail import create_model, load_model, save_model
from vitrail.config import PeerConfig, PeerName, peer_name
from vitrail.errors import DataError, UsageError
from vitrail.models import PeerNetwork
from vitrail.models.cost import kept_bytes, measure_cost
from vitrail.models.empty import build_empty
from vitrail.models.peer import ensure_takes_size
from vitrail.weights.parts import PEER, parts_of
from vitrail.weights.record import Described, read_record, record_text

SMALL = [
    ("timm", "test_efficientnet"),
    ("timm", "test_vit"),
    pytest.param("timm", "test_convnext", marks=pytest.mark.slow),
    pytest.param("torchvision", "mobilenet_v3_small", marks=pytest.mark.slow),
]
# Heads, pools, positions and tables of every kind; swin and regnet compute tables or their shape with tensors.
FAMILIES = [
    *(
        ("timm", name)
        for name in ("swin_tiny_patch4_window7_224", "resnetblur18", "mobilenetv3_small_050", "beit_base_patch16_224")
    ),
    *(
        ("timm", name)
        for name in ("vgg11", "densenet121", "regnety_002", "maxvit_nano_rw_256", "vit_base_patch16_rope_224")
    ),
    *(("torchvision", name) for name in ("alexnet", "vgg11_bn", "densenet121", "regnet_y_400mf", "shufflenet_v2_x0_5")),
    *(("torchvision", name) for name in ("swin_t", "swin_v2_t", "convnext_tiny", "vit_b_32", "maxvit_t")),
]


def theirs(package: str, name: str, config: PeerConfig) -> torch.nn.Module:
    """The package's own module, as its own users build it."""
    torch.manual_seed(0)
    if package == "timm":
        size = {"img_size": config.image_size} if timm.get_pretrained_cfg(name).fixed_input_size else {}
        return timm.create_model(name, num_classes=config.num_classes, **size).eval()
    return torchvision.get_model(name, weights=None, num_classes=config.num_classes).eval()


def settle(module: torch.nn.Module) -> None:
    """Weights and statistics that are neither zero nor one, so that a wrong one shows."""
    generator = torch.Generator().manual_seed(1)
    for name, tensor in module.state_dict().items():
        if tensor.is_floating_point():
            noise = 0.02 * torch.randn(tensor.shape, generator=generator)
            tensor.add_(noise.abs() if name.endswith("running_var") else noise)


def compare_with_package(package: str, name: str, size: int | None, tmp_path) -> None:
    torch.manual_seed(0)
    ours = create_model(f"{package}:{name}", num_classes=7, **({"image_size": size} if size else {})).eval()
    assert isinstance(ours, PeerNetwork)
    module = theirs(package, name, ours.config)
    head = f"{ours.head_name}."
    module.load_state_dict(
        {
            name.removeprefix("body.") if name.startswith("body.") else head + name.removeprefix("head."): tensor
            for name, tensor in ours.state_dict().items()
        }
    )
    settle(module)
    settled = {
        f"head.{name.removeprefix(head)}" if name.startswith(head) else f"body.{name}": tensor
        for name, tensor in module.state_dict().items()
    }
    ours.load_state_dict(settled)
    images = torch.randn(2, 3, *ours.config.image_size)
    with torch.no_grad():
        wanted = module(images)
        assert torch.equal(ours(images), wanted)
        features = ours.features(images)
        assert torch.equal(ours.head(features), wanted)
        if package == "timm":
            assert torch.equal(features, module.forward_head(module.forward_features(images), pre_logits=True))
        save_model(ours, tmp_path / "model")
        again = load_model(tmp_path / "model")
        assert again.config == ours.config
        assert torch.equal(again(images), wanted)


@pytest.mark.parametrize(("package", "name"), SMALL)
def test_logits_are_those_of_the_package_and_files_keep_them(package, name, tmp_path) -> None:
    compare_with_package(package, name, 64, tmp_path)


@pytest.mark.slow
@pytest.mark.parametrize(("package", "name"), FAMILIES)
def test_so_are_those_of_every_family(package, name, tmp_path) -> None:
    compare_with_package(package, name, None, tmp_path)


def test_first_weights_are_a_function_of_the_seed() -> None:
    made = []
    for _ in range(2):
        torch.manual_seed(3)
        made.append(create_model("timm:test_efficientnet", num_classes=3).state_dict())
    assert all(torch.equal(made[0][name], made[1][name]) for name in made[0])


@pytest.mark.parametrize("source", ["vit-b16", "hf-hub:timm/x", "runs/timm:thing", "C:\\models", "timm", "timmy:x"])
def test_other_sources_are_no_peers(source) -> None:
    assert peer_name(source) is None


def test_names_are_read() -> None:
    assert peer_name("timm:resnet18.a1_in1k") == PeerName("timm", "resnet18", "a1_in1k")
    assert peer_name("torchvision:resnet18") == PeerName("torchvision", "resnet18")


@pytest.mark.parametrize(
    "source", ["timm:", "timm:hf-hub:x/y", "timm:../x", "timm:a.b.c", "torchvision:a b", "timm:a."]
)
def test_what_cannot_be_a_name_is_refused(source) -> None:
    with pytest.raises(UsageError, match="cannot be a network of"):
        peer_name(source)


@pytest.mark.parametrize("name", ["hf-hub:owner/name", "local-dir:/tmp/x", "x.y", "", 3])
def test_a_config_from_a_file_cannot_name_an_address(name) -> None:
    record = record_text(Described(config=PeerConfig(package="timm", name="test_vit"))).replace(
        '"test_vit"', repr(name).replace("'", '"')
    )
    with pytest.raises(DataError, match="name"):
        read_record(record, "here")


def test_the_record_says_peer_and_reads_back() -> None:
    config = PeerConfig(package="torchvision", name="resnet18", image_size=(32, 48), num_classes=3, dropout=0.2)
    text = record_text(Described(config=config))
    assert '"family": "peer"' in text
    assert read_record(text, "here").config == config


def test_a_wrong_name_is_met_with_the_nearest() -> None:
    with pytest.raises(UsageError, match="Did you mean 'efficientnet_b0'"):
        create_model("timm:efficientnet_b00")
    with pytest.raises(UsageError, match="Did you mean 'resnet18'"):
        create_model("torchvision:resnet_18")
    with pytest.raises(UsageError, match="Did you mean 'ra_in1k'"):
        create_model("timm:efficientnet_b0.ra_in1")
    # A detector is no classifier, though torchvision has it.
    with pytest.raises(UsageError, match="Unknown network of torchvision"):
        create_model("torchvision:fasterrcnn_resnet50_fpn")


def test_without_the_package_the_command_that_brings_it_is_named(monkeypatch) -> None:
    monkeypatch.setitem(sys.modules, "timm", None)
    with pytest.raises(UsageError, match=r"pip install 'vitrail\[peers\]'"):
        create_model("timm:test_vit")


@pytest.mark.parametrize("source", ["torchvision:squeezenet1_1", "torchvision:inception_v3", "timm:levit_128s"])
def test_a_head_that_is_not_one_linear_layer_is_refused(source) -> None:
    with pytest.raises(UsageError, match="does not end in one linear layer"):
        create_model(source)


def test_what_the_package_cannot_build_is_one_sentence() -> None:
    with pytest.raises(UsageError, match=r"torchvision cannot build resnet18 so .*dropout"):
        create_model("torchvision:resnet18", dropout=0.5)
    with pytest.raises(UsageError, match="3 channels"):
        create_model("torchvision:resnet18", channels=1)
    with pytest.raises(UsageError, match="cannot build mnasnet0_5"):
        create_model("torchvision:mnasnet0_5")
    with pytest.raises(UsageError, match="cannot take images of 16x16"):
        ensure_takes_size(PeerConfig(package="torchvision", name="vgg11", image_size=(16, 16)))
    ensure_takes_size(PeerConfig(package="torchvision", name="vgg11", image_size=(32, 32)))


def test_drop_rates_reach_the_package() -> None:
    made = create_model("torchvision:efficientnet_b0", num_classes=2, dropout=0.5, stochastic_depth=0.0, image_size=32)
    assert made.body.classifier[0].p == 0.5
    assert {part.p for part in made.modules() if type(part).__name__ == "StochasticDepth"} == {0.0}
    assert create_model("timm:test_efficientnet", dropout=0.25).body.drop_rate == 0.25


def test_one_channel_and_no_classes() -> None:
    network = create_model("timm:test_efficientnet", channels=1, num_classes=0, image_size=32).eval()
    found = network(torch.zeros(2, 1, 32, 32))
    assert found.shape == (2, 256)
    with pytest.raises(UsageError, match="3 channels; wanted 1"):
        network(torch.zeros(2, 3, 32, 32))


def test_the_cost_is_the_published_one() -> None:
    cost = measure_cost(build_empty(PeerConfig(package="torchvision", name="resnet18")).config)
    assert cost.parameters == 11_689_512
    assert cost.macs == pytest.approx(1.814e9, rel=1e-3)
    # At 32 pixels its last map is a single cell, of which a BatchNorm in training wants two.
    small = PeerConfig(package="torchvision", name="resnet18", image_size=(32, 32))
    assert kept_bytes(small) == measure_cost(small).training_bytes > 0


def test_what_looks_for_tokens_or_other_layouts_is_refused(tmp_path) -> None:
    network = create_model("timm:test_vit", num_classes=2, image_size=64)
    assert parts_of(network.config) == [PEER]
    with pytest.raises(UsageError, match="shows no tokens"):
        network.tokens(torch.zeros(1, 3, 64, 64))
    for layout, file in (("timm", "a.safetensors"), ("google", "a.npz"), ("torchvision", "b.safetensors")):
        with pytest.raises(UsageError, match="cannot hold a network that another package builds"):
            save_model(network, tmp_path / file, layout)
    assert not list(tmp_path.iterdir())
