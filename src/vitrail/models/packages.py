"""timm and torchvision: which networks they have, and one of them built with fresh weights; imported when asked for."""

import importlib
from collections.abc import Iterable
from typing import Any

import torch
from torch import nn

from vitrail.config import PeerConfig, PeerName
from vitrail.config.peer import Package
from vitrail.errors import UsageError, choose

# Networks of torchvision that are made for one image size, and what they call it.
_SIZES = {"vit_": "image_size", "maxvit_": "input_size"}


def package(name: Package) -> Any:
    """The package itself."""
    try:
        return importlib.import_module("timm" if name == "timm" else "torchvision.models")
    except ImportError as error:
        raise UsageError(
            f"{name} is needed for this network and cannot be imported ({error})",
            fix="pip install 'vitrail[peers]'",
        ) from None


def ensure_known(peer: PeerName | PeerConfig) -> None:
    """Refuse a name that the package does not have, and suggest the nearest."""
    found = package(peer.package)
    names = found.list_models() if peer.package == "timm" else found.list_models(module=found)
    choose(f"network of {peer.package}", peer.name, names)


def published(peer: PeerName) -> Any:
    """What the package says of published weights: timm's PretrainedCfg, torchvision's WeightsEnum; none without any."""
    ensure_known(peer)
    found = package(peer.package)
    if peer.package == "timm":
        known = {name.partition(".")[2] for name in found.models.get_arch_pretrained_cfgs(peer.name)}
        _ensure_tag(peer, known)
        return found.get_pretrained_cfg(f"{peer.name}.{peer.tag}" if peer.tag else peer.name)
    weights = found.get_model_weights(peer.name)
    _ensure_tag(peer, weights.__members__)
    # The last member is an alias of the best one.
    return weights[peer.tag] if peer.tag else getattr(weights, "DEFAULT", None)


def peer_config(peer: PeerName) -> PeerConfig:
    """The network with the image size and the number of classes of its published weights."""
    found = published(peer)
    if found is None:
        return PeerConfig(package=peer.package, name=peer.name)
    if peer.package == "timm":
        (channels, height, width), classes = found.input_size, found.num_classes
    else:
        channels, height, width = 3, *2 * found.transforms().crop_size
        classes = len(found.meta["categories"])
    return PeerConfig(
        package=peer.package, name=peer.name, image_size=(height, width), channels=channels, num_classes=classes
    )


def build_module(config: PeerConfig) -> nn.Module:
    """The network as its package makes it; it always has a head, of one output where no classes are wanted."""
    ensure_known(config)
    build = _timm if config.package == "timm" else _torchvision
    try:
        return build(config)
    except (TypeError, ValueError, AssertionError, RuntimeError) as error:
        if torch.get_default_device().type == "meta":
            # Some compute their own shape with tensors, which needs memory.
            with torch.device("cpu"):
                return build_module(config).to("meta")
        said = " ".join(str(error).split())[:200]
        raise UsageError(f"{config.package} cannot build {config.name} so ({said})") from None


def head_name(module: nn.Module, config: PeerConfig) -> str:
    """Where the head of a package's network is: one linear layer, which everything here that has a head relies on."""
    linear = [name for name, part in module.named_modules() if isinstance(part, nn.Linear)]
    if config.package == "timm":
        own = getattr(module, "get_classifier", lambda: None)()
        linear = [name for name in linear if module.get_submodule(name) is own]
    # torchvision's last, whatever it is called there: fc, classifier.6, heads.head.
    wanted = max(config.num_classes, 1)
    if hasattr(module, "aux_logits") or not linear or module.get_submodule(linear[-1]).out_features != wanted:
        raise UsageError(
            f"{config.title} does not end in one linear layer", wanted="a network with such a head, as most have"
        )
    return linear[-1]


def _ensure_tag(peer: PeerName, known: Iterable[str]) -> None:
    if peer.tag is not None:
        choose(f"tag of {peer.package}:{peer.name}", peer.tag, sorted(name for name in known if name))


def _timm(config: PeerConfig) -> nn.Module:
    timm = package("timm")
    known = timm.get_pretrained_cfg(config.name)
    size = config.image_size[0] if len(set(config.image_size)) == 1 else config.image_size
    rates = {"drop_rate": config.dropout, "drop_path_rate": config.stochastic_depth}
    return timm.create_model(
        config.name,
        pretrained=False,
        num_classes=max(config.num_classes, 1),
        in_chans=config.channels,
        **({"img_size": size} if known is not None and known.fixed_input_size else {}),
        **{name: rate for name, rate in rates.items() if rate is not None},
    )


def _torchvision(config: PeerConfig) -> nn.Module:
    if config.channels != 3:
        raise ValueError("its networks take 3 channels")
    if config.name.startswith("mnasnet"):
        raise ValueError("it reads back no weights but those that torch itself has written")
    rates = {"dropout": config.dropout, "stochastic_depth_prob": config.stochastic_depth}
    arguments: dict[str, Any] = {name: rate for name, rate in rates.items() if rate is not None}
    for prefix, argument in _SIZES.items():
        if config.name.startswith(prefix):
            height, width = config.image_size
            if height != width:
                raise ValueError("it takes square images")
            arguments[argument] = height if argument == "image_size" else (height, width)
    if config.name in ("googlenet", "inception_v3"):
        # Its first weights take a minute, and it is refused for its auxiliary outputs in any case.
        arguments["init_weights"] = False
    return package("torchvision").get_model(
        config.name, weights=None, num_classes=max(config.num_classes, 1), **arguments
    )
