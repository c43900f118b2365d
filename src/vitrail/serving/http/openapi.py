"""The OpenAPI document, made from the table of routes and from what the model allows."""

from collections.abc import Iterable
from typing import Any

from vitrail import __version__
from vitrail.config.serve import ServeConfig
from vitrail.serving.http.options import Facts
from vitrail.serving.http.routes import ENDPOINTS, Endpoint
from vitrail.serving.http.schemas import SCHEMAS

_PAGE = Endpoint(path="/page/{file}", about="A file of the page", gives="*/*", is_open=True)
_RETRY = {"Retry-After": {"description": "Seconds to wait.", "schema": {"type": "integer", "minimum": 1}}}
_SHAPE = {
    "X-Shape": {"description": "The shape, such as 3,197,197.", "schema": {"type": "string"}},
    "X-Generation": {"description": "Counts the models that were swapped in.", "schema": {"type": "integer"}},
}
_ERRORS = {
    400: "An option or the image is wrong.",
    401: "The token is missing or wrong.",
    403: "A page of another site asked.",
    404: "There is no such thing, or this network has not got it.",
    405: "Another method is wanted.",
    408: "The body came too slowly.",
    413: "The body or the image is too large.",
    415: "The body is no image.",
    421: "The host is not known.",
    503: "The server is busy, has enough large images to decode, starts or ends; ask again.",
}


def openapi(config: ServeConfig, facts: Facts | None, page: Iterable[str] = ()) -> dict[str, Any]:
    """The whole document, with the names of the page's files; the model's bounds are in it once the model is known."""
    paths = {one.path: {one.method.lower(): _operation(one, config, facts)} for one in ENDPOINTS}
    paths[_PAGE.path] = {"get": {**_operation(_PAGE, config, facts), "parameters": [_file(page)]}}
    document: dict[str, Any] = {
        "openapi": "3.1.0",
        "info": {
            "title": "vitrail",
            "version": __version__,
            "description": "A Vision Transformer that answers what images show, and shows what it sees.",
        },
        "paths": paths,
        "components": {"schemas": SCHEMAS},
    }
    if config.token is not None:
        document["components"]["securitySchemes"] = {"token": {"type": "http", "scheme": "bearer"}}
    return document


def _file(page: Iterable[str]) -> dict[str, Any]:
    names: dict[str, Any] = {"type": "string"}
    if known := sorted(page):
        names["enum"] = known
    return {"name": "file", "in": "path", "required": True, "schema": names, "description": "a file of the page"}


def _operation(endpoint: Endpoint, config: ServeConfig, facts: Facts | None) -> dict[str, Any]:
    name = endpoint.kind or endpoint.path.strip("/").replace("v1/", "").split(".")[0].split("/")[0] or "index"
    operation: dict[str, Any] = {
        "operationId": name,
        "summary": endpoint.about,
        "responses": _responses(endpoint, config),
    }
    if endpoint.options:
        operation["parameters"] = [
            {
                "name": option.name,
                "in": "query",
                "required": option.is_required,
                "description": option.about,
                "schema": option.schema(facts),
                # Lists are written with commas.
                "style": "form",
                "explode": False,
            }
            for option in endpoint.options
        ]
    if endpoint.takes_image:
        image = {"schema": {"type": "string", "format": "binary", "minLength": 1}}
        operation["requestBody"] = {
            "required": True,
            "description": f"The image file itself, or a data URL as text; at most {config.max_bytes:,} bytes and "
            f"{config.max_pixels:,} pixels.",
            "content": {
                "image/*": image,
                "application/octet-stream": image,
                "text/plain": {
                    "schema": {"type": "string", "pattern": "^data:image/[a-z0-9.+-]+;base64,[A-Za-z0-9+/]+={0,2}$"}
                },
            },
        }
    if config.token is not None and not endpoint.is_open:
        operation["security"] = [{"token": []}]
    return operation


def _responses(endpoint: Endpoint, config: ServeConfig) -> dict[str, Any]:
    good: dict[str, Any] = {"description": endpoint.about, "content": _content(endpoint.gives)}
    if endpoint.gives == "application/octet-stream":
        good["headers"] = _SHAPE
    responses = {"200": good}
    for status in _statuses(endpoint, config):
        answer: dict[str, Any] = {"description": _ERRORS[status], "content": _content("Error")}
        if status == 503:
            answer["headers"] = _RETRY
        responses[str(status)] = answer
    if endpoint.path == "/readyz":
        responses["503"]["content"] = _content("Readiness")
    return responses


def _statuses(endpoint: Endpoint, config: ServeConfig) -> list[int]:
    """What may be refused here."""
    found = {405, 421}
    if endpoint.kind is not None:
        found |= {400, 404, 503}
    if endpoint.takes_image:
        found |= {403, 408, 413, 415}
    if endpoint.path in ("/readyz", "/v1/model"):
        found.add(503)
    if endpoint.path in ("/", _PAGE.path):
        found.add(404)
    if config.token is not None and not endpoint.is_open:
        found.add(401)
    return sorted(found)


def _content(gives: str) -> dict[str, Any]:
    if gives in SCHEMAS:
        return {"application/json": {"schema": {"$ref": f"#/components/schemas/{gives}"}}}
    if gives == "application/octet-stream":
        return {gives: {"schema": {"type": "string", "format": "binary"}}}
    return {gives: {"schema": {"type": "string"}}}
