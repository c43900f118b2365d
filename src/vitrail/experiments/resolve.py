"""From what was asked for to what is run: recipe, network, data, settings and device meet here, and nowhere else."""

import math
import statistics
from dataclasses import dataclass, replace
from operator import attrgetter
from pathlib import Path
from typing import TYPE_CHECKING

from vitrail.config import (
    AugmentConfig,
    DataConfig,
    MaskingConfig,
    ModelConfig,
    OptimConfig,
    PeerConfig,
    Preprocessing,
    RunConfig,
    ScheduleConfig,
    Settings,
    TrainConfig,
    VitConfig,
    peer_name,
)
from vitrail.data.sources.files import user_path
from vitrail.errors import UsageError, choose, command, setting
from vitrail.recipes import (
    RECIPES,
    FinetuneRow,
    Recipe,
    RuleRow,
    folder_recipe,
    hyperrule_recipe,
    masked_recipe,
    recipe,
    with_peer,
)
from vitrail.training.schedule import total_steps
from vitrail.zoo import ZOO

if TYPE_CHECKING:
    import torch

    from vitrail.data import Source

SCRATCH = "vit-folder"
"""The recipe for a folder of images, from scratch."""
FOLDER, HYPERRULE, MASKED = "finetune-folder", "finetune-bit-hyperrule", "finetune-masked"
"""Rules that look at the data."""
BY_DATA = {"digits": "vit-digits", "mnist": "vit-mnist", "cifar10": "vit-cifar10", "cifar100": "vit-cifar100"}
"""The recipe from scratch of a known data set."""
OWN_DATA: dict[str, str] = {name: row.data for name, row in RECIPES.items() if row.data in BY_DATA}
"""The data that a recipe is made for, where it need not be said."""
FINETUNING = [name for name, row in RECIPES.items() if isinstance(row, FinetuneRow | RuleRow)]

_SHORT_WARMUP = 0.1
_IMAGES_MEASURED = 15
_SHORTER = ("train.steps", "train.epochs", "train.time_limit")


@dataclass(frozen=True)
class Resolved:
    """A run that is decided, and what there is to tell about how it was."""

    config: RunConfig
    notes: tuple[str, ...] = ()


@dataclass(frozen=True, kw_only=True)
class Laid:
    """A recipe and a network with what was given laid over them; nothing of it depends on the data yet."""

    model: ModelConfig
    optim: OptimConfig
    schedule: ScheduleConfig
    train: TrainConfig
    augment: AugmentConfig
    masking: MaskingConfig | None


