"""`vitrail list`: what there is, by name."""

from itertools import groupby
from operator import itemgetter
from typing import Annotated, Literal

import tyro

from vitrail.cli.terminal import console, is_narrow, print_json, short_count, table
from vitrail.config import TrainConfig, to_json
from vitrail.recipes import RECIPES, MaskedRow, Row, RuleRow, recipe
from vitrail.zoo import ZOO

# By the source of a row, in the order of the recipes.
_GROUPS = {
    "Table 3": "the paper, from scratch",
    "Table 4": "the paper, fine-tuning",
    "AugReg": "AugReg: How to train your ViT?",
    "BiT": "Big Transfer",
    "ours": "our own, for small data",
}
_WITHOUT_LABELS = "learning without labels"


def run(
    what: Annotated[Literal["models", "recipes", "datasets"], tyro.conf.Positional] = "models",
    /,
    json: bool = False,
) -> None:
    """Show the networks, the recipes or the data sets that have a name.

    Args:
        what: models, recipes or datasets.
        json: Print JSON for programs instead of a table.
    """
    find, show = {
        "models": (_models, _print_models),
        "recipes": (_recipes, _print_recipes),
        "datasets": (_datasets, _print_datasets),
    }[what]
    rows = find()
    if json:
        print_json(rows)
    else:
        show(rows)


def _models() -> list[dict]:
    return [
        {
            "model": row.key,
            "name": row.name,
            "about": row.about,
            "parameters": row.parameters,
            "macs": row.macs,
            "image_size": list(row.config.image_size),
            "tokens": row.config.tokens,
            "published": to_json(row.published),
        }
        for row in ZOO.values()
    ]


def _print_models(rows: list[dict]) -> None:
    numbers = ("parameters", "GFLOPs", "tokens")
    narrow = is_narrow()
    words = () if narrow else ("name", "what it is")
    view = table("model", *words, *numbers, "published weights", numbers=numbers)
    for row in rows:
        published = row["published"]
        view.add_row(
            f"[bold]{row['model']}[/]",
            *(() if narrow else (row["name"], row["about"])),
            short_count(row["parameters"]),
            f"{2 * row['macs'] / 1e9:.1f}" if row["macs"] >= 1e8 else f"{2 * row['macs'] / 1e9:.4f}",
            str(row["tokens"]),
            f"{published['megabytes']:,} MB, {published['licence']}" if published else "",
        )
    out = console()
    out.print(view)
    out.print(
        "GFLOPs: billions of operations for one image of 224 pixels (28 and 32 for the small ones).\n"
        "tokens: what the encoder sees; for BiT, cells of the last feature map.\n"
        "Next: [bold]vitrail info vit-b16[/] shows one of them layer by layer."
    )


def _recipes() -> list[dict]:
    return [_recipe(row) for row in RECIPES.values()]


def _recipe(row: Row) -> dict:
    if isinstance(row, RuleRow):
        length, rates, weight_decay = "by the data", row.learning_rates, 0.0
    else:
        made = recipe(row.name)
        length, rates, weight_decay = _length(made.train), made.learning_rates, made.optim.weight_decay
    return {
        "recipe": row.name,
        "group": _WITHOUT_LABELS if isinstance(row, MaskedRow) else _GROUPS.get(row.source, _WITHOUT_LABELS),
        "data": row.data,
        "length": length,
        "learning_rates": list(rates),
        "weight_decay": weight_decay,
        "expected": row.score.value if row.score else None,
        "measured": row.score.what if row.score else None,
        "source": ", ".join(dict.fromkeys([row.source, *([row.score.source] if row.score else [])])),
    }


def _length(train: TrainConfig) -> str:
    return f"{train.epochs} epochs" if train.epochs else f"{train.steps} steps"


def _print_recipes(rows: list[dict]) -> None:
    narrow = is_narrow()
    words = () if narrow else ("weight decay", "measured", "source")
    view = table("recipe", "length", "learning rate", "expected", *words, numbers=("expected", "weight decay"))
    for group, members in groupby(rows, key=itemgetter("group")):
        view.add_section()
        view.add_row(f"[italic]{group}[/]")
        for row in members:
            view.add_row(
                f"[bold]{row['recipe']}[/]",
                row["length"],
                " ".join(f"{rate:g}" for rate in row["learning_rates"]),
                f"{row['expected']:.2f} %" if row["expected"] else "not stated",
                *(() if narrow else (f"{row['weight_decay']:g}", row["measured"] or "", row["source"])),
            )
    out = console()
    out.print(view)
    out.print(
        "expected: the top-1 accuracy its source reports, so that a run can be judged.\n"
        "by the data: the number of images decides the length.\n"
        "Several learning rates are a sweep on held-out training images."
    )


def _datasets() -> list[dict]:
    # The data room brings torch with it, which `vitrail list --help` does not need.
    from vitrail.data.sources.named_rows import NAMED

    return [
        {
            "data": row.key,
            "name": row.name,
            "about": row.about,
            "classes": row.classes,
            "images": row.images,
            "official_split": not row.shares and row.kind != "embedded",
            "can_download": row.can_download,
            "megabytes": row.megabytes,
        }
        for row in NAMED.values()
    ]


def _print_datasets(rows: list[dict]) -> None:
    numbers = ("classes", "train", "val", "test")
    narrow = is_narrow()
    view = table(
        "data", *(() if narrow else ("name",)), *numbers, *(() if narrow else ("what it is",)), numbers=numbers
    )
    for row in rows:
        view.add_row(
            f"[bold]{row['data']}[/]",
            *(() if narrow else (row["name"],)),
            f"{row['classes']:,}",
            *(f"{row['images'][split]:,}" if split in row["images"] else "" for split in ("train", "val", "test")),
            *(() if narrow else (row["about"],)),
        )
    out = console()
    out.print(view)
    out.print(
        "train, val, test: images in each split; where one is missing, hold out a part, such as 'train[90%:]'.\n"
        "Data can also be a folder of class folders, a .csv, a .parquet, hf:owner/name and wds:path/*.tar."
    )
