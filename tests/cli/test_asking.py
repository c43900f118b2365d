"""What people type, as an ask: where options may stand, what their values are, and what does not fit."""

import json
import re
import sys
from pathlib import Path

import pytest

from vitrail.cli import main
from vitrail.cli.asking import Each, command_line, is_resume, parsed, read_ask
from vitrail.cli.transfer import EachData
from vitrail.config.spelling import OPTIONS, SHORT
from vitrail.errors import UsageError
from vitrail.experiments.ask import KINDS, Ask, from_ask_json, kind_module, names_of

TRAIN = names_of("train")


def given(*words: object, verb: str = "train") -> dict[str, object]:
    return dict(read_ask(verb, list(map(str, words))).given)


def refused(*words: object, verb: str = "train") -> str:
    """What is said at the command line."""
    with pytest.raises(UsageError) as caught:
        read_ask(verb, list(map(str, words)), EachData() if verb == "transfer" else Each())
    caught.value.spell(OPTIONS)
    return str(caught.value)


# Where options stand.


@pytest.mark.parametrize(
    ("words", "subjects", "options"),
    [
        ("vit-digits --lr 1", ["vit-digits"], {"optim.lr": 1.0}),
        ("--lr 1 vit-digits", ["vit-digits"], {"optim.lr": 1.0}),
        ("--lr=1 vit-digits", ["vit-digits"], {"optim.lr": 1.0}),
        ("--no-compile --train.epochs 2 vit-digits", ["vit-digits"], {"train.compile": False, "train.epochs": 2}),
        ("--compile vit-digits --seed 3", ["vit-digits"], {"train.compile": True, "train.seed": 3}),
        ("--lr 1 -- vit-digits", ["vit-digits"], {"optim.lr": 1.0}),
        ("--model.patch-size 4 4 vit-digits", ["vit-digits"], {"model.patch_size": (4, 4)}),
        ("--optim.betas 0.9 0.99 vit-digits", ["vit-digits"], {"optim.betas": (0.9, 0.99)}),
        ("--lr 1", [], {"optim.lr": 1.0}),
        ("", [], {}),
    ],
)
def test_options_may_stand_anywhere(words, subjects, options) -> None:
    found = read_ask("train", words.split())
    assert (list(found.subjects), dict(found.given)) == (subjects, options)


@pytest.mark.parametrize(
    ("words", "subjects", "rates"),
    [
        ("--rates 0.01 0.03 SOURCE", ["SOURCE"], (0.01, 0.03)),
        ("SOURCE --rates 0.01 0.03", ["SOURCE"], (0.01, 0.03)),
        ("--rates 1e-3 --seeds 2 SOURCE", ["SOURCE"], (0.001,)),
        ("--rates=0.01 SOURCE", ["SOURCE"], (0.01,)),
        ("--rates None SOURCE", ["SOURCE"], None),
    ],
)
def test_numbers_end_where_a_word_is_none(words, subjects, rates) -> None:
    found = read_ask("finetune", words.split())
    assert (list(found.subjects), found.given["rates"]) == (subjects, rates)


def test_of_texts_every_word_may_be_one() -> None:
    found = read_ask("vtab", ["MODEL", "--tasks", "dtd", "svhn", "--sources", "dtd=a b", "svhn=c=d"])
    assert found.subjects == ("MODEL",)
    assert found.given["tasks"] == ("dtd", "svhn") and found.given["sources"] == ("dtd=a b", "svhn=c=d")


def test_behind_a_bare_dash_a_word_may_begin_with_anything() -> None:
    assert parsed(["--seed", "1", "--", "-x", "--lr"], TRAIN) == (["-x", "--lr"], {"train.seed": ["1"]})


# Names.


