"""Who is told what happens in an experiment; nobody, unless someone listens."""

from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from typing import TYPE_CHECKING, Any

from vitrail.data import Source
from vitrail.training.log import Watcher

if TYPE_CHECKING:
    from vitrail.errors import VitrailError
    from vitrail.experiments.experiment import Experiment, Part, Run
    from vitrail.training.finish import Outcome
    from vitrail.training.folder import NamedFolder, RunFolder
    from vitrail.training.session import Session

Advance = Callable[[int], None]


class Audience:
    """Hears everything and says nothing; the command line and notebooks have others."""

    def reading(self, source: Source) -> AbstractContextManager[Advance]:
        """The images of a source are about to be read, one after the other."""
        return nullcontext(_silent)

    def working(self, title: str, images: int) -> AbstractContextManager[Advance]:
        """A piece of work on so many images is about to begin."""
        return nullcontext(_silent)

    def planned(self, experiment: "Experiment", folder: "NamedFolder", **facts: Any) -> None:
        """It is decided what will happen."""

    def begins(
        self, experiment: "Experiment", run: "Run", session: "Session", folder: "RunFolder", number: int
    ) -> None:
        """A run begins or goes on, as the `number`-th of this process."""

    def watching(self, session: "Session", folder: "RunFolder") -> AbstractContextManager[Watcher]:
        """What happens in a run is about to be told."""
        return nullcontext(_silent)

    def ended(self, experiment: "Experiment", run: "Run", outcome: "Outcome", folder: "RunFolder") -> None:
        """A run has come to its end."""

    def part(self, experiment: "Experiment", part: "Part", *, is_done: bool) -> None:
        """An experiment that is part of this one begins, or was done before."""

    def failed(self, experiment: "Experiment", part: "Part | Run", error: "VitrailError") -> None:
        """A step came to nothing; the others go on."""

    def tell(self, experiment: "Experiment", fact: Any, **about: Any) -> None:
        """Something that only this kind of experiment knows."""

    def result(self, experiment: "Experiment", result: Any, folder: "NamedFolder") -> None:
        """All steps are done."""


def _silent(_news: Any) -> None:
    pass
