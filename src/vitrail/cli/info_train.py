"""`vitrail info --train`: what a training run holds on each GPU, whether it fits, and what to change if not."""

from dataclasses import dataclass, fields
from typing import Any

from vitrail.cli.terminal import console, megabytes, print_json, printable, table
from vitrail.config import ModelConfig, OptimConfig, PeerConfig, TrainConfig, VitConfig, replace, to_json
from vitrail.config.checks import positive
from vitrail.config.training import Optimizer, Parallel, Precision
from vitrail.errors import UsageError
from vitrail.training.fitting import USABLE_SHARE, Change, Question, answer, changes, fits
from vitrail.training.footprint import Footprint, share_of

_ASSUMED_GIGABYTES = 80.0
_ABOUT = {
    "weights": "float32, and buffers",
    "gradients": "those there are then: kept ones, and those that arrive",
    "optimizer": "moments of the optimiser",
    "average": "Polyak average, and its distance from the weights",
    "casts": "copies of weights in bfloat16, kept for the backward pass",
    "activations": "kept for the backward pass",
    "temporaries": "of the backward pass",
    "gathered": "whole blocks and their gradients, put together by FSDP2",
    "images": "the batch in use, and those made ready",
    "libraries": "workspaces of cuBLAS",
}


@dataclass(frozen=True, kw_only=True)
class Training:
    """Options of --train."""

    gpus: int = 1
    """GPUs that share a batch."""
    micro_batch: int | None = None
    """Images at a time on one GPU; the most that fit if not said."""
    precision: Precision = "bfloat16"
    """Of the arithmetic; weights and moments are always float32."""
    optimizer: Optimizer = "adam"
    """Adam holds two moments for each weight, SGD one."""
    average: bool = False
    """Whether a Polyak average of the weights is kept."""
    dropout: float | None = None
    """Of the network while it trains, which keeps a byte for each number it may drop."""
    checkpoint_activations: bool = False
    """Compute each block a second time in the backward pass instead of keeping its activations."""
    compile: bool = True
    """torch.compile, and on a single GPU one CUDA graph for the whole step."""
    parallel: Parallel = "auto"
    """A copy of the network on each GPU (ddp), a part of it on each (fsdp), or what suits its size."""
    gpu_memory: float | None = None
    """GB of each GPU; that of the GPU here if not said, else 80."""


def refuse_without_train(asked: Training) -> None:
    """Options that mean nothing without --train are a mistake, not something to ignore."""
    for field in fields(Training):
        if getattr(asked, field.name) != field.default:
            raise UsageError(f"--{field.name.replace('_', '-')} came without --train", fix="Add --train.")


def show_training(title: str, config: ModelConfig, batch: int | None, asked: Training, json: bool) -> None:
    """Print what a run would hold, for people or for programs."""
    question, note = _question(config, batch, asked)
    found = answer(question)
    advice = [] if fits(found, question) else changes(question)
    if json:
        print_json(_as_json(title, question, found, advice))
    else:
        _print(title, note, question, found, advice)


def _question(config: ModelConfig, batch: int | None, asked: Training) -> tuple[Question, str]:
    if batch is None:
        raise UsageError(
            "--train came without --batch", wanted="the images of one update", fix="Add --batch 4096, say."
        )
    for name in ("gpus", "micro_batch"):
        if getattr(asked, name) is not None:
            positive(name.replace("_", "-"), getattr(asked, name))
    if isinstance(config, PeerConfig):
        raise UsageError("--train came for a network of another package", wanted="one of `vitrail list models`")
    if not config.num_classes:
        raise UsageError("num_classes is 0", wanted="classes to train for")
    share_of(batch, asked.gpus)
    if asked.parallel == "fsdp" and asked.gpus == 1:
        raise UsageError("--parallel fsdp came with one GPU", wanted="--gpus 2 or more, to have parts")
    if asked.dropout is not None:
        if not isinstance(config, VitConfig):
            raise UsageError("--dropout came for a BiT", wanted="a Vision Transformer: a BiT has no dropout")
        config = replace(config, {"dropout": asked.dropout}, kind="model")
    memory, note = _memory(asked.gpu_memory)
    train = TrainConfig(
        batch_size=batch,
        loss="softmax",
        steps=1,
        micro_batch=asked.micro_batch,
        precision=asked.precision,
        compile=asked.compile,
        checkpoint_activations=asked.checkpoint_activations,
        average=0.9999 if asked.average else 0.0,
    )
    return (
        Question(
            model=config,
            train=train,
            optim=OptimConfig(optimizer=asked.optimizer, lr=0.0),
            gpus=asked.gpus,
            parallel=None if asked.parallel == "auto" else asked.parallel,
            memory=memory,
        ),
        note,
    )


