"""The one table of what the server answers; the routes and the OpenAPI document are both made from it."""

from dataclasses import dataclass
from typing import Any

from vitrail.serving.http.options import Facts, Names, Number, Numbers, Option, Switch
from vitrail.serving.http.problems import Problem
from vitrail.serving.looks.kinds import PARTS
from vitrail.serving.looks.reply import MOST_BYTES

_FLOAT32 = 4
_MOST_FILTERS = 4096


@dataclass(frozen=True, kw_only=True)
class Endpoint:
    """A path, what it takes and what it gives."""

    path: str
    about: str
    method: str = "GET"
    kind: str | None = None
    """The engine's word for it; none is answered by the web server itself."""
    options: tuple[Option, ...] = ()
    takes_image: bool = False
    ability: str | None = None
    """What the network must be able to do."""
    gives: str
    """The name of the schema of its answer, or a media type."""
    is_open: bool = False
    """Whether it is answered without the token."""


def _classes(facts: Facts) -> int:
    return max(1, facts["num_classes"])


def _last_layer(facts: Facts) -> int:
    return max(0, (facts.get("depth") or 1) - 1)


def _last_token(facts: Facts) -> int:
    return max(0, (facts.get("tokens") or 1) - 1)


def _last_patch(facts: Facts) -> int:
    height, width = facts.get("grid") or (1, 1)
    return height * width - 1


_TOP = Number("top_k", "so many of the likeliest classes", 1, _classes, default=5)

ENDPOINTS: tuple[Endpoint, ...] = (
    Endpoint(path="/healthz", about="Whether the server runs", gives="Health", is_open=True),
    Endpoint(path="/readyz", about="Whether the model answers", gives="Readiness", is_open=True),
    Endpoint(path="/metrics", about="Counters for Prometheus", gives="text/plain"),
    Endpoint(path="/openapi.json", about="This document", gives="Document"),
    Endpoint(path="/", about="The page that shows what the model sees", gives="text/html", is_open=True),
    Endpoint(path="/v1/model", about="What the model is, can do and may be sent", gives="Model"),
    Endpoint(
        path="/v1/predictions",
        about="What an image shows",
        method="POST",
        kind="predictions",
        options=(_TOP, Switch("logits", "also what the head gives for every class")),
        takes_image=True,
        ability="predictions",
        gives="Predictions",
    ),
    Endpoint(
        path="/v1/embeddings",
        about="What the head reads of an image, for search and clustering",
        method="POST",
        kind="embeddings",
        takes_image=True,
        ability="embeddings",
        gives="Embeddings",
    ),
    Endpoint(
        path="/v1/inspections",
        about="What happens inside the network when it reads an image",
        method="POST",
        kind="inspections",
        options=(Names("parts", "what to look at", PARTS), _TOP),
        takes_image=True,
        gives="Inspections",
    ),
    Endpoint(
        path="/v1/attention",
        about="The attention of one layer: float32, little endian, of the shape in X-Shape",
        method="POST",
        kind="attention",
        options=(
            Number("layer", "the layer, counted from 0", 0, _last_layer, is_required=True),
            Number("query", "only what this token attends to", 0, _last_token),
        ),
        takes_image=True,
        ability="attention",
        gives="application/octet-stream",
    ),
    Endpoint(
        path="/v1/occlusions",
        about="What the image shows when some of its patches are covered with the mean colour",
        method="POST",
        kind="occlusions",
        options=(Numbers("patches", "the covered patches, counted from 0, row by row", _last_patch), _TOP),
        takes_image=True,
        ability="occlusion",
        gives="Occlusions",
    ),
    Endpoint(
        path="/v1/positions",
        about="How alike the position embeddings are: float32, little endian, of the shape in X-Shape",
        kind="positions",
        ability="positions",
        gives="application/octet-stream",
    ),
    Endpoint(
        path="/v1/filters",
        about="The principal components of the filters that embed patches",
        kind="filters",
        options=(Number("components", "so many of them, if there are", 1, lambda _: _MOST_FILTERS, default=28),),
        ability="filters",
        gives="Filters",
    ),
)


def ensure_small(kind: str, options: dict[str, Any], facts: Facts) -> None:
    """Refuse attention that would be too large to send, before its image is read."""
    if kind != "attention" or options["query"] is not None:
        return
    size = facts["num_heads"] * facts["tokens"] ** 2 * _FLOAT32
    if size > MOST_BYTES:
        raise Problem(
            400,
            "too_large",
            f"The attention of a layer has {size:,} bytes; wanted at most {MOST_BYTES:,}. "
            "Ask for one token: add &query=0.",
        )
