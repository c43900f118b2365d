"""DMLab: how far the nearest object is and whether it is worth taking, in the TFRecord files of VTAB's authors."""

from collections.abc import Iterator
from pathlib import Path

import numpy as np

from vitrail.data.sources.files import shown
from vitrail.data.sources.labels import Labels
from vitrail.data.sources.slices import Slices, Stretches
from vitrail.data.sources.strings import Strings
from vitrail.data.vtab.pools import Listed, Pools, official
from vitrail.data.vtab.tasks import Task
from vitrail.data.vtab.tfrecord import Span, examples
from vitrail.errors import DataError

# TFDS has no names for them either: close, far and very far, each with a good or a bad object.
_NAMES = tuple(str(number) for number in range(6))


def open_dmlab(task: Task, root: Path, download: bool) -> Pools:
    """All three splits come from its authors."""
    train, val, test = (_listed(task, root / "dmlab", split) for split in ("train", "validation", "test"))
    return official(task.name, train, val, test)


def _listed(task: Task, home: Path, split: str) -> Listed:
    files = sorted(home.glob(f"dmlab-{split}.tfrecord*"))
    places: list[tuple[int, int, int]] = []
    labels: list[int] = []
    ids: list[str] = []
    for number, path in enumerate(files):
        for (start, stop), name, label in _records(path):
            places.append((number, start, stop - start))
            labels.append(label)
            ids.append(name)
    file, start, size = np.array(places, dtype=np.int64).reshape(-1, 3).T.copy()
    names = Strings(ids)
    stretches = Stretches(files=tuple(map(str, files)), file=file, start=start, size=size)
    source = Slices(task.name, split, _NAMES, Labels.of(labels, len(_NAMES)), stretches, names)
    return Listed(source, names)


def _records(path: Path) -> Iterator[tuple[Span, str, int]]:
    """Where each image lies, its name and its label."""
    try:
        with path.open("rb") as content:
            for found in examples(path):
                image, name, label = (found.get(key) for key in ("image", "filename", "label"))
                if not isinstance(image, tuple) or not isinstance(name, tuple) or not isinstance(label, int):
                    raise DataError(
                        f"a record has {', '.join(sorted(found)) or 'nothing'}",
                        wanted="image, filename and label",
                        where=shown(str(path)),
                    )
                if not 0 <= label < len(_NAMES):
                    raise DataError(f"a label is {label}", wanted="0 to 5", where=shown(str(path)))
                content.seek(name[0])
                yield image, content.read(name[1] - name[0]).decode("utf-8", "replace"), label
    except OSError as error:
        raise DataError(f"the file could not be read ({error.strerror})", where=shown(str(path))) from None
