"""Everything a run works with, made from its config: data, network, optimiser, step."""

import hashlib
from collections.abc import Callable, Iterator
from functools import lru_cache
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn.modules.batchnorm import _BatchNorm

from vitrail.config import PeerConfig, RunConfig, VitConfig
from vitrail.data import (
    Batch,
    Part,
    Preparation,
    Source,
    Stream,
    evaluation_batches,
    resident_batches,
    training_batches,
)
from vitrail.data.loading.resident import can_be_resident
from vitrail.data.sources.parts import evenly
from vitrail.errors import DataError, UsageError, setting
from vitrail.evaluation import Metrics, Predictions, classify, guess_hidden, measure
from vitrail.evaluation.subject import Subject
from vitrail.models import Classifier
from vitrail.models.masked import MaskedNetwork, Seen
from vitrail.runtime.counter import random_words
from vitrail.runtime.processes import ALONE, Processes
from vitrail.runtime.purposes import Purpose
from vitrail.training.average import Average
from vitrail.training.checkpoint import Checkpoint, Tensors
from vitrail.training.few_shot import FewShot, score
from vitrail.training.memory import checkpoint_blocks
from vitrail.training.objective import Objective, build_objective, hits, own_hits, own_losses
from vitrail.training.optimizer import build_optimizer, learning, moments
from vitrail.training.progress import Progress, read_progress
from vitrail.training.schedule import learning_rate, resolved, total_steps
from vitrail.training.sources import RunData
from vitrail.training.spread import Network, Placement, Whole, kind_of_spread
from vitrail.training.step import GraphedStep, TrainingStep, called_with

Advance = Callable[[int], None]

_WORDS = 1024
# With hidden patches, of a run without labels.
_PICTURES = 8