def resolve(
    chosen: Recipe,
    network: ModelConfig,
    given: Settings,
    source: "Source",
    device: "torch.device",
    *,
    data: DataConfig,
    preprocessing: Preprocessing,
    image_size: int | None = None,
    start: tuple[str, str] | None = None,
    fits: int | None = None,
    seen: int | None = None,
) -> Resolved:
    """Everything that decides a run on the images of `source`.

    `image_size` is the side of the input where one was asked for, `start` a source of weights and their fingerprint,
    `fits` the number of images that no batch of a recipe may exceed, `seen` that of an epoch where it is another.
    """
    laid = lay(chosen, network, given)
    augment = laid.augment
    if image_size is not None and augment.crop == "resize" and "augment.resize" not in given:
        # A crop out of a larger square grows with the image.
        augment = replace(augment, resize=augment.resize * image_size // chosen.image_size)
    sides = laid.model.image_size if image_size is None else (image_size, image_size)
    classes = 0 if laid.masking is not None else len(source.classes)
    config = RunConfig(
        recipe=chosen.name,
        model=replace(laid.model, num_classes=classes, image_size=sides),
        masking=laid.masking,
        preprocessing=preprocessing,
        data=data,
        augment=augment,
        optim=laid.optim,
        schedule=laid.schedule,
        train=for_device(laid.train, device, given),
        start=None if start is None else start[0],
        start_fingerprint=None if start is None else start[1],
    )
    ensure_buildable(config.model)
    notes: list[str] = []
    if fits is not None:
        config = _with_batch_that_fits(config, fits, given, notes)
    return Resolved(_for_data(config, source, given, notes, seen or len(source)), tuple(notes))


def lay(chosen: Recipe, network: ModelConfig, given: Settings) -> Laid:
    """Lay what was given over a recipe, so that a mistake in it is told before any image is read."""
    train, schedule = chosen.train, chosen.schedule
    if "train.epochs" in given and "train.steps" not in given:
        train = replace(train, steps=None, epochs=1)
    if "train.steps" in given and "train.epochs" not in given:
        train = replace(train, steps=1, epochs=None)
    if "schedule.warmup_steps" in given:
        schedule = replace(schedule, warmup_share=0.0)
    masking = chosen.masking
    if masking is not None:
        masking = given.over(masking, "masking")
        _refuse_idle(given, chosen, masking)
    elif idle := [name for name in given if name.startswith("masking.")]:
        raise UsageError(
            f"{setting(idle[0])} is given for a run that learns from labels",
            wanted="a recipe that hides patches, such as mae-folder",
        )
    return Laid(
        model=given.over(network, "model"),
        optim=given.over(chosen.optim, "optim"),
        schedule=given.over(schedule, "schedule"),
        train=given.over(train, "train"),
        augment=given.over(chosen.augment, "augment"),
        masking=masking,
    )


def data_config(
    given: Settings, held_out: float | None, *, labelled: bool = True, known: str | None = None
) -> DataConfig:
    """The data of a run with absolute paths; `known` is what a recipe is made for, where nothing was said."""
    name = given.get("data.data", known)
    assert name is not None
    # What a teacher taught has its own val split, of labelled images alone.
    held_out = None if name.startswith("taught:") else held_out
    return located(given.over(DataConfig(data=name, held_out=held_out, labelled=labelled), "data"))


def located(data: DataConfig) -> DataConfig:
    """The data with absolute paths, so that a run goes on from whatever folder that is asked for in."""
    return replace(
        data,
        data=_located(data.data),
        root=_absolute(data.root),
        few_shot=None if data.few_shot is None else _located(data.few_shot),
        few_shot_root=_absolute(data.few_shot_root),
    )


def _located(name: str) -> str:
    kind, colon, rest = name.partition(":")
    if kind == "vtab" and "=" in rest:
        task, _, source = rest.partition("=")
        return f"{kind}{colon}{task}={_located(source)}"
    if (kind == "wds" and colon and "://" not in name) or (kind == "taught" and rest):
        return f"{kind}:{_absolute(rest)}"
    path = user_path(name)
    return str(path.resolve()) if path.exists() else name


def _absolute(path: str | None) -> str | None:
    return None if path is None else str(Path(path).expanduser().absolute())


# Which recipe.


def scratch_recipe(name: str | None, data: str | None, *, finetunes: bool = False) -> Recipe:
    """The recipe of this name; without one that of the data, with the network that the name says in place of ours.

    One for fine-tuning is refused, unless someone else does that.
    """
    peer = None if name is None else peer_name(name)
    if peer is None:
        chosen = recipe(name or _recipe_of_data(data))
        if chosen.model is None and not finetunes:
            raise UsageError(
                f"{chosen.name} is a recipe for fine-tuning",
                fix=f"`{command('finetune', 'SOURCE', recipe=chosen.name)}` uses it.",
            )
        return chosen
    if peer.tag is not None:
        raise UsageError(
            f"{peer.tag!r} names weights, and training starts with fresh ones",
            fix=f"`{command('finetune', str(name))}` uses them; leave .{peer.tag} away to train from scratch.",
        )
    return with_peer(recipe(_recipe_of_data(data)), peer)


def _recipe_of_data(data: str | None) -> str:
    """Without a recipe, the data says which."""
    if data is None:
        raise UsageError(
            "there is neither a recipe nor data",
            wanted=command("train", "RECIPE", data="DATA"),
            fix=f"`{command('train', 'vit-digits')}` tries it on embedded images; `vitrail list recipes` shows all.",
        )
    return BY_DATA.get(data, SCRATCH)


def ensure_recipe(name: str | None, kind: str) -> None:
    """Data, or a model, in the place of the recipe is a slip that deserves its own hint; `kind` is that of a folder."""
    if name is None or name in RECIPES:
        return
    if kind:
        raise UsageError(
            f"{name!r} is trained and no recipe",
            fix=f"`{command('finetune', name, data='FOLDER')}` starts from it; "
            f"`{command('train', resume=name)}` goes on with a run.",
        )
    if name in ZOO:
        raise UsageError(
            f"{name!r} is a network and no recipe",
            fix=f"`{command('finetune', name, data='FOLDER')}` starts from its published weights; "
            "`vitrail list recipes` shows what trains one from nothing.",
        )
    if user_path(name).exists() or name in BY_DATA:
        raise UsageError(f"{name!r} is data and no recipe", fix=f"`{command('train', data=name)}` trains on it.")


def finetuning_name(asked: str | None, data: str, *, knows_classes: bool = True) -> str:
    """The recipe that was asked for, else the row of Table 4 for a known data set, else the rule for folders.

    A network that learnt without labels has a rule of its own.
    """
    if asked is not None:
        return choose("recipe for fine-tuning", asked, FINETUNING)
    if not knows_classes:
        return MASKED
    known = f"finetune-{data}"
    return known if known in FINETUNING and not user_path(data).exists() else FOLDER


def finetuning_recipe(name: str, train: "Source", image_size: int, *, on_cpu: bool = False) -> Recipe:
    """Expand a row; a rule looks at the data, and that for folders at the device."""
    if name == FOLDER:
        return folder_recipe(len(train), len(train.classes), image_size, on_cpu=on_cpu)
    if name == MASKED:
        return masked_recipe(len(train), image_size, on_cpu=on_cpu)
    if name == HYPERRULE:
        return hyperrule_recipe(len(train), *median_size(train))
    return recipe(name)


def median_size(source: "Source") -> tuple[int, int]:
    """Height and width that are usual among the images, from a few of them spread over the source."""
    from vitrail.data.decoding.decode import decode

    count = min(len(source), _IMAGES_MEASURED)
    chosen = [number * len(source) // count for number in range(count)]
    images = [decode(source.read(index), where=source.where(index)).image for index in chosen]
    return round(statistics.median(image.height for image in images)), round(
        statistics.median(image.width for image in images)
    )


def with_kept_warmup(chosen: Recipe, given: Settings) -> Recipe:
    """A shorter fine-tuning keeps its share of warm-up, else it may end before the rate is reached."""
    schedule, steps = chosen.schedule, chosen.train.steps
    is_shorter = any(name in given for name in _SHORTER) and "schedule.warmup_steps" not in given
    if not (is_shorter and steps and schedule.warmup_steps):
        return chosen
    return replace(chosen, schedule=replace(schedule, warmup_steps=0, warmup_share=schedule.warmup_steps / steps))


def with_its_depth(network: ModelConfig, chosen: Recipe) -> ModelConfig:
    """The network with the stochastic depth that a recipe asks for."""
    if chosen.stochastic_depth is None or not isinstance(network, VitConfig):
        return network
    return replace(network, stochastic_depth=chosen.stochastic_depth)


# What suits the device, the data and the network, where nobody said otherwise.


def ensure_buildable(model: ModelConfig) -> None:
    """A name or a size that another package does not take is told before any image is read."""
    if isinstance(model, PeerConfig):
        from vitrail.models.peer import ensure_takes_size

        ensure_takes_size(model)


def for_device(train: TrainConfig, device: "torch.device", given: Settings) -> TrainConfig:
    """The config with the arithmetic that suits the device, where nobody said otherwise: bf16 and graphs on a GPU."""
    import torch

    on_gpu = device.type == "cuda"
    if "train.precision" not in given:
        can = on_gpu and torch.cuda.is_bf16_supported(including_emulation=False)
        train = replace(train, precision="bfloat16" if can else "float32")
    if "train.compile" not in given:
        train = replace(train, compile=on_gpu)
    return train


def _for_data(config: RunConfig, source: "Source", given: Settings, notes: list[str], images: int) -> RunConfig:
    """The config with what the data calls for, where nobody said otherwise; each change is told."""
    if source.labels.is_multi and config.train.loss == "softmax":
        if "train.loss" in given:
            raise UsageError(
                "the images have several classes each", wanted=setting("train.loss", "sigmoid"), where=source.name
            )
        notes.append("The images have several classes each, so the loss is sigmoid cross-entropy.")
        config = replace(config, train=replace(config.train, loss="sigmoid"))
    steps, warmup = total_steps(config.train, images), config.schedule.warmup_steps
    if not config.schedule.warmup_share and warmup >= steps and "schedule.warmup_steps" not in given:
        notes.append(
            f"The warm-up of the recipe, {warmup:,} steps, is longer than this run of {steps:,}: "
            f"it becomes {_SHORT_WARMUP:.0%} of the run."
        )
        config = replace(config, schedule=replace(config.schedule, warmup_share=_SHORT_WARMUP))
    return config


def _with_batch_that_fits(config: RunConfig, images: int, given: Settings, notes: list[str]) -> RunConfig:
    """The config with a batch of no more images than there are, where nobody said otherwise; that is told.

    The rate goes with the root of the batch, as suits Adam and Muon, whose steps are as long whatever the gradient.
    """
    batch = config.train.batch_size
    # Two at least: one image cannot be mixed with another.
    fits = max(1 << (images.bit_length() - 1), 2)
    if "train.batch_size" in given or batch <= images or batch <= fits:
        return config
    told = (
        f"The batch of the recipe, {batch:,} images, is larger than the {images:,} to learn from: it becomes {fits:,}"
    )
    if "optim.lr" not in given:
        rate = float(f"{config.optim.lr * math.sqrt(fits / batch):.3g}")
        config = replace(config, optim=replace(config.optim, lr=rate))
        told += f", and the learning rate {rate:g}"
    notes.append(f"{told} (others: {setting('train.batch_size')}, {setting('optim.lr')}).")
    return replace(config, train=replace(config.train, batch_size=fits))


# Settings that mean nothing to a run without labels: they are refused, instead of accepted and forgotten.

_NO_LABELS = {
    "train.loss": f"the loss is that of {setting('masking.target')}",
    "train.label_smoothing": "there are no labels to smooth",
    "augment.mixup": "there are no labels to mix",
    "augment.cutmix": "there are no labels to mix",
    "augment.mixing": "there are no labels to mix",
    "model.head_bias": "there is no head",
    "model.pre_logits": "there is no head",
}
_NO_DECODER = f"masked patch prediction has no decoder, and predicts what {setting('masking.target')} says"
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


def _refuse_idle(given: Settings, chosen: Recipe, masking: MaskingConfig) -> None:
    """Refuse values other than those of the recipe where a run would not look at them."""
    idle = _NO_LABELS | _OTHER_METHOD[masking.method]
    if not given.get("data.labelled", False):
        idle |= {"data.allow_empty": "without labels a folder has no classes"}
    for name, reason in idle.items():
        usual = False if name == "data.allow_empty" else attrgetter(name)(chosen)
        if given.get(name, usual) != usual:
            raise UsageError(
                f"{setting(name)} cannot be set for this run without labels: {reason}", fix="Leave it out."
            )
