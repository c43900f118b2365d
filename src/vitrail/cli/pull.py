"""`vitrail pull`: weights from the hub as a model folder of ours."""

from pathlib import Path
from typing import Annotated

import tyro

from vitrail.cli.terminal import console, megabytes
from vitrail.config import peer_name
from vitrail.errors import UsageError, choose, notice
from vitrail.runtime.atomic import atomic_file
from vitrail.weights.card import CARD_FILE, model_card
from vitrail.weights.checkpoint import Checkpoint, to_model
from vitrail.weights.folder import WEIGHTS_FILE, read_text, sidecar
from vitrail.weights.hub import fetch, is_hub, with_origin, zoo_source
from vitrail.weights.load import read_checkpoint
from vitrail.weights.record import FORMAT
from vitrail.weights.save import write_checkpoint
from vitrail.zoo import ZOO


def run(
    source: Annotated[str, tyro.conf.Positional, tyro.conf.arg(metavar="REPO_OR_KEY")],
    target: Annotated[Path, tyro.conf.Positional, tyro.conf.arg(metavar="TARGET")],
    /,
    overwrite: bool = False,
) -> None:
    """Download a model from the Hugging Face hub and write it as a model folder, with its preprocessing and a card.

    Args:
        source: A repository (owner/name, owner/name@revision), a name from `vitrail list models` with weights,
            timm:NAME or torchvision:NAME.
        target: The folder to write.
        overwrite: Replace a model folder that is there already.
    """
    if target.exists() and not overwrite:
        raise UsageError("is there already", where=str(target), fix="Choose another target, or add --overwrite.")
    if peer_name(source) is not None:
        path, checkpoint = None, read_checkpoint(source)
    else:
        published = None if is_hub(source) or "/" in source else zoo_source(choose("model", source, ZOO))
        repo = published.hub if published else source
        path = fetch(repo)
        checkpoint = with_origin(read_checkpoint(path), path, repo, published)
    to_model(checkpoint, source)
    write_checkpoint(checkpoint, target, "vitrail")
    with atomic_file(target / CARD_FILE) as temporary:
        temporary.write_text(_card(checkpoint, path, target), encoding="utf-8")
    _tell(checkpoint, target)


def _card(checkpoint: Checkpoint, path: Path | None, target: Path) -> str:
    """The card that its author wrote for our format; one for another library would mislead, so we write our own."""
    if path is not None and (path / CARD_FILE).is_file() and sidecar(path).get("format") == FORMAT:
        return read_text(path / CARD_FILE)
    return model_card(checkpoint, target.name)


def _tell(checkpoint: Checkpoint, target: Path) -> None:
    parameters = sum(tensor.numel() for tensor in checkpoint.state.values())
    size = megabytes((target / WEIGHTS_FILE).stat().st_size)
    source = " at ".join(
        checkpoint.provenance[name] for name in ("hub", "commit", "address") if name in checkpoint.provenance
    )
    console().print(f"{target}: {parameters:,} parameters, {size}, from {source}", markup=False, soft_wrap=True)
    if checkpoint.preprocessing is None:
        notice(f"{target}: its preprocessing is not recorded; say it with --preprocessing before it predicts.")
