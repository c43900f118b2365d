"""A network of timm or torchvision in the place of one of ours: the same head, features and files around it."""

import torch
from jaxtyping import Float
from torch import Tensor, nn

from vitrail.config import PeerConfig, times
from vitrail.errors import UsageError, setting
from vitrail.models.classifier import Classifier
from vitrail.models.embedding import check_channels
from vitrail.models.packages import build_module, head_name

Images = Float[Tensor, "batch channels height width"]


class PeerNetwork(Classifier[PeerConfig]):
    """The package's module without its last linear layer, which becomes the head; it computes what it did before."""

    def __init__(self, config: PeerConfig) -> None:
        super().__init__(config)
        self.body = build_module(config)
        self.head_name = head_name(self.body, config)
        head = self.body.get_submodule(self.head_name)
        self.body.set_submodule(self.head_name, nn.Identity())
        self.head = head if config.num_classes else nn.Identity()

    def tokens(self, images: Images) -> Float[Tensor, "batch tokens dim"]:
        raise UsageError(f"{self.config.title} shows no tokens", wanted="its features, or a network of ours")

    def features(self, images: Images) -> Float[Tensor, "batch dim"]:
        check_channels(images, self.config.channels)
        return self.body(images)

    def fill_fixed_tables(self) -> None:
        """Take tables that are computed and not stored from a second network, built with memory."""
        stored = self.body.state_dict().keys()
        missing = [name for name, _ in self.body.named_buffers() if name not in stored]
        if not missing:
            return
        with torch.random.fork_rng(devices=[]):
            fresh = dict(build_module(self.config).named_buffers())
        device = next(self.parameters()).device
        for name in missing:
            module, _, table = name.rpartition(".")
            setattr(self.body.get_submodule(module), table, fresh[name].to(device))


def ensure_takes_size(config: PeerConfig) -> None:
    """Refuse an image size that the network cannot compute, before any image is read: it halves the image often."""
    with torch.device("meta"), torch.no_grad():
        network = PeerNetwork(config).eval()
        try:
            network(torch.empty(2, config.channels, *config.image_size))
        except (RuntimeError, ValueError, AssertionError) as error:
            said = " ".join(str(error).split())[:120]
            raise UsageError(
                f"{config.title} cannot take images of {times(config.image_size)} pixels ({said})",
                wanted="another size",
                fix=f"Add {setting('image_size', 224)}, say.",
            ) from None
