"""What the network makes of one image: rollout, what each head reads, the logit lens, distances, and what it saw."""

import base64
import io
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
from PIL import Image

from vitrail.errors import UsageError, choose
from vitrail.prediction.predictor import Prepared
from vitrail.serving.looks.answers import top, top_k
from vitrail.serving.looks.kinds import PARTS
from vitrail.serving.looks.loaded import Loaded
from vitrail.serving.looks.numbers import as_numbers
from vitrail.serving.looks.reply import NotAvailable

if TYPE_CHECKING:
    from torch import Tensor

    from vitrail.models import Classifier


def inspection(loaded: Loaded, options: dict[str, Any], image: Prepared) -> dict[str, Any]:
    """The parts that were asked for, and the answer of the network beside them."""
    parts = _parts(loaded, options.get("parts", tuple(PARTS)))
    count = top_k(options)
    found: dict[str, Any] = {}
    if "seen" in parts:
        found["seen"] = _seen(image.seen)
    if loaded.network is None:
        logits = loaded.run(image.pixels[None])[0][0]
    else:
        logits = _inside(loaded, loaded.network(), parts, count, image, found)
    if loaded.facts["num_classes"]:
        found["top"] = top(loaded, logits, count)
    return {**found, "frames": image.frames, "generation": loaded.generation}


def _parts(loaded: Loaded, asked: Sequence[str]) -> list[str]:
    if isinstance(asked, str) or not asked:
        raise UsageError(f"the parts are {asked!r}", wanted=f"some of {', '.join(PARTS)}")
    parts = [choose("part", part, PARTS) for part in asked]
    missing = [part for part in parts if (need := PARTS[part]) is not None and not loaded.facts["can"][need]]
    if missing:
        raise NotAvailable(
            f"{loaded.facts['network']} on {loaded.facts['backend']} has no {' and no '.join(missing)}",
            fix="GET /v1/model says what this model can show.",
        )
    return parts


def _inside(
    loaded: Loaded, model: "Classifier", parts: list[str], count: int, image: Prepared, found: dict[str, Any]
) -> np.ndarray:
    """What needs the torch network; the numbers are those of `vitrail.inspection`. Returns its logits."""
    from vitrail.inspection import attention_distance, attention_rollout, logit_lens, reading_maps

    images = as_tensor(image.pixels)
    if "rollout" in parts:
        found["rollout"] = as_numbers(attention_rollout(model, images)[0].numpy())
    if "maps" in parts:
        found["maps"] = as_numbers(reading_maps(model, images)[:, 0].numpy())
    if "lens" in parts:
        layers = logit_lens(model, images)[:, 0].numpy()
        found["lens"] = [
            {"layer": layer, "top": top(loaded, logits, count, with_logits=False)}
            for layer, logits in enumerate(layers)
        ]
    if "distance" in parts:
        found["distance"] = as_numbers(attention_distance(model, images).numpy())
    return _forward(model, images)


def as_tensor(pixels: np.ndarray) -> "Tensor":
    """One prepared image as a batch of one."""
    import torch

    return torch.from_numpy(pixels)[None]


def _forward(model: "Classifier", images: "Tensor") -> np.ndarray:
    from vitrail.inspection.looking import in_parts, looking

    with looking(model):
        [part] = in_parts(model, images)
        return model(part)[0].float().cpu().numpy()


def _seen(pixels: np.ndarray) -> dict[str, Any]:
    """The fitted image as a PNG that a page can show."""
    shown = np.clip(np.rint(pixels), 0, 255).astype(np.uint8)
    file = io.BytesIO()
    Image.fromarray(shown[:, :, 0] if shown.shape[2] == 1 else shown).save(file, "PNG", compress_level=1)
    url = f"data:image/png;base64,{base64.b64encode(file.getvalue()).decode()}"
    return {"png": url, "height": shown.shape[0], "width": shown.shape[1]}
