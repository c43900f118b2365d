"""Find the verb, run it, and turn a user's mistake into one message and an exit code."""

import errno
import importlib
import io
import os
import sys
import warnings
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from types import ModuleType
from typing import Any

from vitrail import __version__
from vitrail.cli.speaker import one_speaker, processes_started, what_to_say
from vitrail.cli.words import told_value
from vitrail.config.spelling import OPTIONS
from vitrail.errors import DataError, DiskError, Notice, UsageError, VitrailError, choose
from vitrail.runtime.progress import showing

VERBS: dict[str, tuple[str, str]] = {
    "train": ("vitrail.cli.train", "a network from scratch, by a recipe; or go on with a run"),
    "finetune": ("vitrail.cli.finetune", "any model to your images: sweep, retrain, mean over seeds"),
    "selftrain": (
        "vitrail.cli.selftrain",
        "learn from images without labels too: a teacher labels them, a noised student learns",
    ),
    "transfer": ("vitrail.cli.transfer", "models to a list of data sets, in one table under the paper's"),
    "evaluate": ("vitrail.cli.evaluate", "how good models are: accuracy, classes, confusions, calibration"),
    "predict": ("vitrail.cli.predict", "what images show, with probabilities; or their features"),
    "export": ("vitrail.cli.export", "a model for onnxruntime, OpenVINO or torch.export, compared with torch"),
    "serve": ("vitrail.cli.serve", "a model over HTTP, and a page that shows what it sees"),
    "inspect": (
        "vitrail.cli.inspect",
        "what a model has learnt: the paper's figures of its filters, positions, attention",
    ),
    "fewshot": (
        "vitrail.cli.fewshot",
        "how much a few images of each class teach a linear classifier on frozen features",
    ),
    "knn": ("vitrail.cli.knn", "what the nearest training images say, on frozen features"),
    "probe": ("vitrail.cli.probe", "a linear classifier on frozen features of all training images"),
    "vtab": ("vitrail.cli.vtab", "the 19 tasks of VTAB-1k, and the table of the paper"),
    "report": ("vitrail.cli.report", "the page of a run or a model, made anew; or of several runs compared"),
    "demo": ("vitrail.cli.demo", "train a small Vision Transformer on embedded digits, and see where it looks"),
    "list": ("vitrail.cli.listing", "models, recipes and data sets by name"),
    "info": ("vitrail.cli.info", "what a network is and costs, or what a checkpoint file holds"),
    "pull": ("vitrail.cli.pull", "a model from the Hugging Face hub, as a model folder"),
    "push": ("vitrail.cli.push", "a model to the hub, with a card"),
    "convert": ("vitrail.cli.convert", "a checkpoint from one layout to another, proven equal"),
    "data": ("vitrail.cli.data", "what is wrong with a data set; a packed copy that loads faster"),
}

_STOPPED = 75
# Verbs that know what to do as one of several processes.
_PARALLEL = ("train", "finetune", "transfer", "evaluate", "fewshot", "knn", "probe")


def main(arguments: Sequence[str] | None = None) -> int:
    """Run `vitrail VERB ...`; returns the exit code."""
    words = list(sys.argv[1:] if arguments is None else arguments)
    if not words or words[0] in ("-h", "--help", "help"):
        print(_help())
        return 0
    if words[0] in ("-V", "--version"):
        print(f"vitrail {__version__}")
        return 0

    def do() -> None:
        choose("command", words[0], VERBS)
        # Before anything heavy is imported: soon after the first process has ended, torchrun ends the others.
        _ensure_parallel(words[0])
        _run(verb_module(words[0]), words)

    return guarded(do)


def verb_module(verb: str) -> ModuleType:
    """The module of a verb, loaded when it is asked for."""
    return importlib.import_module(VERBS[choose("command", verb, VERBS)][0])


def guarded(do: Callable[[], None]) -> int:
    """Do it as this process of a command; a user's mistake becomes one message and an exit code."""
    if processes_started() > 1:
        from vitrail.runtime.watch import end_with_launcher

        end_with_launcher()
    code = _guarded(do)
    processes = sys.modules.get("vitrail.runtime.processes")
    if processes is not None and processes.is_left_waiting():
        for stream in (sys.stdout, sys.stderr):
            stream.flush()
        os._exit(code)
    return code


