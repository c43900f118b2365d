"""Options that mean nothing to a run without labels: they are refused, instead of accepted and forgotten."""

from operator import attrgetter
from typing import Any

from vitrail.errors import UsageError

_NO_LABELS = {
    "train.loss": "the loss is that of --masking.target",
    "train.label_smoothing": "there are no labels to smooth",
    "augment.mixup": "there are no labels to mix",
    "augment.cutmix": "there are no labels to mix",
    "augment.mixing": "there are no labels to mix",
    "model.head_bias": "there is no head",
    "model.pre_logits": "there is no head",
}
_NO_DECODER = "masked patch prediction has no decoder, and predicts what --masking.target says"
_NO_FATES = "an autoencoder does not see hidden patches, so that nothing stands in their place"
_OTHER_METHOD = {
    "patches": {
        "masking.decoder_width": _NO_DECODER,
        "masking.decoder_depth": _NO_DECODER,
        "masking.decoder_heads": _NO_DECODER,
        "masking.normalised": _NO_DECODER,
    },
    "autoencoder": {"masking.masked": _NO_FATES, "masking.swapped": _NO_FATES},
}


def refuse_idle(options: Any, recipe: Any) -> None:
    """Refuse values other than those of the recipe where a run with these options would not look at them."""
    idle = _NO_LABELS | _OTHER_METHOD[options.masking.method]
    if not options.data.labelled:
        idle |= {"data.allow_empty": "without labels a folder has no classes"}
    for name, reason in idle.items():
        value = attrgetter(name)
        if value(options) != value(recipe):
            option = f"--{name.removeprefix('data.').replace('_', '-')}"
            raise UsageError(f"{option} cannot be set for this run without labels: {reason}", fix="Leave it out.")
