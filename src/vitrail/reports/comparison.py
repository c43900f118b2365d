"""Several models on the same images: the numbers by which they are compared, and the page that shows them."""

from collections.abc import Sequence
from typing import Any

from vitrail.data.check.words import counted, number, text
from vitrail.reports.document import Section, document, wide
from vitrail.reports.evaluation import GENERATOR, facts_table, short_name
from vitrail.reports.numbers import percent

COLUMNS = {
    "top1": "top-1",
    "top5": "top-5",
    "mean_average_precision": "mAP",
    "micro_f1": "micro F1",
    "macro_f1": "macro F1",
    "loss": "loss",
    "ece": "ECE",
    "real": "ReaL",
}
"""The numbers by which models are compared, and what people call them."""


def value_of(record: dict[str, Any], key: str) -> float | None:
    """The number of a model under one of these names; none where it has none."""
    if key in ("top1", "top5"):
        return record[key]["share"] if record.get(key) else None
    if key == "ece":
        return record["calibration"]["ece"] if record.get("calibration") else None
    if key == "real":
        return record["real"]["top1"]["share"] if record.get("real") else None
    return record.get(key)


def overview_page(
    models: Sequence[tuple[str, dict[str, Any]]],
    summary: dict[str, dict[str, float | None]],
    failures: Sequence[dict[str, str]],
    context: dict[str, Any],
) -> str:
    """The page of several models: each with a link to its own, and mean ± standard deviation."""
    data = context["data"]
    header = (
        f'<div><h1>{counted(len(models), "model")} <span class="on">on</span> {text(short_name(data["data"]))}</h1>'
        f"<p>{number(data['images'])} {text(data['split'])} images</p></div>"
    )
    names = {
        key: name for key, name in COLUMNS.items() if any(value_of(record, key) is not None for _, record in models)
    }
    heads = "".join(f'<th class="n">{name}' for name in names.values())
    rows = "".join(
        f'<tr><td><a href="{text(link)}">{text(record["model"])}</a></td>'
        + "".join(f'<td class="n">{shown_value(key, value_of(record, key))}</td>' for key in names)
        + f'<td class="n">{number(record["images"])}</td></tr>'
        for link, record in models
    )
    if summary:
        means = "".join(f'<td class="n"><b>{spread_value(key, summary.get(key))}</b></td>' for key in names)
        rows += f"<tr><td><b>mean ± standard deviation</b></td>{means}<td></td></tr>"
    heads = f'<tr><th>model{heads}<th class="n">images</tr>'
    table = f'<table class="models"><thead>{heads}</thead><tbody>{rows}</tbody></table>'
    failed = "".join(
        f"<li>{text(one['model'])}: {text(one['error'].removeprefix(one['model'] + ': '))}</li>" for one in failures
    )
    sections = [
        Section("models", "Models", "", wide("Table of models", table)),
        *([Section("failed", "Not measured", "", f"<ul>{failed}</ul>")] if failed else []),
        Section("again", "How to do it again", "", facts_table({}, context)),
    ]
    title = f"{counted(len(models), 'model')} on {text(short_name(data['data']))}"
    return document(title, header, "", sections, generator=GENERATOR)


def shown_value(key: str, value: float | None) -> str:
    """A number for people."""
    if value is None:
        return ""
    return f"{value:.4f}" if key in ("loss", "micro_f1", "macro_f1") else percent(value, 2)


def spread_value(key: str, found: dict[str, float | None] | None) -> str:
    """Mean ± standard deviation for people."""
    if found is None or found["mean"] is None:
        return ""
    spread = found["std"]
    if spread is None:
        return shown_value(key, found["mean"])
    whole = shown_value(key, found["mean"]).removesuffix(" %")
    return f"{whole} ± {shown_value(key, spread)}"
