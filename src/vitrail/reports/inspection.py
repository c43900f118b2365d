"""The figures of the paper from one model: what is there without images, and what a few or many images add."""

from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from functools import cached_property
from itertools import pairwise

import numpy as np
import torch

from vitrail.config.figures import USUAL, WITHOUT_IMAGES, FigureName
from vitrail.data import Part, Preparation, Source, evaluation_batches
from vitrail.data.sources.parts import evenly
from vitrail.errors import DataError, UsageError, VitrailError
from vitrail.inspection import (
    Filters,
    attention_rollout,
    covers,
    distances_of_images,
    logit_lens,
    occlusion,
    position_similarity,
    principal_filters,
    reading_maps,
    uniform_distance,
)
from vitrail.inspection.looking import (
    NoAttention,
    chosen_layers,
    images_at_a_time,
    looking,
    probabilities,
    transformer,
)
from vitrail.inspection.reading import WORDS
from vitrail.models import Classifier
from vitrail.reports.distance import Distances, distance_figure
from vitrail.reports.figures import Figure
from vitrail.reports.filters import filters_figure
from vitrail.reports.lens import Lens, lens_figure
from vitrail.reports.maps import maps_figure
from vitrail.reports.occlusion import occlusion_figure
from vitrail.reports.positions import positions_figure
from vitrail.reports.rollout import rollout_figure
from vitrail.reports.shown import Shown
from vitrail.reports.three_panels import three_panels

Progress = Callable[[str, int], AbstractContextManager[Callable[[int], None]]]
"""Told what is done and how often; gives a function that is told how many more are done."""

# Of a small grid three patches would be half of it, or all.
_WINDOW, _WINDOW_OF_FEW, _FEW_PATCHES = 3, 1, 4
# So that one hears of progress.
_MOST_AT_A_TIME = 32


@dataclass(frozen=True)
class LeftOut:
    """A figure that cannot be made of this network."""

    name: str
    error: VitrailError


def grouped(left_out: Iterable[LeftOut]) -> list[LeftOut]:
    """The same with figures that lack one thing told together, so that nothing is said twice."""
    found: dict[str, list[LeftOut]] = {}
    for one in left_out:
        found.setdefault("" if isinstance(one.error, NoAttention) else str(one.error), []).append(one)
    return [_together(several) for several in found.values()]


def _together(several: Sequence[LeftOut]) -> LeftOut:
    first = several[0].error
    names = ", ".join(one.name for one in several)
    if len(several) > 1 and isinstance(first, NoAttention):
        return LeftOut(names, NoAttention(first.came.partition(",")[0], wanted=first.wanted, fix=first.fix))
    return LeftOut(names, first)


def each_figure(
    model: Classifier,
    preparation: Preparation | None = None,
    images: Source | None = None,
    wanted: Iterable[FigureName] | None = None,
    *,
    layers: Sequence[int] | None = None,
    most_shown: int = 6,
    progress: Progress | None = None,
) -> Iterator[Figure | LeftOut]:
    """The figures that this network can be shown in, each as soon as it is made, and the reason for each left out.

    Without images: filters and positions. `layers` are those that attention is taken of. All images count in
    distances and lens; so many of them as `most_shown` are drawn, evenly spread.
    """
    names = wanted if wanted is not None else WITHOUT_IMAGES if images is None else USUAL
    look = _Look(
        model, preparation, images, layers, most_shown, progress or (lambda _what, _count: nullcontext(_silent))
    )
    for name in names:
        try:
            yield getattr(look, _MADE_BY[name])()
        except (UsageError, DataError) as error:
            yield LeftOut(name, error)


_MADE_BY: dict[FigureName, str] = {
    "filters": "make_filters",
    "positions": "make_positions",
    "distance": "make_distance",
    "figure-7": "make_three_panels",
    "rollout": "make_rollout",
    "lens": "make_lens",
    "maps": "make_maps",
    "occlusion": "make_occlusion",
}


