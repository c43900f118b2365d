"""Names for the outputs of a network that came without them."""

import unicodedata
from pathlib import Path

from vitrail.errors import DataError, UsageError, setting
from vitrail.zoo.imagenet import imagenet_classes

IMAGENET = "imagenet"
DATA_ORDER = "data-order"
"""What --classes says of outputs that are the classes of the data, in their order."""


def read_class_names(path: Path) -> tuple[str, ...]:
    """The lines of a file, in NFC as the class names of data are; `imagenet` names those of ImageNet-1k."""
    if str(path).casefold() == IMAGENET and not path.exists():
        return imagenet_classes()
    if str(path) == DATA_ORDER and not path.exists():
        raise UsageError(
            f"{setting('classes', DATA_ORDER)} tells `vitrail evaluate` alone that outputs are the classes of its data "
            "in order",
            wanted=f"a file with a class name per line, or {IMAGENET}",
        )
    try:
        text = path.expanduser().read_text(encoding="utf-8-sig")
    except OSError as error:
        raise DataError(f"cannot be read ({error.strerror})", where=str(path)) from None
    except UnicodeDecodeError:
        raise DataError("is no text in UTF-8", wanted="a class name per line", where=str(path)) from None
    names = [unicodedata.normalize("NFC", line.strip()) for line in text.rstrip().splitlines()]
    if not names:
        raise DataError("is empty", wanted="a class name per line", where=str(path))
    seen: dict[str, int] = {}
    for line, name in enumerate(names, start=1):
        if not name:
            raise DataError("is empty", wanted="a class name", where=f"{path}, line {line}")
        if (first := seen.setdefault(name, line)) != line:
            raise DataError(f"{name!r} is also line {first}", wanted="each class once", where=f"{path}, line {line}")
    return tuple(names)


def ensure_named(names: tuple[str, ...], outputs: int, path: Path, model: str) -> None:
    """Refuse a file of class names that is not about this model."""
    if len(names) != outputs:
        raise UsageError(
            f"there are {len(names):,} class names",
            wanted=f"{outputs:,}, one for each output of {model}",
            where=str(path),
        )
