"""Names of files and folders that some system or program will stumble over."""

import os
import unicodedata
from collections import defaultdict
from collections.abc import Iterable, Iterator
from pathlib import Path

_LONGEST = 200
# Marks that reverse the direction of text: a name can look like another one.
_TURNING = set("\u202a\u202b\u202c\u202d\u202e\u2066\u2067\u2068\u2069")


def strange_names(paths: Iterable[str]) -> Iterator[tuple[str, str]]:
    """Paths (files and the folders above them) whose last part is strange, and why; each is told once."""
    seen: set[str] = set()
    twins: dict[tuple[str, str], list[str]] = defaultdict(list)
    for path in paths:
        for part in _with_folders(path):
            if part in seen:
                continue
            seen.add(part)
            folder, name = os.path.split(part)
            twins[folder, unicodedata.normalize("NFC", name).casefold()].append(part)
            for reason in reasons(name):
                yield part, reason
    for same in twins.values():
        for path in same[1:]:
            yield path, f"differs from {Path(same[0]).name!r} only in capitals or Unicode spelling"


def reasons(name: str) -> Iterator[str]:
    """What is strange about one name."""
    if any("\udc80" <= letter <= "\udcff" for letter in name):
        yield "has bytes that are not UTF-8"
    if any(unicodedata.category(letter) == "Cc" for letter in name):
        yield "has control characters"
    if _TURNING & set(name):
        yield "has marks that turn the direction of text"
    if name != name.strip():
        yield "begins or ends with a space"
    if len(os.fsencode(name)) > _LONGEST:
        yield f"is longer than {_LONGEST} bytes"
    if name == "..":
        yield "leads out of its folder"


def _with_folders(path: str) -> Iterator[str]:
    while path and path != os.sep:
        yield path
        path = os.path.split(path)[0]
