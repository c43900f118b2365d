"""The input pipelines that are timed: each turns class folders into normalised float batches on a device."""

import warnings
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import torch
from torch import Tensor
from torch.utils.data import DataLoader
from torchvision.datasets import ImageFolder
from torchvision.transforms import InterpolationMode, v2

from vitrail.config import AugmentConfig, Preprocessing
from vitrail.data import open_data
from vitrail.data.loading.loader import training_batches
from vitrail.data.loading.order import Stream
from vitrail.data.loading.prepare import Preparation

SIZE = 224
MIN_AREA = 0.05
HALF = (0.5, 0.5, 0.5)
# What torch and timm keep ready per worker unless told otherwise.
PREFETCH = 2


@dataclass(frozen=True)
class Setting:
    """What all pipelines are asked for."""

    folder: Path
    packed: Path
    batch: int
    workers: int
    device: torch.device


Batches = Iterator[tuple[Tensor, Tensor]]


def preparation(decoder: str) -> Preparation:
    """Bilinear with antialias, as the others."""
    return Preparation(
        size=(SIZE, SIZE),
        preprocessing=Preprocessing(mean=HALF, std=HALF, interpolation="bilinear"),
        augment=AugmentConfig(min_area=MIN_AREA),
        decoder=decoder,  # type: ignore[arg-type]
    )


def ours(setting: Setting, data: Path, decoder: str) -> Batches:
    """Ours, from files or from a packed copy."""
    source = open_data(data)
    stream = Stream(length=len(source), batch_size=setting.batch, seed=0)
    for batch in training_batches(source, stream, preparation(decoder), device=setting.device, workers=setting.workers):
        yield batch.images, batch.targets


def timm(setting: Setting) -> Batches:
    """timm's loader with its prefetcher, which normalises on the device."""
    from timm.data import create_loader
    from timm.data.dataset import ImageDataset

    loader = create_loader(
        ImageDataset(str(setting.folder)),
        input_size=(3, SIZE, SIZE),
        batch_size=setting.batch,
        is_training=True,
        use_prefetcher=True,
        scale=(MIN_AREA, 1.0),
        interpolation="bilinear",
        color_jitter=None,
        auto_augment=None,
        mean=HALF,
        std=HALF,
        num_workers=setting.workers,
        device=setting.device,
        pin_memory=setting.device.type == "cuda",
    )
    while True:
        yield from loader


def torchvision_pil(setting: Setting) -> Batches:
    """torchvision's usual pipeline: Pillow decodes, crops and flips, tensors at the end."""
    steps = v2.Compose([_crop(), v2.RandomHorizontalFlip(), v2.PILToTensor()])
    return _torch_loader(setting, ImageFolder(str(setting.folder), steps))


def torchvision_tensor(setting: Setting) -> Batches:
    """torchvision's fastest: decoded straight into tensors of bytes, transformed as such."""
    steps = v2.Compose([_crop(), v2.RandomHorizontalFlip()])
    return _torch_loader(setting, ImageFolder(str(setting.folder), steps, loader=_read_tensor))


def _crop() -> v2.Transform:
    return v2.RandomResizedCrop(SIZE, scale=(MIN_AREA, 1.0), interpolation=InterpolationMode.BILINEAR, antialias=True)


def _read_tensor(path: str) -> Tensor:
    from torchvision.io import ImageReadMode, decode_image, read_file

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return decode_image(read_file(path), mode=ImageReadMode.RGB)


def _torch_loader(setting: Setting, data: ImageFolder) -> Batches:
    on_gpu = setting.device.type == "cuda"
    loader = DataLoader(
        data, setting.batch, shuffle=True, num_workers=setting.workers, pin_memory=on_gpu, drop_last=True
    )
    while True:
        for images, labels in loader:
            images = images.to(setting.device, non_blocking=True)
            yield (
                images.to(torch.float32).div_(127.5).sub_(1.0),
                labels.to(setting.device, non_blocking=True),
            )


OURS = {
    "vitrail, packed": lambda setting: ours(setting, setting.packed, "pillow"),
    "vitrail, decoder fast": lambda setting: ours(setting, setting.folder, "fast"),
    "vitrail, decoder pillow": lambda setting: ours(setting, setting.folder, "pillow"),
}
PEERS: dict[str, Callable[[Setting], Batches]] = {
    "timm": timm,
    "torchvision, PIL": torchvision_pil,
    "torchvision, tensors": torchvision_tensor,
}