@pytest.mark.parametrize(
    ("words", "wanted"),
    [
        (["--batch_size=8"], {"train.batch_size": 8}),
        (["--batch-size", "8"], {"train.batch_size": 8}),
        (["--train.batch_size", "8"], {"train.batch_size": 8}),
        (["--train.batch-size=8"], {"train.batch_size": 8}),
        (["--schedule.warmup_steps=8"], {"schedule.warmup_steps": 8}),
        (["--data_root", "a_b"], {"data.root": "a_b"}),
        (["--data.root", "a-b"], {"data.root": "a-b"}),
        (["--root", "a"], {"data.root": "a"}),
        (["--name=a=b_c"], {"name": "a=b_c"}),
        (["--name="], {"name": ""}),
        (["--data", "my_data=1"], {"data.data": "my_data=1"}),
        (["--data", "train.compile"], {"data.data": "train.compile"}),
        (["--data=--lr"], {"data.data": "--lr"}),
    ],
)
def test_names_take_hyphens_or_not_and_values_are_left_alone(words, wanted) -> None:
    assert given(*words) == wanted


@pytest.mark.parametrize("short", SHORT)
def test_every_short_name_stands_for_a_setting(short) -> None:
    for written in (short, short.replace("_", "-"), SHORT[short], SHORT[short].replace("_", "-")):
        assert TRAIN.full(written) == SHORT[short]


@pytest.mark.parametrize(
    ("words", "value"),
    [
        (["--compile"], True),
        (["--train.compile"], True),
        (["--no-compile"], False),
        (["--no_compile"], False),
        (["--train.no-compile"], False),
        (["--train.no_compile"], False),
        (["--compile=True"], True),
        (["--compile=False"], False),
        (["--compile", "--no-compile"], False),
        (["--no-compile", "--compile"], True),
    ],
)
def test_a_switch_has_either_sign_and_takes_no_word(words, value) -> None:
    found = read_ask("train", [*words, "vit-digits"])
    assert (found.subjects, dict(found.given)) == (("vit-digits",), {"train.compile": value})


def test_a_switch_without_a_group_and_one_of_the_verb() -> None:
    assert given("--no-download", "--no-test", "--skip-bad") == {
        "data.download": False,
        "data.test": False,
        "data.skip_bad": True,
    }
    assert given("T", "--no-balance", verb="selftrain") == {"balance": False}


def test_what_is_no_switch_has_no_other_sign() -> None:
    assert "there is no --no-lr" in refused("--no-lr", 1)
    assert "--no-compile is 'True'" in refused("--no-compile=True")


@pytest.mark.parametrize(
    ("words", "told"),
    [
        (["--epoch", 3], "there is no --epoch. Did you mean --epochs?"),
        (["--optim.lrr", 3], "there is no --optim.lrr. Did you mean --lr?"),
        (["--warmup-steps", 3], "Did you mean --schedule.warmup-steps?"),
        (["--rates", 3], "there is no --rates"),
        (["-lr", 3], "there is no option '-lr'"),
        (["--name", "-x"], "there is no option '-x'"),
        (["---lr", 3], "there is no "),
    ],
)
def test_a_name_that_is_none_is_told_with_one_that_is_near(words, told) -> None:
    assert told in refused("vit-digits", *words)


@pytest.mark.parametrize("option", ["--schedule.lr", "--schedule.steps", "--model.num-classes"])
def test_what_is_computed_is_refused_however_it_is_typed(option) -> None:
    for typed in ([option, "3"], [f"{option}=3"], [option[2:].replace("-", "_").join(["--", ""]), "3"]):
        assert f"{option} cannot be set: " in refused(*typed)


def test_near_names_of_what_is_computed_are_fine() -> None:
    words = ["--lr", "3", "--steps", "3", "--schedule.linear-end", "0", "--data", "schedule.lr"]
    wanted = {"optim.lr": 3.0, "train.steps": 3, "schedule.linear_end": 0.0, "data.data": "schedule.lr"}
    assert given(*words) == wanted


# Values.


