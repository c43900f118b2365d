"""What the network answers when some patches are covered."""

from typing import Any

from vitrail.errors import UsageError
from vitrail.prediction.predictor import Prepared
from vitrail.serving.looks.answers import top, top_k
from vitrail.serving.looks.facts import cell_size, network_config
from vitrail.serving.looks.loaded import Loaded


def occluded(loaded: Loaded, options: dict[str, Any], image: Prepared) -> dict[str, Any]:
    """The answer with these patches set to 0, the mean colour of normalised images; by the backend that predicts."""
    network = network_config(loaded.predictor)
    (rows, columns), (height, width) = network.grid, cell_size(network)
    patches = _patches(options.get("patches", ()), rows * columns)
    pixels = image.pixels.copy()
    for patch in patches:
        row, column = divmod(patch, columns)
        pixels[:, row * height : (row + 1) * height, column * width : (column + 1) * width] = 0.0
    logits = loaded.run(pixels[None])[0][0]
    return {
        "top": top(loaded, logits, top_k(options)),
        "covered": patches,
        "frames": image.frames,
        "generation": loaded.generation,
    }


def _patches(asked: Any, count: int) -> list[int]:
    """Numbers from 0, row by row over the grid, each once and in order."""
    wrong = [one for one in asked if not isinstance(one, int) or isinstance(one, bool) or not 0 <= one < count]
    if wrong:
        raise UsageError(f"patch {wrong[0]!r} is not there", wanted=f"whole numbers from 0 to {count - 1}")
    return sorted(set(asked))
