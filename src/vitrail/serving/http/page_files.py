"""The files of the page: read once, known by their content, and asked for by name from a dictionary."""

import hashlib
from dataclasses import dataclass
from pathlib import Path

from starlette.requests import Request
from starlette.responses import Response

from vitrail.serving.http.problems import Problem

_FOLDER = Path(__file__).parent.parent / "page"
_TYPES = {
    ".css": "text/css; charset=utf-8",
    ".html": "text/html; charset=utf-8",
    ".ico": "image/x-icon",
    ".jpg": "image/jpeg",
    ".js": "text/javascript; charset=utf-8",
    ".json": "application/json",
    ".mjs": "text/javascript; charset=utf-8",
    ".png": "image/png",
    ".svg": "image/svg+xml",
    ".txt": "text/plain; charset=utf-8",
    ".webmanifest": "application/manifest+json",
    ".woff2": "font/woff2",
}


@dataclass(frozen=True)
class PageFile:
    """A file as it is sent."""

    body: bytes
    kind: str
    tag: str


def read_page(folder: Path = _FOLDER) -> dict[str, PageFile]:
    """Every file of the page that a browser understands, by its path below the folder."""
    found = {}
    for path in sorted(folder.rglob("*")):
        if path.suffix in _TYPES and path.is_file():
            body = path.read_bytes()
            tag = f'"{hashlib.sha256(body).hexdigest()[:32]}"'
            found[path.relative_to(folder).as_posix()] = PageFile(body, _TYPES[path.suffix], tag)
    return found


def page_answer(files: dict[str, PageFile], name: str, request: Request) -> Response:
    """One of the files, or that the browser has it already."""
    file = files.get(name)
    if file is None:
        raise Problem(404, "not_found", f"There is no file {name[:80]!r} in the page; wanted one that / asks for.")
    headers = {"ETag": file.tag, "Cache-Control": "no-cache"}
    known = [tag.strip().removeprefix("W/") for tag in request.headers.get("if-none-match", "").split(",")]
    if file.tag in known or known == ["*"]:
        return Response(status_code=304, headers=headers)
    return Response(file.body, headers={**headers, "Content-Type": file.kind})
