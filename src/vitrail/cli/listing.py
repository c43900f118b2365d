"""`vitrail list`: what there is, by name."""

from typing import Annotated, Literal

import tyro

from vitrail.cli.terminal import console, print_json, short_count, table
from vitrail.config import to_json
from vitrail.recipes import RECIPES, FinetuneRow, PretrainRow
from vitrail.zoo import ZOO


def run(
    what: Annotated[Literal["models", "recipes"], tyro.conf.Positional] = "models",
    /,
    json: bool = False,
) -> None:
    """Show the networks or the recipes that have a name.

    Args:
        what: models or recipes.
        json: Print JSON for programs instead of a table.
    """
    rows = _models() if what == "models" else _recipes()
    if json:
        print_json(rows)
    elif what == "models":
        _print_models(rows)
    else:
        _print_recipes(rows)


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
    numbers = ("parameters", "GMACs", "tokens")
    view = table("model", "in the paper", "what it is", *numbers, "published weights", numbers=numbers)
    for row in rows:
        published = row["published"]
        view.add_row(
            f"[bold]{row['model']}[/]",
            row["name"],
            row["about"],
            short_count(row["parameters"]),
            f"{row['macs'] / 1e9:.2f}" if row["macs"] >= 1e7 else "< 0.01",
            str(row["tokens"]),
            f"{published['megabytes']:,} MB, {published['licence']}" if published else "",
        )
    out = console()
    out.print(view)
    out.print(
        "GMACs: billions of multiply-adds for one image of the network's own size (224 pixels but for the last two).\n"
        "tokens: what the encoder sees; for BiT, cells of the last feature map.\n"
        "Next: [bold]vitrail info vit-b16[/] shows one of them layer by layer."
    )


def _recipes() -> list[dict]:
    return [_recipe(row) for row in RECIPES.values()]


def _recipe(row: PretrainRow | FinetuneRow) -> dict:
    pretrain = isinstance(row, PretrainRow)
    return {
        "recipe": row.name,
        "data": row.data,
        "length": f"{row.epochs} epochs" if pretrain else f"{row.steps} steps",
        "learning_rates": [row.lr] if pretrain else list(row.learning_rates),
        "weight_decay": row.weight_decay if pretrain else 0.0,
        "expected": row.score.value if row.score else None,
        "measured": row.score.what if row.score else None,
        "source": ", ".join(dict.fromkeys([row.source, *([row.score.source] if row.score else [])])),
    }


def _print_recipes(rows: list[dict]) -> None:
    view = table(
        "recipe",
        "data",
        "length",
        "learning rate",
        "decay of weights",
        "expected",
        "source",
        numbers=("decay of weights",),
    )
    for row in rows:
        expected = f"{row['expected']:.2f} % {row['measured']}" if row["expected"] else "not stated"
        rates = " ".join(f"{rate:g}" for rate in row["learning_rates"])
        view.add_row(
            f"[bold]{row['recipe']}[/]",
            row["data"],
            row["length"],
            rates,
            f"{row['weight_decay']:g}",
            expected,
            row["source"],
        )
    console().print(view)