@pytest.mark.parametrize(
    ("words", "wanted"),
    [
        (["--freeze", "-1"], {"optim.freeze": -1}),
        (["--model.head-bias", "-10.5"], {"model.head_bias": -10.5}),
        (["--model.head-bias", "-1e1"], {"model.head_bias": -10.0}),
        (["--model.head-bias", "-1E-3"], {"model.head_bias": -0.001}),
        (["--model.head-bias=-.5"], {"model.head_bias": -0.5}),
        (["--optim.clip", "None"], {"optim.clip": None}),
        (["--optim.clip=none"], {"optim.clip": None}),
        (["--epochs", "None"], {"train.epochs": None}),
        (["--optim.betas", "0.9", "0.99"], {"optim.betas": (0.9, 0.99)}),
        (["--precision", "bfloat16"], {"train.precision": "bfloat16"}),
        (["--name", "None"], {"name": None}),
        (["--model.backbone.layers.0.channels", "3"], {"model.backbone.layers.0.channels": 3}),
        (["--model.backbone.layers.1.stride=2"], {"model.backbone.layers.1.stride": 2}),
    ],
)
def test_values_are_of_the_type_of_their_field(words, wanted) -> None:
    found = given(*words)
    assert found == wanted
    assert [type(value) for value in found.values()] == [type(value) for value in wanted.values()]


def test_of_an_option_that_was_typed_twice_the_last_counts() -> None:
    assert given("--data", "a", "--seed", 1, "--data", "b", "--train.seed=2") == {"data.data": "b", "train.seed": 2}
    assert "--epochs is 'two'" in refused("--epochs", 1, "--epochs", "two")


@pytest.mark.parametrize(
    ("words", "told"),
    [
        (["--epochs", "two"], "--epochs is 'two'; wanted a whole number or None."),
        (["--train.epochs=2.5"], "--epochs is '2.5'; wanted a whole number or None."),
        (["--lr"], "--lr has no value; wanted a number."),
        (["--lr", "--seed", "1"], "--lr has no value; wanted a number."),
        (["--data"], "--data has no value; wanted a text."),
        (["--optim.betas", "0.9"], "--optim.betas is '0.9'; wanted 2 numbers."),
        (["--model.patch-size", "4", "x"], "--model.patch-size is '4 x'; wanted 2 whole numbers."),
        (["--precision", "float8"], "--precision is 'float8'; wanted float32 or bfloat16."),
        (["--compile=maybe"], "--compile is 'maybe'; wanted True or False."),
        (
            ["--model.backbone.layers.0.channels", "wide"],
            "--model.backbone.layers.0.channels is 'wide'; wanted a whole",
        ),
        (["--processes", "two"], "--processes is 'two'; wanted a whole number"),
        (["--seed", "²"], "--seed is '²'; wanted a whole number"),
    ],
)
def test_a_value_that_does_not_fit_is_told_in_words(words, told) -> None:
    assert refused("vit-digits", *words).startswith(told)


@pytest.mark.parametrize("verb", [verb for verb in KINDS if verb != "transfer"])
def test_one_word_too_many_is_told(verb) -> None:
    assert refused("one", "two", verb=verb) == "both 'one' and 'two' are given; wanted one of them."


def test_a_transfer_takes_several_models() -> None:
    assert read_ask("transfer", ["one", "two", "--data", "d"], EachData()).subjects == ("one", "two")


# For one data set alone.


def transferred(*words: str) -> Ask:
    return read_ask("transfer", words, EachData())


def test_a_value_may_be_for_one_data_set() -> None:
    words = (
        "M --data cifar10 photos --train.steps 500 cifar10=1000 --rates cifar10=0.1,0.2 --train.no-compile --freeze 2"
    )
    found = transferred(*words.split())
    assert found.subjects == ("M",)
    assert dict(found.given) == {
        "data": ("cifar10", "photos"),
        "train.steps": 500,
        "train.compile": False,
        "optim.freeze": 2,
    }
    assert {name: dict(one) for name, one in found.each.items()} == {
        "cifar10": {"train.steps": 1000, "rates": (0.1, 0.2)}
    }


def test_several_may_follow_one_option_and_models_may_follow_them() -> None:
    found = transferred(
        "--steps", "5", "cifar10=10", "photos=20", "M", "--seeds=photos=2", "--data", "cifar10", "photos"
    )
    assert (found.subjects, found.given["train.steps"]) == (("M",), 5)
    assert {name: dict(one) for name, one in found.each.items()} == {
        "cifar10": {"train.steps": 10},
        "photos": {"train.steps": 20, "seeds": 2},
    }


