"""Which images a run learns from, and which it is measured on: values only."""

from dataclasses import dataclass, field
from typing import Literal, get_args

from vitrail.config.checks import count, positive
from vitrail.errors import UsageError, choose

Decoder = Literal["pillow", "fast"]
CopiesKept = Literal["together", "apart"]


@dataclass(frozen=True, kw_only=True)
class DataConfig:
    """The data of a run."""

    data: str
    """A folder, a .csv, a packed copy, a known name, hf:NAME, wds:SHARDS, vtab:TASK or taught:FOLDER."""
    root: str | None = None
    """Where the files of a known data set are."""
    download: bool = False
    """Fetch a known data set that is not there."""
    split: str = "train"
    """What is learnt from; a part such as train[:1000] may be named."""
    held_out: float | None = None
    """Share of the training images to measure on; if not said, the val split, or a tenth where there is none."""
    copies: CopiesKept = field(default="together", metadata={"left_out": "apart"})
    """Keep copies of an image, exact and near ones, on one side of every split, or split as if there were none."""
    test: bool = True
    """Measure the model that is kept once on the test split, where there is one."""
    skip_bad: bool = False
    """Train without files that cannot be read, instead of stopping before the first step."""
    allow_empty: bool = False
    """Take a class folder without images as a class."""
    labelled: bool = True
    """Whether images have classes; where they have none, a folder is every image below it."""
    decoder: Decoder = "pillow"
    """Reads JPEGs for training: exactly as evaluation does, or with faster decoders that differ in a level or two."""
    few_shot: str | None = None
    """Another data set, on which a few-shot score of the features is taken with every evaluation."""
    few_shot_root: str | None = None
    """Where the files of that one are, where it is a known data set."""
    few_shot_shots: int = 10
    """Images of each of its classes that the score learns from."""
    workers: int | None = None
    """Processes that read images; chosen from the number of cores if not said, 0 for none."""

    def __post_init__(self) -> None:
        choose("decoder", self.decoder, get_args(Decoder))
        choose("copies", self.copies, get_args(CopiesKept))
        if self.held_out is not None and not 0 <= self.held_out < 1:
            raise UsageError(f"held_out is {self.held_out}", wanted="a share from 0 up to 1")
        positive("few_shot_shots", self.few_shot_shots)
        if self.workers is not None:
            count("workers", self.workers)
