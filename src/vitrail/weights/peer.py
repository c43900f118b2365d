"""Published weights of timm and torchvision: fetched by us, checked, and read without running what is in them."""

import dataclasses
import hashlib
import re
import sys
from pathlib import Path
from typing import Any
from urllib.error import URLError

import torch
from torch import Tensor

from vitrail.config import PeerName, Preprocessing
from vitrail.config.preprocessing import crop_share
from vitrail.errors import DataError, UsageError, command, notice
from vitrail.models.empty import empty
from vitrail.models.packages import peer_config, published
from vitrail.models.peer import PeerNetwork
from vitrail.weights.checkpoint import Checkpoint, State, compare_tensors
from vitrail.weights.folder import WEIGHTS_FILE
from vitrail.weights.hub import fetch, with_origin
from vitrail.weights.layout import as_float32
from vitrail.weights.safetensors_file import read_safetensors
from vitrail.weights.torch_file import read_torch

# The end of an address says how the SHA-256 of its file begins: resnet18-f37072fd.pth.
_HASH = re.compile(r"-([0-9a-f]{8,64})\.[a-z0-9]+$")
_OLD_DENSE = re.compile(r"(denselayer\d+\.(?:norm|conv))\.(\d)")


def read_peer(peer: PeerName) -> Checkpoint:
    """The published weights of a network of timm or torchvision, with the preprocessing that its package names."""
    found = published(peer)
    address = getattr(found, "url", "")
    hub = getattr(found, "hf_hub_id", None)
    if not hub and not address:
        raise UsageError(
            f"no weights are published for {peer.package}:{peer.name}",
            fix=f"`{command('train', f'{peer.package}:{peer.name}', data='DATA')}` trains it from scratch.",
        )
    path = fetch(hub) if hub else _download(address)
    network = empty(lambda: PeerNetwork(peer_config(peer)))
    state = _renamed(_tensors(path), network.head_name, str(path))
    compare_tensors(state, {name: tuple(tensor.shape) for name, tensor in network.state_dict().items()}, str(path))
    checkpoint = Checkpoint(
        config=network.config,
        state=state,
        labels=None,
        preprocessing=_timm(found) if peer.package == "timm" else _torchvision(found),
        provenance={"layout": peer.package, "network": peer.name, "tag": peer.tag or _tag(found), **_licence(found)},
    )
    if hub:
        return with_origin(checkpoint, path, hub)
    return dataclasses.replace(checkpoint, provenance={**checkpoint.provenance, "address": address})


def _tensors(path: Path) -> dict[str, Tensor]:
    if path.is_dir():
        path = next((path / name for name in (WEIGHTS_FILE, "pytorch_model.bin") if (path / name).is_file()), path)
    return read_safetensors(path)[0] if path.suffix == ".safetensors" else read_torch(path)


def _renamed(tensors: dict[str, Tensor], head: str, where: str) -> State:
    """Our names: the head is called so, and all the rest lies in the body."""
    state: State = {}
    for name, tensor in tensors.items():
        # torchvision's files of DenseNets are older than its own names.
        name = _OLD_DENSE.sub(r"\1\2", name)
        is_head = name.startswith(f"{head}.")
        state[f"head.{name.removeprefix(f'{head}.')}" if is_head else f"body.{name}"] = as_float32(tensor, name, where)
    return state


def _download(address: str) -> Path:
    """A file of the web in torch's own cache, where torchvision finds it too; its hash stands in its name."""
    stated = _HASH.search(address)
    if not address.startswith("https://") or stated is None:
        raise DataError("its address says no hash by which the file could be checked", where=address)
    path = Path(torch.hub.get_dir()) / "checkpoints" / address.rpartition("/")[2]
    if not path.is_file():
        notice(f"Downloading {address}.")
        path.parent.mkdir(parents=True, exist_ok=True)
        try:
            torch.hub.download_url_to_file(address, str(path), stated[1], progress=sys.stderr.isatty())
        except (URLError, TimeoutError, ConnectionError) as error:
            fix = f"Download it elsewhere and put it at {path}."
            raise DataError(f"cannot be reached ({getattr(error, 'reason', error)})", where=address, fix=fix) from None
        except RuntimeError:  # torch's word for a hash that is another
            raise DataError("what came is not the file that its name promises", where=address) from None
    with path.open("rb") as file:
        found = hashlib.file_digest(file, "sha256").hexdigest()
    if not found.startswith(stated[1]):
        raise DataError(
            f"the SHA-256 of the file begins with {found[:8]}", wanted=stated[1], where=str(path), fix="Delete it."
        )
    return path


def _timm(found: Any) -> Preprocessing:
    """timm's settings."""
    squashed = found.crop_mode == "squash"
    if found.crop_mode == "border":
        notice(f"timm prepares images with crop_mode {found.crop_mode} at {found.crop_pct:g}: here it is only near it.")
    return Preprocessing(
        mean=tuple(found.mean),
        std=tuple(found.std),
        interpolation="bilinear" if found.interpolation == "bilinear" else "bicubic",
        crop=None if squashed and found.crop_pct >= 1 else min(found.crop_pct, 1.0),
        squash=squashed and found.crop_pct < 1,
    )


def _torchvision(found: Any) -> Preprocessing:
    made = found.transforms()
    (cropped,), (resized,) = made.crop_size, made.resize_size
    return Preprocessing(
        mean=tuple(made.mean),
        std=tuple(made.std),
        interpolation="bilinear" if made.interpolation.value == "bilinear" else "bicubic",
        crop=crop_share(cropped, max(cropped, resized)),
        antialias=bool(made.antialias),
    )


def _tag(found: Any) -> str:
    """Which weights they are, where nobody said."""
    return str(getattr(found, "tag", None) or getattr(found, "name", ""))


def _licence(found: Any) -> dict[str, str]:
    stated = getattr(found, "license", None)
    return {"licence": stated} if isinstance(stated, str) else {}
