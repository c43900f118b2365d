"""A run without labels: how much of what was hidden it guesses, and what that looks like."""

import zipfile
from collections.abc import Iterator
from pathlib import Path

import numpy as np
from PIL import Image

from vitrail.config import MaskingConfig, VitConfig
from vitrail.data.check.words import number, text
from vitrail.models.masked.targets import LEVELS, parts_of_a_side
from vitrail.reports.document import Section
from vitrail.reports.numbers import percent
from vitrail.reports.pictures import LARGE, SMALL, address
from vitrail.reports.story import Story
from vitrail.runtime.archives import open_npz
from vitrail.training.finish import NAME

# Of a page, with three pictures for each.
_MOST_IMAGES = 8
_ROWS = {"original": "as it is", "corrupted": "as the network gets it", "predicted": "with what it puts there"}


def hidden_score(story: Story) -> str:
    """The share that the run watched, in words that say of what."""
    metrics, masking, network = story.metrics, story.record.config.masking, story.record.config.model
    if metrics is None or masking is None or not isinstance(network, VitConfig):
        return ""
    split = "test" if story.split == "test" else "held-out"
    whole, _ = percent(metrics.accuracy).split()
    return (
        f'<div class="score"><b>{whole}<small>%</small></b><p>of {_what(masking, network)}, over '
        f"{number(metrics.images)} {split} images<br><span>{percent(masking.share)} of the patches of each were "
        "hidden; there is no accuracy before it is taught classes</span></p></div>"
    )


def _what(masking: MaskingConfig, network: VitConfig) -> str:
    colours, parts = f"{LEVELS**network.channels:,} colours", _parts(network)
    return {
        "colour": f"the hidden patches have their mean colour guessed right ({colours})",
        "small_patch": f"the parts of hidden patches have their mean colour guessed right ({parts}, {colours})",
        "pixels": "the variance of hidden pixels is explained",
    }[masking.target]


def _parts(network: VitConfig) -> str:
    side = parts_of_a_side(network)
    return f"{side}x{side} parts"


def hidden_sections(story: Story) -> Iterator[Section]:
    """A few images in three rows; nothing for a run that has not come to its end."""
    config, shown = story.record.config, read_hidden(story.path / NAME)
    if config.masking is None or shown is None or not isinstance(config.model, VitConfig):
        return
    lead = _lead(config.masking, config.model)
    yield Section("hidden", "What it puts in place of what is hidden", lead, _pictures(shown))


def _lead(masking: MaskingConfig, network: VitConfig) -> str:
    if masking.method == "autoencoder":
        lent = " Mean and contrast of each hidden patch are lent to it: it predicts the rest." * masking.normalised
        return f"Grey is what it does not see; what it sees is shown as it is in every row.{lent}"
    words = {
        "colour": "Of a hidden patch it predicts the mean colour, at three bits a channel.",
        "small_patch": f"Of a hidden patch it predicts the mean colour of each of {_parts(network)}, at three bits a "
        "channel.",
        "pixels": "Of a hidden patch it predicts every pixel.",
    }[masking.target]
    return (
        f"Grey stands for the mask token; some hidden patches became another one of the image, and some stayed. {words}"
    )


def _pictures(shown: dict[str, np.ndarray]) -> str:
    rows = [f'<tr><th scope="row">{text(words)}{_cells(shown[name], words)}</tr>' for name, words in _ROWS.items()]
    return f'<div class="across" tabindex="0"><table class="hidden">{"".join(rows)}</table></div>'


def _cells(images: np.ndarray, words: str) -> str:
    return "".join(f"<td>{_picture(image, words)}</td>" for image in images)


def _picture(pixels: np.ndarray, words: str) -> str:
    image = Image.fromarray(pixels[..., 0] if pixels.shape[-1] == 1 else pixels)
    is_small = max(image.size) <= SMALL
    if not is_small:
        image.thumbnail((LARGE, LARGE))
    look = ' class="pixels"' if is_small else ""
    return f'<img alt="{text(words)}"{look} src="{address(image, is_small=is_small, exactly=is_small)}">'


def read_hidden(path: Path) -> dict[str, np.ndarray] | None:
    """The pictures of a run, or none where they are not there or not whole."""
    try:
        with open_npz(path) as file:
            found = {name: file[name][:_MOST_IMAGES] for name in _ROWS}
    except (OSError, KeyError, ValueError, EOFError, zipfile.BadZipFile):
        return None
    shapes = {array.shape for array in found.values()}
    fine = len(shapes) == 1 and all(
        array.dtype == np.uint8 and array.ndim == 4 and array.shape[-1] in (1, 3) and array.size
        for array in found.values()
    )
    return found if fine else None
