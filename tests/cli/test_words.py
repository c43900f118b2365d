"""What people type, before it is parsed."""

import math

import pytest

from vitrail.cli import evaluate, fewshot, inspect, knn, predict, probe, report, train, transfer
from vitrail.cli.words import (
    SHORT_NAMES,
    ensure_plain_name,
    in_front,
    is_given,
    positional,
    refuse_derived,
    told_value,
    typed_value,
    with_short_names,
)
from vitrail.errors import UsageError


@pytest.mark.parametrize(
    ("words", "name", "rest"),
    [
        (["vit-digits", "--lr", "1"], "vit-digits", ["--lr", "1"]),
        (["--lr", "1", "vit-digits"], "vit-digits", ["--lr", "1"]),
        (["--no-compile", "--train.epochs", "2", "vit-digits"], "vit-digits", ["--no-compile", "--train.epochs", "2"]),
        (["--lr", "1", "--", "vit-digits"], "vit-digits", ["--lr", "1"]),
        # Of which it is not known how many words it takes.
        (["--model.patch-size", "4", "4"], None, ["--model.patch-size", "4", "4"]),
        (["--lr", "1"], None, ["--lr", "1"]),
        (["-h"], None, ["-h"]),
        ([], None, []),
    ],
)
def test_the_word_that_belongs_to_no_option_is_positional(words, name, rest) -> None:
    assert positional(train.Options, words) == (name, rest)


@pytest.mark.parametrize(
    ("words", "wanted"),
    [
        (["--lr", "0.1"], ["--optim.lr", "0.1"]),
        (["--lr=0.1"], ["--optim.lr", "0.1"]),
        (["--batch_size=8"], ["--train.batch-size", "8"]),
        (["--train.batch_size", "8"], ["--train.batch-size", "8"]),
        (["--schedule.warmup_steps=8"], ["--schedule.warmup-steps", "8"]),
        (["--data_root", "a_b"], ["--root", "a_b"]),
        (["--no_compile"], ["--train.no-compile"]),
        (["--freeze", "-1"], ["--optim.freeze", "-1"]),
        (["--name=a=b_c"], ["--name", "a=b_c"]),
        (["--name="], ["--name", ""]),
        (["--data", "my_data=1"], ["--data", "my_data=1"]),
        (["-h"], ["-h"]),
    ],
)
def test_names_are_written_out_and_values_are_left_alone(words, wanted) -> None:
    assert with_short_names(words) == wanted


def test_every_short_name_is_explained_and_is_short() -> None:
    for pair in SHORT_NAMES.removeprefix("Short names: ").removesuffix(".").split(", "):
        short, long = pair.split(" for ")
        assert with_short_names([short]) == [long]
        assert with_short_names([short.replace("-", "_").replace("__", "--", 1)]) == [long]


@pytest.mark.parametrize("option", ["--schedule.lr", "--schedule.steps", "--model.num-classes"])
def test_what_is_computed_is_refused_however_it_is_typed(option) -> None:
    for typed in ([option, "3"], [f"{option}=3"], [option[2:].replace("-", "_").join(["--", ""]), "3"]):
        with pytest.raises(UsageError, match=f"{option} cannot be set"):
            refuse_derived(with_short_names(typed))


def test_near_names_of_what_is_computed_are_fine() -> None:
    words = with_short_names(["--lr", "3", "--steps", "3", "--schedule.linear-end", "0", "--data", "schedule.lr"])
    refuse_derived(words)
    assert words == ["--optim.lr", "3", "--train.steps", "3", "--schedule.linear-end", "0", "--data", "schedule.lr"]


@pytest.mark.parametrize(
    ("words", "wanted"),
    [
        (["--train.compile"], True),
        (["--train.no-compile"], True),
        (["--compile=True"], True),
        (["--train.compile-all"], False),
        (["--data", "train.compile"], False),
        ([], False),
    ],
)
def test_a_switch_is_given_with_either_sign(words, wanted) -> None:
    assert is_given("--train.compile", with_short_names(words)) == wanted


def test_a_switch_without_a_group() -> None:
    assert is_given("--download", ["--no-download"])


def test_a_value_is_what_stands_behind_its_option() -> None:
    assert typed_value("--data", ["--lr", "1", "--data", "digits"]) == "digits"
    assert typed_value("--data", ["--lr", "1"]) is None
    # The last word has nothing behind it; the parser says so.
    assert typed_value("--data", ["--lr", "1", "--data"]) is None


