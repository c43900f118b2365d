"""What can be known of a transfer before its first run: whether models can be read, and whether data is all there."""

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

from vitrail.cli.finetuning import plan_finetuning
from vitrail.cli.training import checking
from vitrail.cli.words import is_given
from vitrail.errors import DataError, UsageError, choose, notice

if TYPE_CHECKING:
    import torch

    from vitrail.data import Source
    from vitrail.evaluation.real import RealLabels
    from vitrail.experiments.finetune_plan import Plan
    from vitrail.experiments.finetune_start import Start
    from vitrail.experiments.transfer_pairs import Pair


class Look:
    """Reads every model and opens all data; nothing is written."""

    def __init__(
        self, data: Sequence[str], words: Sequence[str], device: "torch.device", before: "Sequence[Pair]" = ()
    ) -> None:
        """`words` are options of `vitrail finetune`, also NAME=VALUE for one data set; `before` is in the table."""
        from vitrail.experiments.transfer_pairs import short_names

        self.sources: list[Source] = []
        """What was opened."""
        self._data = dict(zip(short_names(data), data, strict=True))
        self._words, self._device = words, device
        self._copies = {pair.data: pair.plan.config.data.copies for pair in before if pair.plan is not None}

    def pairs(self, models: Sequence[str], *, skip_missing: bool, real: "RealLabels | None") -> "list[Pair]":
        """A plan for each model on each data set; data that is absent is an error, or the problem of its pairs."""
        from vitrail.experiments.finetune_start import read_start
        from vitrail.experiments.transfer_pairs import Pair, has_real, short_names

        found: list[Pair] = []
        problems: dict[str, DataError] = {}
        for source, label in zip(models, short_names(models), strict=True):
            start = read_start(source)
            for name in self._data:
                plan = None
                try:
                    if name not in problems:
                        plan = self._plan(start, name)
                        if not found or label == found[0].model:
                            self._open(plan, real)
                except DataError as error:
                    problems[name], plan = error, None
                problem = str(problems[name]) if plan is None else ""
                made = Pair(model=label, data=name, pretraining=_pretraining(start), plan=plan, problem=problem)
                found.append(made)
        if problems and (not skip_missing or len(problems) == len(self._data)):
            raise self._missing(problems)
        if real is not None and not any(map(has_real, found)):
            raise UsageError("--real-labels is given without ImageNet", wanted="--data imagenet")
        return found

    def _plan(self, start: "Start", name: str) -> "Plan":
        words = ["--data", self._data[name], *words_for(self._words, name, list(self._data))]
        if self._copies and not is_given("--copies", words):
            words += ["--copies", self._kept(name)]
        _, plan = plan_finetuning(start, words)
        return plan

    def _kept(self, name: str) -> str:
        """How a table treats copies where it is not said: as it was begun, perhaps before they were looked for."""
        kept = self._copies.get(name, next(iter(self._copies.values())))
        if kept == "apart":
            notice(
                "This table was begun with images held out as if there were no copies (--copies apart), and the rest "
                "of it stays comparable; under another --name copies are kept together."
            )
        return kept

    def _open(self, plan: "Plan", real: "RealLabels | None") -> None:
        """Every image of every split is read before the first step, so that no bad file is met hours later."""
        from vitrail.evaluation.real import match_real
        from vitrail.experiments.finetune_plan import final_runs, sweep_runs
        from vitrail.experiments.transfer_pairs import is_imagenet
        from vitrail.training.sources import open_run_data

        for run in (*sweep_runs(plan)[:1], *final_runs(plan, plan.rates[0])[:1]):
            opened = open_run_data(run.config.data, self._device, checking)
            self.sources += [source for source in (opened.train, opened.held_out, opened.test) if source is not None]
        if real is not None and is_imagenet(plan):
            match_real(real, measured_source(plan, self._device))

    def _missing(self, problems: dict[str, DataError]) -> DataError:
        """All that is absent, at once."""
        told = "".join(f"\n  {name}: {error}" for name, error in problems.items())
        others = ", or add --skip-missing to do the others" if len(problems) < len(self._data) else ""
        return DataError(
            f"{len(problems)} of {len(self._data)} data sets cannot be used:{told}",
            fix=f"\nNothing was trained. Bring what is missing{others}.",
        )


def _pretraining(start: "Start") -> str:
    """What travels with the weights about how they came to be."""
    known = start.checkpoint.provenance
    if "recipe" in known and "data" in known:
        return f"{known['recipe']} on {known['data']}, {known.get('step', '?')} steps"
    return f"see {known['hub']} on the hub" if "hub" in known else "not known, because its file does not say"


# What is behind these may hold an equals sign of its own.
_PATHS = ("--root", "--few-shot", "--few-shot-root", "--preprocessing")


def words_for(words: Sequence[str], data: str, names: Sequence[str]) -> list[str]:
    """The words for one data set: NAME=VALUE is for that one alone, and a plain value for those that are not named."""
    found: list[str] = []
    for option, values in _grouped(words):
        mine, plain = [], []
        for value in values:
            name, equals, rest = value.partition("=")
            if not equals or (option in _PATHS and name not in names):
                plain.append(value)
            elif choose("data set", name, names) == data:
                mine += rest.split(",")
        if mine or plain or not values:
            found += [option, *(mine or plain)]
    return found


def _grouped(words: Sequence[str]) -> Iterator[tuple[str, list[str]]]:
    """Options, each with the words behind it."""
    groups: list[tuple[str, list[str]]] = []
    for word in words:
        if word.startswith("--") or not groups:
            groups.append((word, []))
        else:
            groups[-1][1].append(word)
    yield from groups


def measured_source(plan: "Plan", device: "torch.device") -> "Source":
    """The images that the final models were measured on."""
    from vitrail.experiments.finetune_plan import final_runs
    from vitrail.training.sources import open_run_data

    opened = open_run_data(final_runs(plan, plan.rates[0])[0].config.data, device, checking)
    source = opened.test if opened.test is not None else opened.held_out
    if source is None:
        raise DataError("there are no images to count by ReaL labels", wanted="its val folder", where=opened.train.name)
    return source
