"""The page of a model alone: what it is, where it comes from, how good it was found to be, what it has learnt."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

from vitrail.config import to_json
from vitrail.data.check.words import counted, text
from vitrail.models import Classifier
from vitrail.reports.again import flat
from vitrail.reports.document import Section, document
from vitrail.reports.headline import network_words, parameters, short_count
from vitrail.reports.page import GENERATOR
from vitrail.reports.parts import learnt_sections
from vitrail.weights.fingerprint import fingerprint

_CLASSES = 1000
_UNKNOWN = "The file does not say; commands that send images through it ask for --preprocessing."


def model_page(model: Classifier, path: Path) -> str:
    """The whole document; without images there is nothing that only they could show."""
    config = model.config
    name = text(path.resolve().name)
    header = f"<div><h1>{name}</h1><p>{network_words(config)}, {short_count(parameters(config))} parameters</p></div>"
    return document(name, header, "", _sections(model), generator=GENERATOR)


def _sections(model: Classifier) -> Iterator[Section]:
    if model.metrics:
        lead = "As the model folder says; <b>vitrail evaluate</b> measures it again."
        yield Section("results", "How good it was found to be", lead, _facts(model.metrics))
    yield from learnt_sections(model, None, None)
    if model.labels:
        shown = ", ".join(map(text, model.labels[:_CLASSES]))
        more = f", and {len(model.labels) - _CLASSES:,} more" if len(model.labels) > _CLASSES else ""
        yield Section("classes", counted(len(model.labels), "class", "classes"), "", f"<p>{shown}{more}</p>")
    known = model.preprocessing
    title = "How images are prepared for it"
    yield Section("prepared", title, "" if known else _UNKNOWN, _facts(to_json(known)) if known else "")
    if model.provenance:
        yield Section("origin", "Where it comes from", "", _facts(model.provenance))
    settings = f"<details><summary>Every setting</summary>{_facts(to_json(model.config))}</details>"
    lead = f"Fingerprint sha256 {fingerprint(model.config, model.state_dict())}"
    yield Section("network", "The network", lead, settings)


def _facts(values: dict[str, Any]) -> str:
    rows = "".join(
        f'<tr><td class="path">{text(name)}</td><td class="path">{text(value)}</td></tr>'
        for name, value in flat(values)
    )
    return f'<table class="facts">{rows}</table>'
