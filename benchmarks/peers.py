"""The other libraries: each builds the network that one of our configs describes, with random weights."""

import importlib.util
from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import nn

from vitrail.config import ModelConfig, VitConfig
from vitrail.errors import UsageError

OURS = "vitrail"

# A standard deviation of 1 / sqrt(inputs) would be usual; half of it keeps the deepest networks in bf16's best range.
_WEIGHT_SCALE = 0.5
_VECTOR_SCALE = 0.1
_VECTOR_MEAN = 0.5


@dataclass(frozen=True, kw_only=True)
class Peer:
    """A library: what it is called, what is installed and imported for it, and how it makes a network."""

    name: str
    distribution: str
    module: str
    build: Callable[[VitConfig], nn.Module]
    readable: bool = True
    """Whether we read its weights, so that ours can be shown to compute the same function."""
    channels: tuple[int, ...] | None = None
    """The numbers of input channels it can take, where it cannot take any."""

    @property
    def installed(self) -> bool:
        return importlib.util.find_spec(self.module) is not None

    def why_not(self, config: VitConfig) -> str:
        """Why it takes no part, or nothing."""
        if not self.installed:
            return "it is not installed"
        if self.channels is not None and config.channels not in self.channels:
            return f"it has no network for images of {config.channels} channel(s)"
        return ""


def _timm(config: VitConfig) -> nn.Module:
    from timm.models.vision_transformer import VisionTransformer

    return VisionTransformer(
        img_size=config.image_size[0],
        patch_size=config.patch_size[0],
        in_chans=config.channels,
        num_classes=config.num_classes,
        embed_dim=config.width,
        depth=config.depth,
        num_heads=config.num_heads,
        mlp_ratio=config.mlp_width / config.width,
    )


def _torchvision(config: VitConfig) -> nn.Module:
    from torchvision.models.vision_transformer import VisionTransformer

    return VisionTransformer(
        image_size=config.image_size[0],
        patch_size=config.patch_size[0],
        num_layers=config.depth,
        num_heads=config.num_heads,
        hidden_dim=config.width,
        mlp_dim=config.mlp_width,
        num_classes=config.num_classes,
    )


def _huggingface(config: VitConfig) -> nn.Module:
    from transformers import ViTConfig, ViTForImageClassification

    network = ViTForImageClassification(
        ViTConfig(
            hidden_size=config.width,
            num_hidden_layers=config.depth,
            num_attention_heads=config.num_heads,
            intermediate_size=config.mlp_width,
            image_size=config.image_size[0],
            patch_size=config.patch_size[0],
            num_channels=config.channels,
            num_labels=config.num_classes,
            hidden_dropout_prob=0.0,
            attention_probs_dropout_prob=0.0,
            attn_implementation="sdpa",
        )
    )
    if network.config._attn_implementation != "sdpa":
        raise RuntimeError(f"Hugging Face chose {network.config._attn_implementation!r} attention; wanted sdpa")
    return network


def _vit_pytorch(config: VitConfig) -> nn.Module:
    from vit_pytorch import ViT

    return ViT(
        image_size=config.image_size,
        patch_size=config.patch_size,
        num_classes=config.num_classes,
        dim=config.width,
        depth=config.depth,
        heads=config.num_heads,
        dim_head=config.width // config.num_heads,
        mlp_dim=config.mlp_width,
        pool="cls",
        channels=config.channels,
    )


PEERS = {
    peer.name: peer
    for peer in (
        Peer(name="timm", distribution="timm", module="timm", build=_timm),
        Peer(
            name="torchvision",
            distribution="torchvision",
            module="torchvision",
            build=_torchvision,
            channels=(3,),
        ),
        Peer(name="huggingface", distribution="transformers", module="transformers", build=_huggingface),
        Peer(
            name="vit-pytorch",
            distribution="vit-pytorch",
            module="vit_pytorch",
            build=_vit_pytorch,
            readable=False,
        ),
    )
}


def comparable(key: str, config: ModelConfig) -> VitConfig:
    """The config again, when every peer has such a network: a plain square ViT with a class token."""
    if not isinstance(config, VitConfig):
        raise UsageError(f"{key} is no ViT", wanted="a class-token ViT such as vit-s16")
    plain = config.class_token and config.backbone is None and not config.registers and config.pre_logits is None
    square = len(set(config.image_size)) == len(set(config.patch_size)) == 1
    if not (plain and square and config.position == "learned_1d" and config.position_at == "stem"):
        raise UsageError(f"{key} is not a plain class-token ViT", wanted="one that every library has, such as vit-s16")
    return config


def randomise(network: nn.Module, seed: int) -> nn.Module:
    """Nothing zero: torchvision starts with a zero head, and its logits would then agree with anything."""
    generator = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for parameter in network.parameters():
            noise = torch.randn(parameter.shape, generator=generator)
            if parameter.ndim > 1:
                parameter.copy_(noise * _WEIGHT_SCALE / parameter[0].numel() ** 0.5)
            else:
                parameter.copy_(noise * _VECTOR_SCALE + _VECTOR_MEAN)
    return network