@dataclass(frozen=True)
class _Look:
    """What the figures share: each number is computed once, when the first figure asks for it."""

    model: Classifier
    preparation: Preparation | None
    source: Source | None
    layers: Sequence[int] | None
    most_shown: int
    progress: Progress

    def make_filters(self) -> Figure:
        return filters_figure(self._filters)

    def make_positions(self) -> Figure:
        config = transformer(self.model, "position embedding").config
        own = config.position_at == "every_layer"
        layer = self._layers[0] if own else None
        return positions_figure(self._similarity, layer)

    def make_distance(self) -> Figure:
        return distance_figure(self._distances)

    def make_three_panels(self) -> Figure:
        return three_panels(self._filters, self._similarity, self._distances)

    def make_rollout(self) -> Figure:
        network = transformer(self.model, "attention rollout")
        shown, found = self._shown, []
        with self.progress("attention rollout", len(shown)) as advance:
            for image in shown.images.split(1):
                found.append(attention_rollout(network, image, self._layers))
                advance(1)
        which = "all layers" if len(self._layers) == network.config.depth else f"layers {_listed(self._layers)}"
        weights = torch.cat(found).numpy()
        return rollout_figure(weights, shown, network.config.pixels_per_patch, WORDS[network.config.pool], which)

    def make_lens(self) -> Figure:
        return lens_figure(self._lens, self._shown, self._places)

    def make_maps(self) -> Figure:
        network = transformer(self.model, "attention map")
        depth = network.config.depth
        layers = (
            tuple(self._layers)
            if self.layers is not None
            else tuple(sorted({0, depth // 3, 2 * depth // 3, depth - 1}))
        )
        found = reading_maps(network, self._shown.images[:1], layers)[:, 0].numpy()
        read = "the class token" if network.config.class_token else "the mean patch, for want of a class token,"
        return maps_figure(found, layers, self._shown, read)

    def make_occlusion(self) -> Figure:
        shown = self._shown
        window = _WINDOW if min(self.model.config.grid) > _FEW_PATCHES else _WINDOW_OF_FEW
        there = covers(self.model, window)
        with self.progress("covering", len(shown) * len(there.boxes)) as advance:
            drops = occlusion(self.model, shown.images, window=window, advance=advance)
        return occlusion_figure(drops.numpy(), shown, there)

    @cached_property
    def _layers(self) -> list[int]:
        return sorted(set(chosen_layers(transformer(self.model, "layer"), self.layers)))

    @cached_property
    def _filters(self) -> Filters:
        return principal_filters(self.model)

    @cached_property
    def _similarity(self) -> np.ndarray:
        return position_similarity(self.model, self._layers[0]).numpy()

    @cached_property
    def _places(self) -> np.ndarray:
        return evenly(len(self._given[0]), self.most_shown)

    @cached_property
    def _shown(self) -> Shown:
        source, preparation = self._given
        places = self._places
        batches = evaluation_batches(Part(source, places, source.split), preparation, batch_size=len(places))
        images = next(iter(batches)).images.clone()
        guesses, sure = self._answers(images)
        return Shown(
            images=images,
            preprocessing=preparation.preprocessing,
            names=tuple(source.where(int(place)) for place in places),
            guesses=guesses,
            confidence=sure,
            labels=self.model.labels,
            truths=self._truths(places),
        )

    def _truths(self, places: np.ndarray) -> tuple[int, ...] | None:
        """The class of each image by the numbers of the network, where its data and the network mean the same ones."""
        source, labels = self._given[0], self.model.labels
        if labels is None or source.labels.is_multi or not set(source.classes) <= set(labels):
            return None
        return tuple(labels.index(source.classes[number]) for number in source.labels.values[places])

    def _answers(self, images: torch.Tensor) -> tuple[np.ndarray | None, np.ndarray | None]:
        if not self.model.config.num_classes:
            return None, None
        weight = next(self.model.parameters())
        with looking(self.model):
            outputs = [self.model(image.to(weight.device, weight.dtype)) for image in images.split(1)]
        sure, guesses = probabilities(self.model, torch.cat(outputs)).max(dim=-1)
        return guesses.cpu().numpy(), sure.cpu().numpy()

    @cached_property
    def _distances(self) -> Distances:
        network = transformer(self.model, "attention distance")
        layers = self._layers
        found = [distances_of_images(network, batch, layers) for batch in self._batches("attention distance")]
        return Distances(
            torch.cat(found).numpy(), tuple(layers), uniform_distance(network), network.config.pixels_per_patch
        )

    @cached_property
    def _lens(self) -> Lens:
        transformer(self.model, "layer to read between the blocks")
        probability, guesses = [], []
        for batch in self._batches("logit lens"):
            shares = probabilities(self.model, logit_lens(self.model, batch))
            final = shares[-1].argmax(dim=-1)
            probability.append(shares.gather(2, final.expand(len(shares), -1)[..., None]).squeeze(2).numpy())
            guesses.append(shares.argmax(dim=-1).numpy())
        squashed = "sigmoid" if self.model.provenance.get("loss") == "sigmoid" else "softmax"
        return Lens(np.concatenate(probability, axis=1), np.concatenate(guesses, axis=1), squashed)

    def _batches(self, what: str) -> Iterator[torch.Tensor]:
        source, preparation = self._given
        with self.progress(what, len(source)) as advance:
            for batch in evaluation_batches(
                source, preparation, batch_size=min(_MOST_AT_A_TIME, images_at_a_time(self.model))
            ):
                yield batch.images
                advance(len(batch.ids))

    @property
    def _given(self) -> tuple[Source, Preparation]:
        if self.source is None or self.preparation is None:
            raise UsageError("there are no images", wanted="some to send through the network")
        return self.source, self.preparation


def _listed(layers: list[int]) -> str:
    """Numbers, or a range where they follow each other."""
    if len(layers) > 2 and all(after == before + 1 for before, after in pairwise(layers)):
        return f"{layers[0]} to {layers[-1]}"
    return ", ".join(map(str, layers))


def _silent(_done: int) -> None:
    """Tells nobody."""