def _guarded(do: Callable[[], None]) -> int:
    if isinstance(sys.stdout, io.TextIOWrapper):
        # Some outputs take few letters: a name that is none of them is escaped, and not the end.
        sys.stdout.reconfigure(errors="backslashreplace")
    warnings.simplefilter("always", Notice)
    warnings.showwarning = _show_warning
    try:
        with one_speaker(), showing(True):
            do()
        sys.stdout.flush()
    except VitrailError as error:
        error.spell(OPTIONS)
        if told := what_to_say(error):
            # A run that was stopped is no error: everything is saved.
            print(told if error.exit_code == _STOPPED else f"error: {told}", file=sys.stderr)
        return error.exit_code
    except BrokenPipeError:
        # The reader of our output has gone, as in `vitrail list | head`; nothing is left to say.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
    except OSError as error:
        where = f"{error.filename}: " if error.filename else "the output could not be written: "
        print(f"error: {where}{error.strerror}.", file=sys.stderr)
        return DiskError.exit_code if error.errno == errno.ENOSPC else DataError.exit_code
    except KeyboardInterrupt:
        print("stopped", file=sys.stderr)
        return 130
    return 0


def _run(module: ModuleType, words: list[str]) -> None:
    """Run a verb, or one of its commands when it has several; some parse their words themselves."""
    with _values_in_words(words):
        _run_verb(module, words)


def _run_verb(module: ModuleType, words: list[str]) -> None:
    import tyro

    if hasattr(module, "run_words"):
        module.run_words(words[1:])
        return
    verb: Callable[..., None] | dict[str, Callable[..., None]] = module.run
    prog = f"vitrail {words[0]}"
    if isinstance(verb, dict):
        if len(words) > 1 and not words[1].startswith("-"):
            choose(f"command of `{prog}`", words[1], verb)
        tyro.extras.subcommand_cli_from_dict(verb, args=words[1:], prog=prog)
    else:
        tyro.cli(verb, args=words[1:], prog=prog)


@contextmanager
def _values_in_words(words: list[str]) -> Iterator[None]:
    """A value that does not fit its option is told in a sentence: tyro names the types of Python."""
    try:
        errors: Any = importlib.import_module("tyro._errors")
        heard = errors.on_parse_error
        unfit = errors.InstantiationFailure, errors.InvalidChoice
    except (ImportError, AttributeError):
        # A version without this hook tells it in its own words.
        yield
        return

    def tell(event: Any) -> None:
        argument = getattr(event, "argument", None)
        if isinstance(event, unfit) and argument is not None and not argument.is_positional():
            choices = getattr(event, "choices", ())
            metavar = "|".join(choices) if choices else str(argument.lowered.metavar)
            nargs = argument.lowered.nargs
            most = 1 if nargs is None else nargs if isinstance(nargs, int) else None
            raise told_value(argument.lowered.name_or_flags[0], metavar, words, most) from None

    with heard(tell):
        yield


def _ensure_parallel(verb: str) -> None:
    """Refuse several processes that would all do the same."""
    if verb not in _PARALLEL and processes_started() > 1:
        raise UsageError(
            f"`vitrail {verb}` was started in {processes_started()} processes",
            wanted="one",
            fix="Start it without torchrun.",
        )


def _help() -> str:
    width = max(map(len, VERBS))
    verbs = "\n".join(f"  {verb.ljust(width)}  {about}" for verb, (_, about) in VERBS.items())
    return (
        f"vitrail {__version__}: the Vision Transformers, hybrids and ResNets of the paper, exact to the original.\n\n"
        f"usage: vitrail COMMAND ...\n\n{verbs}\n\n"
        "`vitrail COMMAND --help` explains a command.  Start with `vitrail demo`."
    )


def _show_warning(message: Any, category: type[Warning], filename: str, lineno: int, *_rest: Any) -> None:
    text = (
        f"note: {message.spelled(OPTIONS)}"
        if isinstance(message, Notice)
        else warnings.formatwarning(message, category, filename, lineno)
    )
    print(text.rstrip(), file=sys.stderr)
