"""A run in a notebook: how far it has come while a cell runs, and what came of it as the value of the cell."""

import base64
import html
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from vitrail.reports.numbers import percent
from vitrail.runtime.progress import Advance, progress
from vitrail.training.events import Evaluated, RunBegan, RunEnded, Stepped, Told

if TYPE_CHECKING:
    from vitrail.experiments.calling import Finished
    from vitrail.training.events import OnEvent

_PICTURES = ("accuracy", "loss", "confusion")
# A cell is kept in the file of the notebook: what is larger stays on disk, one link away.
_MOST_BYTES = 200_000


@contextmanager
def progress_of_runs(on_event: "OnEvent | None") -> Iterator["OnEvent"]:
    """Hear what happens in runs, show how far each has come where that is asked for, and tell it on."""
    with ExitStack() as bars:
        advance: Advance | None = None
        best = 0.0

        def hear(event: Told) -> None:
            nonlocal advance, best
            if isinstance(event, RunBegan):
                bars.close()
                best = 0.0
                advance = bars.enter_context(progress(event.title, event.steps - event.start, unit="steps"))
            elif isinstance(event, Stepped) and advance is not None:
                advance(1)
            elif isinstance(event, Evaluated) and advance is not None:
                best = max(best, event.accuracy)
                advance.note = f"held-out accuracy {percent(event.accuracy)}, best {percent(best)}"
            elif isinstance(event, RunEnded):
                bars.close()
                advance = None
            if on_event is not None:
                on_event(event)

        yield hear


def finished_html(finished: "Finished") -> str:
    """The headline, the curves and what is confused, and where everything lies."""
    folder = finished.folder
    if finished.result is None:
        state = "not at its end: <code>.resume()</code> goes on"
    elif finished.accuracy is not None:
        state = f"accuracy {percent(finished.accuracy, 2)}"
    else:
        state = "done"
    page = finished.report
    links = [] if page is None else [f'<a href="{html.escape(page.as_uri())}" target="_blank">the page of it</a>']
    return (
        f"<div><b>{html.escape(finished.verb)}: {state}</b><br>"
        f"{' · '.join([f'<code>{html.escape(str(folder))}</code>', *links])}</div>"
        f"<div>{''.join(_pictures(folder if page is None else page.parent))}</div>"
    )


def _pictures(folder: Path) -> Iterator[str]:
    """The figures of a run as they lie in its folder, each within the notebook."""
    for name in _PICTURES:
        path = folder / "figures" / f"{name}.svg"
        if path.is_file() and path.stat().st_size <= _MOST_BYTES:
            # As a picture, in which no script of a file is run.
            drawn = base64.b64encode(path.read_bytes()).decode("ascii")
            yield (
                f'<img alt="{name}" src="data:image/svg+xml;base64,{drawn}" '
                'style="width:300px;max-width:100%;background:#fff;margin:4px">'
            )
