"""What people type, before it is parsed: the one positional word, and short names of long options."""

from collections.abc import Sequence

from vitrail.errors import UsageError

_SHORT = {
    "--data-root": "--root",
    "--batch-size": "--train.batch-size",
    "--compile": "--train.compile",
    "--no-compile": "--train.no-compile",
    "--deterministic": "--train.deterministic",
    "--epochs": "--train.epochs",
    "--freeze": "--optim.freeze",
    "--lr": "--optim.lr",
    "--micro-batch": "--train.micro-batch",
    "--precision": "--train.precision",
    "--seed": "--train.seed",
    "--steps": "--train.steps",
    "--time-limit": "--train.time-limit",
}
SHORT_NAMES = "Short names: " + ", ".join(f"{short} for {long}" for short, long in _SHORT.items()) + "."


def positional(words: Sequence[str]) -> tuple[str | None, list[str]]:
    """The first word, when it is no option, and the rest."""
    if words and not words[0].startswith("-"):
        return words[0], list(words[1:])
    return None, list(words)


def is_resume(words: Sequence[str]) -> bool:
    """Whether a run is to go on, and none begun."""
    return any(word == "--resume" or word.startswith("--resume=") for word in words)


def with_short_names(words: Sequence[str]) -> list[str]:
    """The words with every short name written out and hyphens in names; `--lr=0.1` is split into two words."""
    found = []
    for word in words:
        name, equals, value = word.partition("=")
        if name.startswith("--"):
            name = name.replace("_", "-")
            found += [_SHORT.get(name, name), *([value] if equals else [])]
        else:
            found.append(word)
    return found


_DERIVED = {
    "--schedule.lr": "--optim.lr is what it is taken from",
    "--schedule.steps": "--train.steps or --train.epochs is what it is taken from",
    "--model.num-classes": "the data has as many as it has",
}


_OF_A_RESUME = ("--micro-batch", "--workers", "--root", "--device", "--allow-changed", "--track")
_SEVERAL_PROCESSES = ("--processes", "--parallel")


def refuse_changes(words: Sequence[str], *, in_processes: bool = True) -> None:
    """A run that goes on keeps its config: say so, instead of calling its options unknown.

    `in_processes` says whether the command knows how to go on in several processes.
    """
    known = (*_SEVERAL_PROCESSES, *_OF_A_RESUME) if in_processes else _OF_A_RESUME
    for word in words:
        name = word.partition("=")[0].replace("_", "-")
        if word.startswith("--") and name not in (*known, "--resume", "--help"):
            if name in _SEVERAL_PROCESSES:
                raise UsageError(f"{name} is given, and this runs in one process", fix="Leave it out.")
            raise UsageError(
                f"{name} cannot change a run that goes on",
                wanted=f"one of {', '.join(known)} beside --resume",
                fix="Begin another from its weights with `vitrail finetune RUN`, or edit its config.json and add "
                "--allow-changed.",
            )


def refuse_derived(words: Sequence[str]) -> None:
    """Refuse options whose value is computed, instead of accepting and forgetting them."""
    for option, reason in _DERIVED.items():
        if option in words:
            raise UsageError(f"{option} cannot be set: {reason}")


def typed_value(option: str, words: Sequence[str]) -> str | None:
    """What stands behind an option, before all words are read; none where it was not typed."""
    return words[words.index(option) + 1] if option in words[:-1] else None


def is_given(option: str, words: Sequence[str]) -> bool:
    """Whether an option was typed; the sign of a switch does not matter."""
    head, _, tail = option.rpartition(".")
    negative = f"{head}.no-{tail}" if head else option.replace("--", "--no-", 1)
    return option in words or negative in words