def _memory(gigabytes: float | None) -> tuple[float, str]:
    """Bytes of each GPU, and where the number comes from when it was not said."""
    import torch

    if gigabytes is not None:
        if not 0 < gigabytes < 1e6:
            raise UsageError(f"--gpu-memory is {gigabytes}", wanted="GB of one GPU, such as 80")
        return gigabytes * 1e9, ""
    if torch.cuda.is_available():
        properties = torch.cuda.get_device_properties(0)
        return float(properties.total_memory), f"{properties.name} of this machine"
    return _ASSUMED_GIGABYTES * 1e9, "assumed: there is no GPU here; --gpu-memory says another size"


def _as_json(title: str, question: Question, found: Footprint, advice: list[Change]) -> dict[str, Any]:
    return {
        "model": title,
        "config": to_json(question.model),
        "batch": question.train.batch_size,
        "precision": question.train.precision,
        "optimizer": question.optim.optimizer,
        "average": question.train.average > 0,
        "checkpoint_activations": question.train.checkpoint_activations,
        "compile": question.train.compile,
        "gpu_memory": round(question.memory),
        "usable_memory": round(question.usable),
        "fits": fits(found, question),
        **_footprint_json(found),
        "changes": [
            {"options": change.options, "fits": change.fits, **_footprint_json(change.footprint)} for change in advice
        ],
    }


def _footprint_json(found: Footprint) -> dict[str, Any]:
    return {
        "gpus": found.gpus,
        "parallel": found.parallel,
        "micro_batch": found.micro_batch,
        "micro_batches": found.micro_batches,
        "bytes": {**found.parts, "total": found.total},
    }


def _print(title: str, note: str, question: Question, found: Footprint, advice: list[Change]) -> None:
    out = console()
    out.print(printable(title), style="bold", markup=False, soft_wrap=True)
    for name, value in _lines(question, found, note):
        out.print(printable(f"  {name:<12} {value}"), markup=False, soft_wrap=True)
    view = table("on each GPU", "memory", "at its fullest moment", numbers=("memory",))
    for name, size in found.parts.items():
        if size:
            view.add_row(_name(name), megabytes(size), _ABOUT[name])
    view.add_row("sum", megabytes(found.total), "estimate of torch.cuda.max_memory_allocated", style="bold")
    out.print(view)
    room = f"{megabytes(found.total)} of {megabytes(round(question.usable))}"
    left = f"{1 - USABLE_SHARE:.0%} of {megabytes(round(question.memory))}"
    rest = f"{left} is left to the CUDA context, libraries and fragmentation"
    if fits(found, question):
        out.print(f"It fits: {room}; {rest}.", markup=False, soft_wrap=True)
        out.print(
            f"To train so: vitrail train RECIPE --data DATA {_options(question, found)}", markup=False, soft_wrap=True
        )
        return
    out.print(f"It does not fit: {room}; {rest}.", style="bold", markup=False, soft_wrap=True)
    _print_changes(out, advice)


def _options(question: Question, found: Footprint) -> str:
    """What `vitrail train` calls the same."""
    words = [f"--batch-size {question.train.batch_size}", f"--micro-batch {found.micro_batch}"]
    if question.train.checkpoint_activations:
        words.append("--train.checkpoint-activations")
    if found.gpus > 1:
        words.append(f"--processes {found.gpus} --parallel {found.parallel}")
    return " ".join(words)


def _print_changes(out: Any, advice: list[Change]) -> None:
    if not advice:
        out.print("Nothing here makes it fit: the network is too large for these GPUs.", markup=False, soft_wrap=True)
        return
    out.print("What to change, the cheapest first:", markup=False, soft_wrap=True)
    for change in advice:
        size, images = megabytes(change.footprint.total), change.footprint.micro_batch
        verdict = "fits" if change.fits else "still too much"
        line = f"  with {change.options}: {size}, {verdict} ({_images(images)} at a time)"
        out.print(line, markup=False, soft_wrap=True)


def _lines(question: Question, found: Footprint, note: str) -> list[tuple[str, str]]:
    train = question.train
    over = "" if found.gpus == 1 else f"{found.gpus} GPUs x "
    pieces = f"{over}{found.micro_batches} x {_images(found.micro_batch)} at a time"
    kind = {None: "", "ddp": ", a copy of the network on each (ddp)", "fsdp": ", a part of it on each (fsdp)"}
    step = [
        train.precision,
        "compiled" if train.compile else "eager",
        question.optim.optimizer,
        *(["Polyak average"] if train.average else []),
        *(["activations computed again"] if train.checkpoint_activations else []),
    ]
    return [
        ("update", f"{_images(train.batch_size)} = {pieces}"),
        ("step", ", ".join(step)),
        ("GPUs", f"{found.gpus}{kind[found.parallel]}"),
        ("GPU memory", megabytes(round(question.memory)) + (f" ({note})" if note else "")),
    ]


def _images(count: int) -> str:
    return f"{count:,} image" + ("s" if count > 1 else "")


def _name(part: str) -> str:
    return {"optimizer": "optimiser"}.get(part, part)