def test_what_is_for_one_leaves_what_was_typed_for_all_before() -> None:
    found = transferred("M", "--data", "a", "b", "--steps", "500", "--steps", "a=10", "--steps", "b=20")
    assert found.given["train.steps"] == 500
    assert {name: one["train.steps"] for name, one in found.each.items()} == {"a": 10, "b": 20}


def test_a_folder_may_be_called_what_it_likes() -> None:
    assert dict(transferred("M", "--data", "photos", "--root", "/data/a=b").given)["data.root"] == "/data/a=b"
    found = transferred("M", "--data", "photos", "cifar10", "--root", "photos=/a", "cifar10=/b")
    assert {name: one["data.root"] for name, one in found.each.items()} == {"photos": "/a", "cifar10": "/b"}
    found = transferred("M", "--data", "digits", "--few-shot", "vtab:svhn=digits", "--few-shot-root", "a=b")
    assert (found.given["data.few_shot"], found.given["data.few_shot_root"]) == ("vtab:svhn=digits", "a=b")
    assert not found.each


def test_what_a_transfer_has_once_is_for_all() -> None:
    words = ("--out", "a=b", "--name", "c=d", "e=f.npz", "--real-labels", "g=h.json", "--data", "x=y", "photos")
    found = transferred(*words)
    assert found.subjects == ("e=f.npz",) and not found.each
    assert (found.given["out"], found.given["name"], found.given["real_labels"]) == ("a=b", "c=d", "g=h.json")
    assert found.given["data"] == ("x=y", "photos")
    assert read_ask("transfer", ["--resume", "runs/a=b"], EachData()).resumed == Path("runs/a=b")


@pytest.mark.parametrize(
    ("words", "told"),
    [
        (["--steps", "bird=3"], "Unknown data set 'bird'. Did you mean 'birds'?"),
        (["--steps", "birds=many"], "--steps is 'many'; wanted a whole number or None."),
        (["--steps", "birds="], "--steps is ''; wanted a whole number or None."),
        (["--rates", "birds=0.1,x"], "--rates is '0.1 x'; wanted numbers or None."),
    ],
)
def test_what_does_not_fit_one_data_set_is_told(words, told) -> None:
    assert refused("M", "--data", "birds", *words, verb="transfer") == told


# Going on.


def test_a_folder_to_go_on_with() -> None:
    for words in (["--resume", "runs/x", "--device", "cpu"], ["--device=cpu", "--resume=runs/x"]):
        assert is_resume(words)
        found = read_ask("finetune", words)
        assert found.resumed == Path("runs/x") and found.given["device"] == "cpu"
    assert not is_resume(["--name", "resume", "--or-resume"])


def test_where_images_are_and_how_many_at_a_time_may_change() -> None:
    words = ("--resume", "r", "--micro-batch", 4, "--workers", 0, "--data-root", "d", "--allow-changed")
    wanted = {"resume": "r", "train.micro_batch": 4, "data.workers": 0, "data.root": "d", "allow_changed": True}
    assert given(*words) == wanted


@pytest.mark.parametrize("verb", KINDS)
def test_a_run_that_goes_on_keeps_its_config(verb) -> None:
    told = refused("--resume", "runs/x", "--lr", 1, verb=verb)
    assert "--lr cannot change a run that goes on; wanted one of " in told
    for option in ("--micro-batch", "--workers", "--root", "--device", "--allow-changed", "--track"):
        assert option in told
    assert ("--processes" in told) == (verb not in ("vtab", "selftrain"))
    assert "'vit-digits' came with --resume" in refused("vit-digits", "--resume", "runs/x", verb=verb)
    # The options of the verb itself are no less known.
    for option in ("--name", "--out", "--image-size"):
        assert f"{option} cannot change a run that goes on" in refused("--resume", "runs/x", option, 8, verb=verb)
    assert "there is no --epoch. Did you mean --epochs?" in refused("--resume", "runs/x", "--epoch", 8, verb=verb)


# Help.


