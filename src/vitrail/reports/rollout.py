"""The input beside what the network attends to, as Figures 6 and 14 show it."""

import numpy as np
from matplotlib.figure import Figure as Canvas
from PIL import Image
from scipy.ndimage import gaussian_filter

from vitrail.data.check.words import counted
from vitrail.reports.figures import Figure
from vitrail.reports.glyphs import Naming
from vitrail.reports.pairs import draw_pairs
from vitrail.reports.shown import Shown

# Below this the strongest patch is hardly stronger than the others.
_FLAT = 1.5


def rollout_figure(
    weights: np.ndarray, shown: Shown, patch: tuple[int, int], read: str, layers: str = "all layers"
) -> Figure:
    """Pairs of pictures; `read` says whose row is followed back."""
    peaks = _peaks(weights)
    size = (shown.images.shape[2], shown.images.shape[3])
    masks = [overlay_mask(weight, size, patch) for weight in weights]
    return Figure(
        name="rollout",
        title="Attention from the output back to the input",
        caption=(
            f"For {counted(len(shown), 'image')}, the input as the network is given it and beside it the same, "
            f"the brighter the more {'the answer' if shown.guesses is not None else 'what it gives'} was made from "
            f"there; the strongest patch counts {_between(peaks)} times the mean of its image{_flat(peaks)}. "
            f"Attention rollout over {layers}: the row of {read} in (A_L + I)/2 · … · (A_1 + I)/2 with A_l the "
            "attention of layer l averaged over heads, resized (Lanczos), blurred by one patch, divided by its "
            "largest value and multiplied with the image."
        ),
        seen=f"the strongest patch counts {_between(peaks)} times the mean of its image",
        draw=lambda naming: _drawn(masks, shown, naming),
        numbers={"rollout": weights.astype(np.float32)},
        facts={"read": read, "layers": layers, "images": shown.facts(), "peak_over_mean": peaks},
        labels=shown.named(),
    )


def overlay_mask(weights: np.ndarray, size: tuple[int, int], patch: tuple[int, int]) -> np.ndarray:
    """The authors' rule for display, Lanczos to the size of the image, and w / max; blurred by a patch before that.

    The least value is not made black: a map that is nearly flat stays so.
    """
    rows, columns = weights.shape
    covered = (rows * patch[0], columns * patch[1])
    large = np.asarray(Image.fromarray(weights.astype(np.float32)).resize(covered[::-1], Image.Resampling.LANCZOS))
    # Patches may leave a rest of the image out, and those of a hybrid reach beyond it.
    around = [(0, max(0, side - reach)) for side, reach in zip(size, covered, strict=True)]
    whole = np.pad(large, around, mode="edge")[: size[0], : size[1]]
    # Lanczos may swing below nothing beside a strong patch.
    smooth = gaussian_filter(whole, sigma=patch, mode="nearest").clip(min=0)
    high = float(smooth.max())
    return smooth / high if high > 0 else np.ones_like(smooth)


def _flat(peaks: list[float]) -> str:
    return ", so that all of an image counts nearly alike" if max(peaks) < _FLAT else ""


def _between(values: list[float]) -> str:
    low, high = f"{min(values):.1f}", f"{max(values):.1f}"
    return low if low == high else f"{low} to {high}"


def _peaks(weights: np.ndarray) -> list[float]:
    """How much more than the average patch the strongest one counts."""
    return [float(weight.max() / weight.mean()) if weight.mean() > 0 else 0.0 for weight in weights]


def _drawn(masks: list[np.ndarray], shown: Shown, naming: Naming) -> Canvas:
    beside = [picture * mask[:, :, None] for picture, mask in zip(shown.pictures, masks, strict=True)]
    return draw_pairs(shown, "Attention", beside, naming, [""] * len(masks))
