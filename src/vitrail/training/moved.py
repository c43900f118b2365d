"""What lies beside a run and moves with it: the lesson of a self-training, whose student it is."""

from dataclasses import replace
from pathlib import Path

from vitrail.config import RunConfig

_KIND = "taught:"


def beside(config: RunConfig, run: Path) -> RunConfig:
    """The config with what was taught where it is now: in the folder that the run is in, where there is such a lesson.

    Paths are stored in full, and a folder that was moved or copied has old ones in it. Only `round-1` is the student of
    the `taught-1` beside it: another run may have been taught elsewhere, by a lesson of the same name.
    """
    if not config.data.data.startswith(_KIND):
        return config
    # Reading what was taught is not for every command that knows what a run is.
    from vitrail.data.sources.taught import RECORD

    stored = Path(config.data.data.removeprefix(_KIND))
    run = run.absolute()
    here = run.parent / stored.name
    is_student = run.name.removeprefix("round-") == stored.name.removeprefix("taught-")
    if not is_student or not (here / RECORD).is_file() or here.resolve() == stored.resolve():
        return config
    return replace(config, data=replace(config.data, data=f"{_KIND}{here}"))
