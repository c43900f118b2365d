"""`vitrail push`: a model to the hub, as a model folder of ours with a card."""

import tempfile
from pathlib import Path
from typing import Annotated

import tyro

from vitrail.cli.terminal import console
from vitrail.weights.folder import sidecar
from vitrail.weights.hub import checked_repo, push
from vitrail.weights.load import read_checkpoint
from vitrail.weights.record import FORMAT
from vitrail.weights.save import write_checkpoint


def run(
    model: Annotated[str, tyro.conf.Positional, tyro.conf.arg(metavar="MODEL")],
    repo: Annotated[str, tyro.conf.Positional, tyro.conf.arg(metavar="REPO")],
    /,
    public: bool = False,
) -> None:
    """Upload a model to the Hugging Face hub in one commit; a model of another layout is converted on the way.

    Args:
        model: A model folder or file of vitrail, Google, timm, torchvision or Hugging Face.
        repo: The repository, as owner/name; it is made if it is not there.
        public: Let everyone see it; without this, only its owner does.
    """
    checked_repo(repo)
    with tempfile.TemporaryDirectory(prefix="vitrail-push-") as temporary:
        folder = Path(model)
        if not folder.is_dir() or sidecar(folder).get("format") != FORMAT:
            folder = Path(temporary) / "model"
            write_checkpoint(read_checkpoint(model), folder, "vitrail")
        address = push(folder, repo, private=not public)
    console().print(address, markup=False, soft_wrap=True)
