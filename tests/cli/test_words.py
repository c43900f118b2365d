"""Words of verbs that tyro reads."""

import math

import pytest

from vitrail.cli import evaluate, fewshot, inspect, knn, predict, probe, report
from vitrail.cli.words import in_front, is_option, told_value


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
    ],
)
def test_options_may_stand_anywhere(kind, typed, wanted) -> None:
    assert in_front(kind, typed.split()) == wanted.split()
    # Where they stand already as they should, nothing moves.
    assert in_front(kind, wanted.split()) == wanted.split()


def test_behind_a_bare_dash_names_may_begin_like_options() -> None:
    assert in_front(predict.Options, ["M", "--top", "1", "--", "-x.png"]) == ["--top", "1", "--", "M", "-x.png"]


def test_of_an_option_that_was_typed_twice_the_last_counts() -> None:
    assert "--data is 'b';" in str(told_value("--data", "INT", ["--data", "a", "--data", "b"]))
    assert "--epochs is 'two';" in str(told_value("--train.epochs", "INT", ["--epochs", "two", "vit-digits"], 1))


def test_of_options_that_are_not_known_every_word_may_belong_to_one() -> None:
    typed = ["A", "--out", "x.html", "B", "--more", "1", "2", "C", "--json"]
    assert in_front(report.Options, typed) == ["A", "B", "2", "C", "--out", "x.html", "--more", "1", "--json"]
    moved = in_front(report.Options, typed, others=math.inf)
    assert moved == ["A", "B", "--out", "x.html", "--more", "1", "2", "C", "--json"]


@pytest.mark.parametrize("word", ["-", "-1", "-0.5", "-.5", "-1e-3", "-2E+4", "photo.png", ""])
def test_a_negative_number_is_no_option(word) -> None:
    assert not is_option(word)


@pytest.mark.parametrize("word", ["--top", "-h", "--", "-x.png", "-e3", "-1a"])
def test_what_begins_with_a_hyphen_otherwise_is_one(word) -> None:
    assert is_option(word)
