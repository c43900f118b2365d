import importlib
import subprocess
import sys
import warnings
from typing import Any, NoReturn

import pytest

import vitrail
from vitrail.cli import main
from vitrail.errors import DataError, DiskError, UsageError, VitrailError, notice

# `vitrail.cli.main` is the function, so the module of the same name has to be asked for.
MODULE: Any = importlib.import_module("vitrail.cli.main")
VERBS = list(MODULE.VERBS)


def in_a_new_process(*arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run([sys.executable, *arguments], capture_output=True, text=True, timeout=60, check=False)


def let_verbs_do(monkeypatch: pytest.MonkeyPatch, action: Any) -> None:
    monkeypatch.setattr(MODULE, "_run", lambda _verb, _words: action())


@pytest.mark.parametrize("words", [[], ["-h"], ["--help"], ["help"]])
def test_help_names_every_verb_and_says_what_it_does(capsys, words: list[str]):
    assert main(words) == 0
    out = capsys.readouterr().out
    assert {"demo", "list", "info", "convert"} <= set(VERBS)
    for verb, (_module, about) in MODULE.VERBS.items():
        assert f"\n  {verb} " in out
        assert about in out


@pytest.mark.parametrize("verb", VERBS)
def test_every_verb_explains_itself(capsys, verb: str):
    with pytest.raises(SystemExit) as stopped:
        main([verb, "--help"])
    assert stopped.value.code == 0
    assert f"usage: vitrail {verb}" in capsys.readouterr().out


@pytest.mark.parametrize("word", ["-V", "--version"])
def test_version(capsys, word: str):
    assert main([word]) == 0
    assert capsys.readouterr().out == f"vitrail {vitrail.__version__}\n"


@pytest.mark.parametrize(
    ("word", "message"),
    [
        ("lst", "error: Unknown command 'lst'. Did you mean 'list'?\n"),
        ("Convert", "error: Unknown command 'Convert'. Did you mean 'convert'?\n"),
        ("--bogus", f"error: Unknown command '--bogus'. Choose from {', '.join(VERBS)}.\n"),
    ],
)
def test_an_unknown_verb_is_an_error_with_a_suggestion(capsys, word: str, message: str):
    assert main([word]) == 2
    printed = capsys.readouterr()
    assert printed.err == message
    assert printed.out == ""


@pytest.mark.parametrize("words", [["list", "nothing"], ["list", "--jsn"], ["info"]])
def test_wrong_arguments_end_with_code_2(capsys, monkeypatch, words: list[str]):
    monkeypatch.setenv("COLUMNS", "200")
    with pytest.raises(SystemExit) as stopped:
        main(words)
    assert stopped.value.code == 2
    printed = capsys.readouterr()
    assert printed.out == ""
    assert f"vitrail {words[0]} --help" in printed.err
    assert "Traceback" not in printed.err


def test_a_value_of_a_wrong_kind_is_told_in_words(capsys):
    assert main(["info", "vit-test", "--image-size", "big"]) == 2
    printed = capsys.readouterr()
    assert printed.out == ""
    assert "--image-size is 'big'; wanted a whole number or 2 whole numbers" in printed.err


@pytest.mark.parametrize(("kind", "code"), [(UsageError, 2), (DataError, 3), (DiskError, 5)])
def test_a_mistake_is_one_line_and_an_exit_code(capsys, monkeypatch, kind: type[VitrailError], code: int):
    def fail() -> NoReturn:
        raise kind("came", wanted="wanted", where="where", fix="Fix it")

    let_verbs_do(monkeypatch, fail)
    assert main(["list"]) == code
    printed = capsys.readouterr()
    assert printed.err == "error: where: came; wanted wanted. Fix it.\n"
    assert printed.out == ""


def test_a_programming_mistake_is_not_hidden(monkeypatch):
    def fail() -> NoReturn:
        raise ZeroDivisionError

    let_verbs_do(monkeypatch, fail)
    with pytest.raises(ZeroDivisionError):
        main(["list"])


def test_control_c_ends_quietly(capsys, monkeypatch):
    def stop() -> NoReturn:
        raise KeyboardInterrupt

    let_verbs_do(monkeypatch, stop)
    assert main(["list"]) == 130
    assert capsys.readouterr().err == "stopped\n"


def test_a_notice_is_a_line_that_starts_with_note(capsys, monkeypatch):
    let_verbs_do(monkeypatch, lambda: [notice("positions were resampled.") for _ in range(2)])
    assert main(["list"]) == 0
    assert capsys.readouterr().err == "note: positions were resampled.\n" * 2


def test_other_warnings_say_what_they_are(capsys, monkeypatch):
    def warn() -> None:
        warnings.simplefilter("always", UserWarning)
        warnings.warn("from another library", UserWarning, stacklevel=1)

    let_verbs_do(monkeypatch, warn)
    assert main(["list"]) == 0
    err = capsys.readouterr().err
    assert "UserWarning: from another library" in err
    assert not err.startswith("note:")


def test_arguments_come_from_the_command_line_when_none_are_given(capsys, monkeypatch):
    monkeypatch.setattr(sys, "argv", ["vitrail", "--version"])
    assert main() == 0
    assert capsys.readouterr().out == f"vitrail {vitrail.__version__}\n"


def test_help_needs_neither_torch_nor_numpy():
    code = (
        "import sys; from vitrail.cli import main; main(['--help']); "
        "assert 'torch' not in sys.modules and 'numpy' not in sys.modules"
    )
    finished = in_a_new_process("-c", code)
    assert finished.returncode == 0, finished.stderr
    assert "usage: vitrail COMMAND" in finished.stdout


def test_listing_needs_no_torch():
    code = "import sys; from vitrail.cli import main; main(['list']); assert 'torch' not in sys.modules"
    finished = in_a_new_process("-c", code)
    assert finished.returncode == 0, finished.stderr
    assert "vit-b16" in finished.stdout


def test_the_package_runs_as_a_module_and_hands_on_the_exit_code():
    assert in_a_new_process("-m", "vitrail", "--version").stdout == f"vitrail {vitrail.__version__}\n"
    failed = in_a_new_process("-m", "vitrail", "lst")
    assert failed.returncode == 2
    assert failed.stderr == "error: Unknown command 'lst'. Did you mean 'list'?\n"


def test_a_value_of_the_wrong_kind_gets_a_sentence_without_types(capsys) -> None:
    for words, told in (
        (["--epochs", "two"], "error: --epochs is 'two'; wanted a whole number or None.\n"),
        (["--lr=low"], "error: --lr is 'low'; wanted a number.\n"),
        (["--model.patch-size", "4", "x"], "error: --model.patch-size is '4 x'; wanted 2 whole numbers.\n"),
        (["--precision", "float8"], "error: --precision is 'float8'; wanted float32 or bfloat16.\n"),
    ):
        assert main(["train", "vit-digits", *words]) == 2
        assert capsys.readouterr().err == told
