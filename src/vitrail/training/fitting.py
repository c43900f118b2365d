"""Whether a training run fits into the memory of its GPUs, and what to change where it does not."""

from collections.abc import Iterator
from dataclasses import dataclass, replace

from vitrail.config import ModelConfig, OptimConfig, TrainConfig
from vitrail.training.footprint import Footprint, Spread, footprint, share_of
from vitrail.training.spread import SHARE_FOR_STATE

USABLE_SHARE = 0.9
"""Of a GPU's memory; the rest is for the CUDA context, libraries and fragmentation."""
_MOST_GPUS = 1024


@dataclass(frozen=True, kw_only=True)
class Question:
    """A run on some GPUs of so much memory each."""

    model: ModelConfig
    train: TrainConfig
    """Where its micro-batch is not said, the largest that fits is meant."""
    optim: OptimConfig
    gpus: int
    parallel: Spread | None
    """None for the one that suits the size of the network."""
    memory: float
    """Bytes of each GPU."""

    @property
    def usable(self) -> float:
        return USABLE_SHARE * self.memory


@dataclass(frozen=True)
class Change:
    """What to add to the command, and what each GPU would hold then."""

    options: str
    footprint: Footprint
    fits: bool


def answer(question: Question) -> Footprint:
    """The memory of a run, with the micro-batch it asks for or the largest that fits; with one image, if none does."""
    parallel = question.parallel or suitable_parallel(question)
    if question.train.micro_batch is not None:
        return _with(question, parallel, question.train.micro_batch)
    share = share_of(question.train.batch_size, question.gpus)
    divisors = [size for size in range(share, 0, -1) if share % size == 0]
    found = (_with(question, parallel, size) for size in divisors)
    return next((each for each in found if fits(each, question)), _with(question, parallel, 1))


def fits(found: Footprint, question: Question) -> bool:
    """Whether it leaves enough of each GPU free."""
    return found.total <= question.usable


def suitable_parallel(question: Question) -> Spread:
    """A copy on each GPU, unless those alone would take too large a share of it."""
    one = replace(question.train, micro_batch=1)
    copied = footprint(question.model, one, question.optim, gpus=question.gpus, parallel="ddp")
    return "fsdp" if copied.state > SHARE_FOR_STATE * question.memory else "ddp"


def changes(question: Question) -> list[Change]:
    """What would make a run smaller, the cheapest first: each by itself, and all together where none is enough."""
    found = [_change(options, changed, question) for options, changed in _alternatives(question)]
    if not any(change.fits for change in found) and (all_together := _together(question)):
        found.append(_change(*all_together, question))
    return found


def _alternatives(question: Question) -> Iterator[tuple[str, Question]]:
    train, now = question.train, answer(question)
    if train.micro_batch is not None and now.micro_batch > 1:
        free = replace(question, train=replace(train, micro_batch=None))
        smaller = answer(free).micro_batch
        yield f"--micro-batch {smaller}", replace(question, train=replace(train, micro_batch=smaller))
    if not train.checkpoint_activations:
        yield "--checkpoint-activations", replace(question, train=replace(train, checkpoint_activations=True))
    if now.parallel == "ddp":
        yield "--parallel fsdp", replace(question, parallel="fsdp")
    if (more := _more_gpus(question)) is not None:
        yield _gpus(more), more


def _together(question: Question) -> tuple[str, Question] | None:
    """Everything that helps at once: fewer images at a time, computed again, on as many GPUs as it takes."""
    train = replace(question.train, micro_batch=None, checkpoint_activations=True)
    best = replace(question, train=train, parallel="fsdp" if question.gpus > 1 else None)
    best = best if fits(answer(best), best) else _more_gpus(best)
    if best is None:
        return None
    size = answer(best).micro_batch
    return f"--micro-batch {size} --checkpoint-activations {_gpus(best)}".strip(), best


def _more_gpus(question: Question) -> Question | None:
    """Parts of the network on the fewest GPUs, doubling, that hold it."""
    gpus = 2 * question.gpus
    while gpus <= _MOST_GPUS and question.train.batch_size % gpus == 0:
        more = replace(question, gpus=gpus, parallel="fsdp")
        if fits(answer(more), more):
            return more
        gpus *= 2
    return None


def _gpus(question: Question) -> str:
    return f"--gpus {question.gpus} --parallel fsdp" if question.gpus > 1 else ""


def _change(options: str, changed: Question, asked: Question) -> Change:
    found = answer(changed)
    return Change(options, found, fits(found, asked))


def _with(question: Question, parallel: Spread, size: int) -> Footprint:
    train = replace(question.train, micro_batch=size)
    return footprint(question.model, train, question.optim, gpus=question.gpus, parallel=parallel)