@pytest.mark.parametrize("verb", KINDS)
@pytest.mark.parametrize("words", [[], ["--resume", "runs/x"]])
def test_help_lists_what_is_taken_and_nothing_that_is_refused(verb, words, capsys) -> None:
    with pytest.raises(SystemExit) as ended:
        main([verb, *words, "--help"])
    assert ended.value.code == 0
    out = capsys.readouterr().out
    # Of the table of options, the first column.
    listed = set(re.findall(r"^[ │]+(?:-h, )?--([a-z][a-z0-9.-]*)", out, re.MULTILINE))
    assert "help" in listed
    refused = {name for name in getattr(kind_module(verb), "NOT_HERE", {}) if "." not in name}
    if words:
        refused = {"processes", "parallel"} if verb in ("vtab", "selftrain") else set()
        assert {"resume", "micro-batch", "workers", "root", "allow-changed"} <= listed
    else:
        doc = kind_module(verb).Options.__doc__.splitlines()[0]
        assert " ".join(doc.split()) in " ".join(out.split())
        assert {"name", "out", "device", "track"} <= listed
    assert not {name.replace("_", "-") for name in refused} & listed
    names = names_of(verb, is_resume=bool(words))
    for name in listed - {"help"}:
        assert names.full(name)


def test_help_explains_short_names_and_both_signs_of_a_switch(capsys) -> None:
    with pytest.raises(SystemExit):
        main(["train", "--help"])
    out = " ".join(capsys.readouterr().out.split())
    assert "--lr for --optim.lr, " in out and "--data-root for --root" in out
    assert "--train.compile, --train.no-compile" in out


# What is handed on.


def test_what_was_typed_is_kept_as_it_can_be_typed_again(monkeypatch) -> None:
    for program in ("/usr/bin/vitrail", "/somewhere/vitrail/__main__.py"):
        monkeypatch.setattr(sys, "argv", [program, "train", "vit digits", "--lr=1"])
        assert command_line() == "vitrail train 'vit digits' --lr=1"
        assert read_ask("train", ["vit digits", "--lr=1"]).command == command_line()


def test_several_processes_read_what_was_asked_and_not_what_was_typed(monkeypatch) -> None:
    started = []

    def start(module: str, arguments: list[str], processes: int) -> None:
        kept = from_ask_json(json.loads(Path(arguments[0], "ask.json").read_text(encoding="utf-8")))
        started.append((module, processes, kept))

    monkeypatch.delenv("RANK", raising=False)
    monkeypatch.setattr("vitrail.runtime.launch.launch", start)
    words = ["vit-digits", "--processes", "2", "--optim.betas", "0.9", "0.99", "--optim.clip", "None", "--no-test"]
    assert main(["train", *words]) == 0
    ((module, processes, kept),) = started
    assert (module, processes, kept.verb, kept.subjects) == ("vitrail.cli.work", 2, "train", ("vit-digits",))
    assert dict(kept.given) == {"optim.betas": (0.9, 0.99), "optim.clip": None, "data.test": False}


def test_each_of_several_processes_does_what_the_file_says(tmp_path, monkeypatch) -> None:
    from vitrail.cli import work
    from vitrail.cli.train import Teller

    asked, done = read_ask("train", ["vit-digits", "--lr", "0.5"]), []
    (tmp_path / "ask.json").write_text(json.dumps(asked.json()), encoding="utf-8")
    monkeypatch.setattr("vitrail.experiments.perform.perform", lambda ask, audience: done.append((ask, audience)))
    assert work.main(tmp_path) == 0
    ((ask, audience),) = done
    assert ask == asked and isinstance(audience, Teller)


@pytest.mark.parametrize("value", ["0", "-1", "99999"])
def test_a_number_of_processes_that_cannot_be(value, capsys, monkeypatch) -> None:
    monkeypatch.delenv("RANK", raising=False)
    assert main(["train", "vit-digits", "--processes", value]) == 2
    assert f"--processes is {value}; wanted a number from 1 to 1024." in capsys.readouterr().err


def test_processes_of_torchrun_start_no_others(capsys, monkeypatch) -> None:
    monkeypatch.setenv("RANK", "0")
    assert main(["train", "vit-digits", "--processes", "2"]) == 2
    assert "torchrun has its --nproc-per-node" in capsys.readouterr().err