@pytest.mark.parametrize(
    "name",
    [
        "",
        ".",
        "..",
        "../x",
        "/tmp/x",
        "a/b",
        "a\\b",
        ".x",
        "-x",
        " x",
        "x ",
        "x.",
        "a\nb",
        "a\0b",
        "\udcff",
        "NUL",
        "com1.x",
    ],
)
def test_a_name_that_is_no_plain_folder_is_refused(name) -> None:
    with pytest.raises(UsageError, match=r"--name is .*plain name of one folder"):
        ensure_plain_name(name)


def test_plain_names_are_fine_and_long_ones_are_told() -> None:
    for name in (None, "x", "vit-b16", "my run", "a.b", "한국어", "console", "1", "x" * 200):
        ensure_plain_name(name)
    for name in ("x" * 201, "가" * 67):
        with pytest.raises(UsageError, match="201 bytes"):
            ensure_plain_name(name)


@pytest.mark.parametrize(
    ("words", "metavar", "told"),
    [
        (["train", "--epochs", "two"], "{None}|INT", "--epochs is 'two'; wanted a whole number or None."),
        (["train", "--train.epochs=two"], "{None}|INT", "--train.epochs is 'two'; wanted a whole number or None."),
        (["train", "--train.epochs", "1", "x", "--lr", "3"], "INT INT", "'1 x'; wanted 2 whole numbers."),
        (["train", "--epochs", "x"], "[FLOAT [FLOAT ...]]", "wanted numbers."),
        (["train", "--epochs", "x"], "{a,b}", "wanted a or b."),
        (["train", "--epochs", "x"], "{None}|INT|{INT INT}", "wanted a whole number or 2 whole numbers or None."),
        (["train"], "PATH", "--train.epochs has a value that cannot be read; wanted a path."),
    ],
)
def test_a_value_that_does_not_fit_is_told_in_words(words, metavar, told) -> None:
    assert str(told_value("--train.epochs", metavar, words)).endswith(told)


@pytest.mark.parametrize(
    ("kind", "typed", "wanted"),
    [
        (inspect.Options, "M --preprocessing X a b --json c", "M a b c --preprocessing X --json"),
        (inspect.Options, "--layers 0 -1 M a", "M a --layers 0 -1"),
        (inspect.Options, "M a --data-root=x b", "M a b --data-root=x"),
        (predict.Options, "M --image-size 32 a --top 1 b", "M a b --image-size 32 --top 1"),
        (predict.Options, "M --image-size 32 48 a", "M a --image-size 32 48"),
        (evaluate.Options, "--skip-bad M --data D N", "M N --skip-bad --data D"),
        (report.Options, "A --out x.html B", "A B --out x.html"),
        (knn.run, "M --k 1 20 N --json O --data D E", "M N O --k 1 20 --json --data D E"),
        (fewshot.run, "--shots 1 5 M --fresh N", "M N --shots 1 5 --fresh"),
        (probe.run, "--l2 0.1 M --device cpu N", "M N --l2 0.1 --device cpu"),
        (inspect.Options, "--json -- M a", "M a --json"),
        (transfer.Options, "--skip-missing M --name x N --data D E", "M N --skip-missing --name x --data D E"),
    ],
)
def test_options_may_stand_anywhere(kind, typed, wanted) -> None:
    assert in_front(kind, typed.split()) == wanted.split()
    # Where they stand already as they should, nothing moves.
    assert in_front(kind, wanted.split()) == wanted.split()


def test_behind_a_bare_dash_names_may_begin_like_options() -> None:
    assert in_front(predict.Options, ["M", "--top", "1", "--", "-x.png"]) == ["--top", "1", "--", "M", "-x.png"]


def test_of_an_option_that_was_typed_twice_the_last_counts() -> None:
    words = ["--data", "a", "--data", "b"]
    assert typed_value("--data", words) == "b"
    assert "--data is 'b';" in str(told_value("--data", "INT", words))
    assert "--epochs is 'two';" in str(told_value("--train.epochs", "INT", ["--epochs", "two", "vit-digits"], 1))


def test_of_options_that_are_not_known_every_word_may_belong_to_one() -> None:
    typed = ["M", "--name", "x", "N", "--steps", "cifar10=10", "pets=20", "--data", "D", "E"]
    moved = in_front(transfer.Options, typed, others=math.inf)
    assert moved == ["M", "N", "--name", "x", "--steps", "cifar10=10", "pets=20", "--data", "D", "E"]