class Session:
    """The living parts of a run; `progress` says how far it is."""

    def __init__(
        self,
        config: RunConfig,
        model: Classifier,
        data: RunData,
        progress: Progress,
        device: torch.device,
        objective: Objective | None = None,
        placement: Placement | None = None,
    ) -> None:
        self.config, self.data, self.progress, self.device = config, data, progress, device
        self.processes: Processes = ALONE if placement is None else placement.processes
        self.model = model.to(device)
        kind = kind_of_spread(model, config.train, config.optim, device, placement)
        # FSDP2 cuts plain rows, and no others.
        if device.type == "cuda" and _has_convolutions(config) and kind.has_all:
            self.model = self.model.to(memory_format=torch.channels_last)
        if config.train.checkpoint_activations:
            checkpoint_blocks(self.model)
        # Before it is spread: what does not learn has no gradient to share.
        learning(self.model, config.optim)
        with self.processes.noticing():
            self.spread: Whole = kind(self.model, self.processes, compiled=config.train.compile)
        if data.few_shot is not None and not self.spread.has_all:
            raise UsageError(
                "a few-shot score is asked for and the network lies in parts (fsdp)",
                wanted=f"a whole network in each process, as {setting('parallel', 'ddp')} has it",
            )
        self.optimizer = build_optimizer(self.model, config.optim, self.spread.weights)
        self.train_mode()
        self.average = (
            Average(self.spread.held(), self.spread.weights, config.train.average) if config.train.average else None
        )
        self._objective = objective or (own_losses if config.masking else build_objective(config.train))
        self._is_random = _has_dropout(config) or config.masking is not None
        self._generator = _generator(device)
        self.digest = digest(data)
        self.resumed_from: Path | None = None
        self.checkpoints: tuple[Path, ...] = ()
        """Those that were there when it was made."""
        self.last_rate = 0.0
        self.step = self._build_step()

    @property
    def preparation(self) -> Preparation:
        """How images become the input of the network."""
        model, data = self.config.model, self.config.data
        return Preparation(
            size=model.image_size,
            preprocessing=self.config.preprocessing,
            channels=model.channels,
            augment=self.config.augment,
            decoder=data.decoder,
        )

    @property
    def accumulation(self) -> int:
        """Micro-batches in a batch; the images of one lie in all processes."""
        return self.config.train.batch_size // self.progress.micro_batch

    def batches(self) -> Iterator[Batch]:
        """The micro-batches from the present step on: this process's share of each."""
        source, progress = self.data.train, self.progress
        stream = Stream(
            length=len(source),
            batch_size=progress.micro_batch,
            seed=self.config.train.seed,
            rank=self.processes.rank,
            ranks=self.processes.ranks,
        )
        # A time limit may make a run longer again, but never longer than it was asked to be.
        steps = max(progress.steps, total_steps(self.config.train, len(source)))
        start, stop = progress.step * self.accumulation, steps * self.accumulation
        if self.is_resident:
            return resident_batches(source, stream, self.preparation, start=start, stop=stop, device=self.device)
        return training_batches(
            source, stream, self.preparation, start=start, stop=stop, device=self.device, workers=self.data.workers
        )

    @property
    def is_resident(self) -> bool:
        """Whether all training images live on the device."""
        return can_be_resident(self.data.train) and (self.device.type == "cuda" or not self.data.workers)

    def rate(self) -> float:
        """The learning rate of the present step."""
        schedule = resolved(self.config.schedule, self.config.optim, self.progress.steps)
        return learning_rate(schedule, self.progress.step) * self.progress.rate_factor

    def seed_dropout(self, micro: int) -> None:
        """Dropout is a function of (seed, step, micro-batch, process): it needs no state to be saved."""
        if self._is_random:
            share = micro * self.processes.ranks + self.processes.rank
            self._generator.manual_seed(word(self.config.train.seed, Purpose.DROPOUT, self.progress.step, share))

    def set_numbers(self) -> None:
        """Hand the learning rate and the share of the average to the device, for the update that follows."""
        self.last_rate = self.rate()
        self.engine.learning_rate.fill_(self.last_rate)
        if self.average is not None:
            self.engine.average_share.fill_(self.average.share(self.progress.step))

    def drop_step(self) -> None:
        """Let go of gradients and of what was captured, to have memory again."""
        for parameter in self.model.parameters():
            parameter.grad = None
        del self.step

    def rebuild_step(self) -> None:
        """A fresh step, after memory ran out."""
        self.step = self._build_step()

    def evaluate(self, source: Source, advance: Advance | None = None) -> Metrics:
        """How good the present weights, or their average, are on a source; each process takes a share of it."""
        self.model.eval()
        try:
            with self.spread.with_weights(self._best_weights()) as network:
                if self.config.masking is not None:
                    return self._guess_hidden(network, source, advance)
                return measure(self.classify(network, source, advance))
        finally:
            self.train_mode()

    def _guess_hidden(self, network: Network, source: Source, advance: Advance | None) -> Metrics:
        """How well hidden patches are predicted; the same ones are hidden every time."""
        self._generator.manual_seed(word(self.config.train.seed, Purpose.HIDING, 0, self.processes.rank))
        return guess_hidden(
            network,
            source,
            self.preparation,
            batch_size=self._evaluation_batch,
            device=self.device,
            workers=self.data.workers,
            bfloat16=self._is_bfloat16,
            advance=advance,
            processes=self.processes,
        )

    @torch.no_grad()
    def see_hidden(self, source: Source) -> Seen:
        """A few images with what is hidden of them, and what the present weights, or their average, put there."""
        assert isinstance(self.model, MaskedNetwork)
        few = Part(source, evenly(len(source), _PICTURES), source.split)
        (batch,) = evaluation_batches(few, self.preparation, batch_size=_PICTURES, device=self.device)
        self._generator.manual_seed(word(self.config.train.seed, Purpose.HIDING, 0, 0))
        self.model.eval()
        try:
            return called_with(self.model.see, self._best_weights(), batch.images)
        finally:
            self.train_mode()

    def classify(self, network: Network, source: Source, advance: Advance | None = None) -> Predictions:
        """What a network says about a source that is prepared as the run prepares its images."""
        return classify(
            network,
            source,
            self.preparation,
            batch_size=self._evaluation_batch,
            device=self.device,
            workers=self.data.workers,
            bfloat16=self._is_bfloat16,
            sigmoid=self.config.train.loss == "sigmoid",
            advance=advance,
            processes=self.processes,
            may_shrink=self.spread.has_all,
        )

    def few_shot(self, few_shot: FewShot, advance: Advance | None = None) -> dict[str, Any]:
        """The few-shot score of the present weights, or their average."""
        subject = Subject("this run", self.model, self.preparation, self.device, self._is_bfloat16)
        self.model.eval()
        try:
            return score(
                few_shot,
                subject,
                lambda images: called_with(self.model.features, self._best_weights(), images),
                batch_size=self._evaluation_batch,
                workers=self.data.workers,
                processes=self.processes,
                advance=advance,
            )
        finally:
            self.train_mode()

    def weights(self) -> dict[str, Tensor]:
        """What is kept: the average, or the weights where there is none; all processes ask, and the first gets it."""
        return self._whole(self._best_weights())

    def tensors(self) -> Tensors:
        """Everything a checkpoint has to hold, whole; all processes ask together, and the first gets it."""
        return {name: self._whole(group) for name, group in self._held().items()}

    def bytes_to_save(self) -> tuple[int, int]:
        """Of all tensors of a checkpoint, and of the weights that are kept."""
        held = self._held()
        sizes = {name: sum(map(self._whole_bytes, group.items())) for name, group in held.items()}
        return sum(sizes.values()), sizes["model"]

    @torch.no_grad()
    def load(self, checkpoint: Checkpoint) -> None:
        """Take over the tensors and the progress of a checkpoint, in place: captured graphs stay valid."""
        for name, group in self._held().items():
            for key, tensor in group.items():
                stored = checkpoint.tensors.get(name, {}).get(key)
                shape = self.spread.shape(_weight(key), tensor)
                if stored is None or stored.shape != shape:
                    came = "is not there" if stored is None else f"has shape {tuple(stored.shape)}"
                    raise UsageError(
                        f"the tensor {key!r} of {name} {came}",
                        wanted=f"shape {tuple(shape)}",
                        where=str(checkpoint.path),
                        fix="What changed does not fit this checkpoint: change it back, or begin a new run.",
                    )
                tensor.copy_(self.spread.part(_weight(key), stored))
        progress = read_progress(checkpoint.state)
        if self.config.train.batch_size % progress.micro_batch:
            raise DataError(
                f"the micro-batch is {progress.micro_batch}",
                wanted=f"a divisor of {self.config.train.batch_size}",
                where=str(checkpoint.path),
            )
        self.progress = progress
        self.engine.forget()

    @property
    def engine(self) -> TrainingStep:
        """The step behind the graphs."""
        return self.step.plain if isinstance(self.step, GraphedStep) else self.step

    def train_mode(self) -> None:
        """Dropout on; a BatchNorm that is frozen keeps its statistics too."""
        self.model.train()
        for module in self.model.modules():
            if isinstance(module, _BatchNorm) and _is_frozen(module):
                module.eval()

    @property
    def _evaluation_batch(self) -> int:
        return min(max(self.progress.micro_batch // self.processes.ranks, 64), 512)

    @property
    def _is_bfloat16(self) -> bool:
        return self.config.train.precision == "bfloat16"

    def _best_weights(self) -> dict[str, Tensor]:
        return self.spread.held() if self.average is None else self.average.state

    def _held(self) -> Tensors:
        """What this process has of everything in a checkpoint: the tensors themselves."""
        held: Tensors = {"model": self.spread.held(), "optimizer": moments(self.optimizer, self.spread.weights)}
        if self.average is not None:
            held["average"] = self.average.state
        return held

    def _whole(self, group: dict[str, Tensor]) -> dict[str, Tensor]:
        wholes = ((key, self.spread.whole(_weight(key), tensor)) for key, tensor in group.items())
        return {key: whole for key, whole in wholes if self.processes.is_first}

    def _whole_bytes(self, item: tuple[str, Tensor]) -> int:
        key, tensor = item
        return self.spread.shape(_weight(key), tensor).numel() * tensor.element_size()

    def _build_step(self) -> TrainingStep | GraphedStep:
        train = self.config.train
        count_hits = own_hits if self.config.masking else hits
        plain = TrainingStep(
            self.spread, self.optimizer, self._objective, train, self.config.optim, self.average, count_hits
        )
        graphed = self.device.type == "cuda" and train.compile and not train.checkpoint_activations
        graphed = graphed and self.spread.can_be_captured
        return GraphedStep(plain) if graphed else plain


def _weight(key: str) -> str:
    """The weight that a tensor of a checkpoint belongs to: moments are called "exp_avg/head.weight"."""
    return key.rpartition("/")[2]


def digest(data: RunData) -> str:
    """A hash of the images of a run: those learnt from, those selected on, and those measured on."""
    sources = (data.train, data.held_out, data.test)
    parts = ["" if source is None else source.digest() for source in sources]
    return hashlib.sha256(" ".join(parts).encode()).hexdigest()


def word(seed: int, purpose: Purpose, step: int, micro: int) -> int:
    """63 random bits for a generator of torch."""
    return _words(seed, purpose, step // _WORDS, micro)[step % _WORDS]


@lru_cache(maxsize=64)
def _words(seed: int, purpose: Purpose, block: int, micro: int) -> list[int]:
    """Those of many steps at once, which takes as long as those of one."""
    steps = np.arange(block * _WORDS, (block + 1) * _WORDS)
    words = random_words(seed, purpose, steps, micro, 2).tolist()
    return [(high << 32 | low) >> 1 for high, low in words]


def _generator(device: torch.device) -> torch.Generator:
    """Where torch's dropout draws from; torch.manual_seed would visit the generators of every kind of device."""
    if device.type == "cuda":
        torch.cuda.init()
        return torch.cuda.default_generators[device.index or 0]
    return torch.mps._get_default_mps_generator() if device.type == "mps" else torch.default_generator


def _has_dropout(config: RunConfig) -> bool:
    model = config.model
    if isinstance(model, PeerConfig):
        # Its package knows; a seed that nothing draws from costs nothing.
        return True
    return isinstance(model, VitConfig) and max(model.dropout, model.attention_dropout, model.stochastic_depth) > 0


def _is_frozen(module: nn.Module) -> bool:
    parameters = list(module.parameters())
    return bool(parameters) and not any(parameter.requires_grad for parameter in parameters)


def _has_convolutions(config: RunConfig) -> bool:
    return not isinstance(config.model, VitConfig) or config.model.backbone is not None
