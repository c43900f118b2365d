"""`vitrail train` as it is typed: what it takes, refuses, promises, writes and goes on with."""

import json
import os
import re
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
import torch
from tests.data.conftest import state_of
from tests.training.tiny_run import assert_same_run, events, make_images

from vitrail.cli import main
from vitrail.cli.train import Teller
from vitrail.config import RunConfig
from vitrail.data import open_data
from vitrail.data.sources.files import Files
from vitrail.experiments.driver import Driver
from vitrail.training import checkpoint as checkpoints
from vitrail.training.events import Event, Stepped
from vitrail.training.folder import RunFolder, RunRecord, read_run
from vitrail.training.run import run

DIGITS = ("vit-digits", "--device", "cpu", "--split", "train[:100]", "--batch-size", 16)
# The stem of the recipe needs 16 pixels a patch.
SMALL = ("--model.width", 16, "--model.depth", 2, "--model.num-heads", 2, "--model.mlp-width", 16, "--image-size", 32)
FOLDER = ("vit-folder", "--device", "cpu", "--workers", 0, "--batch-size", 8, *SMALL)


@pytest.fixture(autouse=True)
def _alone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """A cache and a place of its own, and one thread."""
    monkeypatch.setenv("VITRAIL_CACHE", str(tmp_path / "cache"))
    monkeypatch.chdir(tmp_path)
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


@pytest.fixture
def unseen(monkeypatch: pytest.MonkeyPatch) -> None:
    """Runs without a view and a report, which take longer than the training."""
    monkeypatch.setattr(Driver, "train", lambda _driver, session, folder, _run: run(session, folder, lambda _r: None))


@pytest.fixture
def begun(monkeypatch: pytest.MonkeyPatch) -> None:
    """Runs that are begun and no more: they end before their first step."""

    def end(_driver, _session, folder, _run) -> None:
        folder.log.write_text(json.dumps({"event": "done", "step": 0, "split": None, "metrics": None, "seconds": 0.0}))

    monkeypatch.setattr(Driver, "train", end)
    for moment in ("begins", "ended"):
        monkeypatch.setattr(Teller, moment, lambda *_: None)


@pytest.fixture
def data(tmp_path: Path) -> Iterator[Path]:
    """Training and test images, which must be as they were when the test ends."""
    make_images(tmp_path / "data/train", per_class=6)
    make_images(tmp_path / "data/test", per_class=3)
    before = state_of(tmp_path / "data")
    yield tmp_path / "data"
    assert state_of(tmp_path / "data") == before


def printed_by(capsys, *words: object) -> str:
    code = main(["train", *map(str, words)])
    printed = capsys.readouterr()
    assert code == 0, printed.err
    return printed.out


def failure(capsys, code: int, *words: object) -> str:
    came = main(["train", *map(str, words)])
    error = capsys.readouterr().err
    assert came == code, error
    assert "Traceback" not in error
    (line,) = [line for line in error.splitlines() if not line.startswith("note: ")]
    return line


def record_of(name: str) -> RunRecord:
    return read_run(RunFolder(Path("runs") / name))


def config_of(name: str = "vit-digits-1") -> RunConfig:
    return record_of(name).config


def stop_at(monkeypatch: pytest.MonkeyPatch, step: int) -> None:
    """From now on a run hears Ctrl-C after a step."""

    def stopped(_driver, session, folder, _run):
        def watch(event: Event) -> None:
            if event == Stepped(step=step):
                os.kill(os.getpid(), signal.SIGINT)

        return run(session, folder, watch)

    monkeypatch.setattr(Driver, "train", stopped)


def edit(name: str, change: Callable[[dict], object]) -> None:
    """Change the config of a run as a person with an editor does."""
    path = Path("runs") / name / "config.json"
    values = json.loads(path.read_text())
    change(values["config"])
    path.write_text(json.dumps(values))


# What a person sees.


def test_the_plan_the_result_and_the_next_command(capsys):
    out = printed_by(capsys, *DIGITS, "--epochs", 2, "--seed", 7, "--name", "my digits")
    plan, result = out.split("writes runs/my digits")
    assert (
        "vit-digits on digits: 90 images to learn from, 10 held out (train[:100], held-out 10%), 359 to test on; "
        "10 classes"
    ) in " ".join(plan.split())
    assert "ViT with 4 blocks of width 64, 4x4 patches of 2x2 px, 8x8 px, 136.0 k parameters" in plan
    # 90 images make 11.25 batches in two epochs: the twelfth is begun.
    assert "adam, learning rate 0.002, batch 16, 12 steps (2.133 epochs), seed 7" in plan
    assert re.search(r"cpu, 1 thread, float32; about \d+ seconds?\n", plan)
    found = re.search(r"test accuracy ([\d.]+) ?% \((\d+) of 359 images\), loss [\d.]+", result)
    assert float(found[1]) == pytest.approx(100 * int(found[2]) / 359, abs=0.006)
    assert "runs/my digits/report.html  the page of this run: open it" in result
    assert "vitrail evaluate 'runs/my digits' --data digits " in result
    assert "vitrail inspect 'runs/my digits' IMAGES" in result
    assert "vitrail finetune 'runs/my digits' --data FOLDER" in result
    assert "<html" in Path("runs/my digits/report.html").read_text().lower()
    assert Path("runs/my digits/model/model.safetensors").is_file()


def test_help_shows_the_data_and_exits_with_0(capsys):
    for words in (["train", "--help"], ["train", "-h"], ["train", "vit-digits", "--help"]):
        with pytest.raises(SystemExit) as ended:
            main(words)
        assert ended.value.code == 0
        out = capsys.readouterr().out
        for word in ("--data", "--epochs for --train.epochs", "--schedule.warmup-steps", "--resume RUN"):
            assert word in " ".join(out.split())


def test_help_imports_no_torch():
    """It answers within a moment, not after seconds."""
    program = (
        "import sys\nfrom vitrail.cli import main\n"
        "try:\n    main(['train', 'vit-digits', '--help'])\n"
        "except SystemExit as ended:\n    print('code', ended.code)\n"
        "print('heavy', sorted({'torch', 'datasets', 'pandas', 'timm'} & set(sys.modules)))"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=60)
    assert done.stdout.splitlines()[-2:] == ["code 0", "heavy []"], done.stderr


@pytest.mark.usefixtures("begun")
def test_mistakes_get_a_sentence_and_leave_nothing(capsys, data, monkeypatch):
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    message = failure(capsys, 2)
    assert "there is neither a recipe nor data; wanted vitrail train RECIPE --data DATA" in message
    assert "vitrail train vit-digits" in message
    assert "there is neither a recipe nor data" in failure(capsys, 2, "--lr", 0.1)
    assert "--data has no value" in failure(capsys, 2, "--data")
    assert "Did you mean 'vit-digits'?" in failure(capsys, 2, "vit-digit")
    message = failure(capsys, 2, "finetune-cifar10", "--data", data)
    assert "finetune-cifar10 is a recipe for fine-tuning" in message
    assert "vitrail finetune SOURCE --recipe finetune-cifar10" in message
    assert "torch finds no CUDA GPU here" in failure(capsys, 2, "vit-digits", "--device", "cuda")
    assert "the device is 'nonsense'" in failure(capsys, 2, "vit-digits", "--device", "nonsense")
    assert "there is no such folder" in failure(capsys, 3, *FOLDER, "--data", "nothing")
    assert "it would lie inside the data" in failure(capsys, 2, *FOLDER, "--data", data, "--out", data / "runs")
    assert "no config.json" in failure(capsys, 2, "--resume", data)
    assert not Path("runs").exists()


@pytest.mark.parametrize(
    ("recipe", "option", "value"),
    [
        ("mae-digits", "--train.loss", "sigmoid"),
        ("mae-digits", "--train.label-smoothing", "0.1"),
        ("mpp-digits", "--augment.mixup", "0.2"),
        ("mpp-digits", "--augment.cutmix", "1"),
        ("mpp-digits", "--augment.mixing", "0.5"),
        ("mpp-digits", "--model.head-bias", "-10"),
        ("mpp-digits", "--model.pre-logits", "8"),
        ("mpp-digits", "--masking.decoder-depth", "3"),
        ("mae-digits", "--masking.swapped", "0.2"),
    ],
)
@pytest.mark.usefixtures("begun")
def test_what_a_run_without_labels_would_not_look_at_cannot_be_set(capsys, recipe, option, value):
    told = failure(capsys, 2, recipe, "--data", "digits", option, value)
    assert f"{option} cannot be set for this run without labels: " in told


@pytest.mark.usefixtures("begun")
def test_what_a_run_without_labels_has_anyway_may_be_said(capsys, data):
    words = ("mae-folder", *FOLDER[1:], "--data", data)
    same = ("--train.loss", "softmax", "--train.label-smoothing", 0, "--masking.masked", 0.8)
    printed_by(capsys, *words, *same)
    # Another method does not look at the decoder that the recipe has.
    other = ("--masking.method", "patches", "--masking.target", "colour", "--masking.swapped", 0.2)
    printed_by(capsys, *words, *other)
    found = [config_of(f"mae-folder-{number}").masking for number in (1, 2)]
    assert [(one.method, one.swapped) for one in found] == [("autoencoder", 0.1), ("patches", 0.2)]
    assert "--allow-empty cannot be set" in failure(capsys, 2, *words, "--allow-empty")
    printed_by(capsys, *words, "--labelled", "--allow-empty")


@pytest.mark.parametrize("option", ["--schedule.lr", "--schedule.steps", "--model.num-classes"])
@pytest.mark.usefixtures("begun")
def test_what_is_computed_cannot_be_set(capsys, option):
    for words in ([option, 5], [f"{option}=5"], [option.replace("-", "_").replace("__", "--"), 5]):
        assert f"{option} cannot be set" in failure(capsys, 2, *DIGITS, *words)
    assert not Path("runs").exists()


# What is typed is what is trained.


@pytest.mark.usefixtures("begun")
def test_short_names_underscores_and_equals_signs(capsys):
    short = ("--lr=0.1", "--epochs", 3, "--batch_size=8", "--seed", 5, "--time-limit", 2, "--freeze", 1)
    long = ("--optim.lr", 0.1, "--train.epochs=3", "--train.batch_size", 8, "--train.seed=5")
    more = ("--train.time_limit", 2, "--optim.freeze=1")
    for words in (short, (*long, *more)):
        printed_by(capsys, "vit-digits", "--device", "cpu", "--split", "train[:100]", *words)
    assert config_of("vit-digits-1") == config_of("vit-digits-2")
    found = config_of()
    assert (found.optim.lr, found.optim.freeze) == (0.1, 1)
    assert (found.train.epochs, found.train.batch_size, found.train.seed, found.train.time_limit) == (3, 8, 5, 2)


@pytest.mark.parametrize("option", ["--schedule.warmup-steps", "--schedule.warmup_steps", "--schedule.warmup-steps="])
@pytest.mark.usefixtures("begun")
def test_a_warm_up_in_steps_is_obeyed_where_the_recipe_has_a_share(capsys, option):
    words = [f"{option}3"] if option.endswith("=") else [option, 3]
    printed_by(capsys, *DIGITS, *words)
    schedule = config_of().schedule
    assert (schedule.warmup_steps, schedule.warmup_share) == (3, 0.0)


@pytest.mark.usefixtures("begun")
def test_the_share_of_the_recipe_stays_where_nothing_is_said(capsys):
    printed_by(capsys, *DIGITS)
    assert config_of().schedule.warmup_share == 0.05


def paper(data: Path, *words: object) -> tuple[object, ...]:
    tiny = ("--model.width", 16, "--model.depth", 1, "--model.num-heads", 2, "--model.mlp-width", 16)
    at = ("--image-size", 32, "--steps", 20, "--batch-size", 8, "--device", "cpu", "--workers", 0)
    return "vit-b16-i21k-90ep", "--data", data, *tiny, *at, *words


@pytest.mark.usefixtures("begun")
def test_a_warm_up_longer_than_the_run_is_shortened_and_told(capsys, data):
    assert main(["train", *map(str, paper(data))]) == 0
    (note,) = [line for line in capsys.readouterr().err.splitlines() if line.startswith("note: ")]
    assert note == (
        "note: The warm-up of the recipe, 10,000 steps, is longer than this run of 20: it becomes 10% of the run."
    )
    assert config_of("vit-b16-i21k-90ep-1").schedule.warmup_share == 0.1
    # Who asks for it gets it, without a word.
    assert main(["train", *map(str, paper(data, "--schedule.warmup-steps", 40))]) == 0
    assert capsys.readouterr().err == ""
    schedule = config_of("vit-b16-i21k-90ep-2").schedule
    assert (schedule.warmup_steps, schedule.warmup_share) == (40, 0.0)


@pytest.mark.usefixtures("begun")
def test_a_batch_larger_than_the_data_is_made_to_fit_and_told(capsys, data):
    tiny = ("--model.width", 16, "--model.depth", 1, "--model.num-heads", 2, "--model.mlp-width", 16)
    words = ("mae-cifar10", "--data", data, *tiny, "--device", "cpu", "--workers", 0)
    assert main(["train", *map(str, words)]) == 0
    note = "The batch of the recipe, 512 images, is larger than the 23 to learn from: it becomes 16, and the learning"
    assert f"note: {note} rate 0.000177 (others: --batch-size, --lr).\n" in capsys.readouterr().err
    config = config_of("mae-cifar10-1")
    assert (config.train.batch_size, config.optim.lr, config.train.epochs) == (16, 0.000177, 400)
    # Who asks for it gets it, without a word.
    assert main(["train", *map(str, words), "--batch-size", "32", "--lr", "1e-3"]) == 0
    assert capsys.readouterr().err == ""
    assert config_of("mae-cifar10-2").train.batch_size == 32
    assert main(["train", *map(str, words), "--lr", "1e-4"]) == 0
    assert "it becomes 16 (others" in capsys.readouterr().err
    assert config_of("mae-cifar10-3").optim.lr == 1e-4


@pytest.mark.usefixtures("begun")
def test_a_crop_out_of_a_larger_square_follows_the_image_size_unless_it_is_given(capsys, data):
    words = (*FOLDER, "--data", data, "--augment.crop", "resize")
    printed_by(capsys, *words)
    assert config_of("vit-folder-1").augment.resize == 448 * 32 // 128
    for given in (("--augment.resize", 40), ("--augment.resize=40",)):
        printed_by(capsys, *words, *given, "--name", "given")
        assert config_of("given").augment.resize == 40
        shutil.rmtree("runs/given")


@pytest.mark.usefixtures("begun")
def test_without_a_recipe_the_data_says_which(capsys, data):
    for words in (("--data", "digits"), ("--data=digits",)):
        printed_by(capsys, *words, *DIGITS[1:])
    assert config_of("vit-digits-2").recipe == "vit-digits"
    printed_by(capsys, "--data", data, *FOLDER[1:])
    assert config_of("vit-folder-1").recipe == "vit-folder"
    assert config_of("vit-folder-1").model.num_classes == 4


@pytest.mark.usefixtures("begun")
def test_a_run_in_the_place_of_a_recipe_is_no_data(capsys, data):
    printed_by(capsys, *DIGITS)
    error = failure(capsys, 2, "runs/vit-digits-1", "--data", data)
    assert "vitrail finetune runs/vit-digits-1 --data" in error and "--resume runs/vit-digits-1" in error


@pytest.mark.usefixtures("begun")
def test_epochs_and_steps_replace_each_other(capsys):
    printed_by(capsys, *DIGITS, "--steps", 9)
    printed_by(capsys, *DIGITS, "--epochs", 9)
    assert (config_of().train.steps, config_of().train.epochs) == (9, None)
    second = config_of("vit-digits-2").train
    assert (second.steps, second.epochs) == (None, 9)
    assert "exactly one of them" in failure(capsys, 2, *DIGITS, "--steps", 9, "--epochs", 9)


def table(tmp_path: Path) -> Path:
    make_images(tmp_path / "pictures", per_class=3, classes=("ant", "bee"))
    rows = [f"pictures/{name}/{index:03}.png,{name}|small" for name in ("ant", "bee") for index in range(3)]
    (tmp_path / "table.csv").write_text("\n".join(["path,labels", *rows]) + "\n")
    return tmp_path / "table.csv"


@pytest.mark.usefixtures("begun")
def test_several_labels_per_image(capsys, tmp_path):
    words = (*FOLDER, "--data", table(tmp_path), "--augment.mixup", 0, "--held-out", 0)
    assert main(["train", *map(str, words)]) == 0
    notes = [line for line in capsys.readouterr().err.splitlines() if "sigmoid" in line]
    assert notes == ["note: The images have several classes each, so the loss is sigmoid cross-entropy."]
    assert config_of("vit-folder-1").train.loss == "sigmoid"
    for given in (("--train.loss", "softmax"), ("--train.loss=softmax",)):
        message = failure(capsys, 2, *words, *given)
        assert "the images have several classes each; wanted --train.loss sigmoid" in message
    assert main(["train", *map(str, (*words, "--train.loss", "sigmoid"))]) == 0
    assert "several classes" not in capsys.readouterr().err
    assert sorted(path.name for path in Path("runs").iterdir()) == ["vit-folder-1", "vit-folder-2"]


# Where a run goes.


@pytest.mark.usefixtures("begun")
def test_an_empty_name_is_refused_and_a_tilde_is_home(capsys, tmp_path, monkeypatch):
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    for words in (("--name", ""), ("--name=",)):
        # Nearly always a variable that was not set.
        assert "--name is ''" in failure(capsys, 2, *DIGITS, "--out", "~/mine", *words)
    for _ in range(2):
        printed_by(capsys, *DIGITS, "--out", "~/mine")
    made = sorted(path.name for path in (tmp_path / "home/mine").iterdir())
    assert made == ["vit-digits-1", "vit-digits-2"]
    assert not (tmp_path / "~").exists()


@pytest.mark.usefixtures("begun")
def test_a_name_that_is_taken_is_refused_with_what_goes_on_with_it(capsys):
    printed_by(capsys, *DIGITS, "--name", "mine")
    before = state_of(Path("runs/mine"))
    message = failure(capsys, 2, *DIGITS, "--name", "mine")
    assert "runs/mine: there is a run already" in message
    assert "(vitrail train --resume runs/mine)" in message
    assert state_of(Path("runs/mine")) == before


@pytest.mark.usefixtures("begun")
def test_a_run_that_cannot_begin_leaves_no_folder(capsys, monkeypatch):
    monkeypatch.setattr(checkpoints.shutil, "disk_usage", lambda _path: shutil._ntuple_diskusage(10, 10, 0))
    assert "0.0 MB are free" in failure(capsys, 5, *DIGITS)
    assert "0.0 MB are free" in failure(capsys, 5, *DIGITS, "--name", "mine")
    assert list(Path("runs").iterdir()) == []


# What is learnt from is never measured on.


@pytest.mark.usefixtures("unseen")
@pytest.mark.parametrize("split", ["test", "testing", "test[:90%]"])
def test_learning_from_test_is_never_reported_as_test(capsys, split, data):
    printed_by(capsys, *FOLDER, "--data", data, "--split", split, "--steps", 1, "--held-out", 0.25)
    assert "test" not in record_of("vit-folder-1").counts
    assert events(Path("runs/vit-folder-1"), "done")[0]["split"] == "held_out"
    metrics = json.loads(Path("runs/vit-folder-1/model/config.json").read_text())["metrics"]
    assert "test" not in metrics


@pytest.mark.usefixtures("unseen")
def test_learning_from_val_too_does_not_choose_on_it(capsys, tmp_path, monkeypatch):
    """Known data sets have such a split; here a folder of both stands for it. A tenth of 40 is not the 12 of val."""
    make_images(tmp_path / "data/train", per_class=10)
    make_images(tmp_path / "data/val", per_class=3)

    def opened(name, split, **options):
        return open_data(str(tmp_path / "data/train") if "+" in split else name, split.split("+")[0], **options)

    monkeypatch.setattr("vitrail.training.sources.open_data", opened)
    words = (*FOLDER, "--data", tmp_path / "data", "--steps", 1)
    for number, split in enumerate(("train+val", "train+validation"), start=1):
        printed_by(capsys, *words, "--split", split)
        assert record_of(f"vit-folder-{number}").counts == {"train": 36, "held-out": 4}
    printed_by(capsys, *words)
    assert record_of("vit-folder-3").counts == {"train": 40, "held-out": 12}


# Stopping and going on.


def test_frozen_statistics_stay_and_going_on_is_exact(capsys, data, monkeypatch):
    """The time is tried out before each start, on the very network that is then trained."""
    words = (*FOLDER, "--data", data, "--freeze", 1, "--epochs", 2, "--model.dropout", 0.1, "--train.log-every", 1)
    with monkeypatch.context() as patch:
        patch.setattr(Driver, "train", lambda _driver, session, folder, _run: run(session, folder, lambda _r: None))
        printed_by(capsys, *words, "--name", "whole")
    with monkeypatch.context() as patch:
        stop_at(patch, 3)
        message = failure(capsys, 75, *words, "--name", "stopped")
        assert message.endswith("To go on: vitrail train --resume runs/stopped.")
        stop_at(patch, 4)
        failure(capsys, 75, "--resume", "runs/stopped", "--device", "cpu")
    with monkeypatch.context() as patch:
        patch.setattr(Driver, "train", lambda _driver, session, folder, _run: run(session, folder, lambda _r: None))
        assert "going on after step 4 in runs/stopped" in printed_by(capsys, "--resume", "runs/stopped")
    assert_same_run(Path("runs/stopped"), Path("runs/whole"))
    found = checkpoints.newest(Path("runs/whole/checkpoints")).tensors["model"]
    statistics = {name: value for name, value in found.items() if "running_" in name or "num_batches" in name}
    assert len(statistics) == 12
    for name, value in statistics.items():
        assert torch.equal(value, torch.full_like(value, 1 if name.endswith("running_var") else 0)), name


def test_going_on_with_a_tracker_writes_events(capsys, monkeypatch):
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    with monkeypatch.context() as patch:
        stop_at(patch, 3)
        failure(capsys, 75, *DIGITS, "--steps", 6, "--train.log-every", 1, "--name", "mine")
    assert not list(Path("runs/mine").glob("events.*"))
    printed_by(capsys, "--resume", "runs/mine", "--device", "cpu", "--track", "tensorboard")
    found = EventAccumulator("runs/mine").Reload()
    assert [scalar.step for scalar in found.Scalars("train/loss")] == [4, 5, 6]
    assert [scalar.step for scalar in found.Scalars("test/accuracy")] == [6]


@pytest.mark.usefixtures("unseen")
def test_another_length_is_refused_and_when_allowed_it_counts(capsys, monkeypatch):
    with monkeypatch.context() as patch:
        stop_at(patch, 3)
        failure(capsys, 75, *DIGITS, "--epochs", 1, "--name", "mine")
    edit("mine", lambda config: config["train"].update(epochs=2))
    message = failure(capsys, 2, "--resume", "runs/mine", "--device", "cpu")
    assert "train.epochs: 1, now 2" in message
    assert "--allow-changed" in message
    out = printed_by(capsys, "--resume", "runs/mine", "--device", "cpu", "--allow-changed")
    assert "12 steps" in out
    assert events(Path("runs/mine"), "done")[0]["step"] == 12


@pytest.mark.usefixtures("unseen")
def test_a_data_folder_whose_name_is_no_text(capsys, tmp_path, monkeypatch):
    folder = os.fsdecode(b"gr\xf6\xdfe")
    make_images(tmp_path / folder, per_class=6)
    words = (*FOLDER, "--data", tmp_path / folder, "--epochs", 2, "--train.log-every", 1)
    printed_by(capsys, *words, "--name", "whole")
    with monkeypatch.context() as patch:
        stop_at(patch, 3)
        failure(capsys, 75, *words, "--name", "stopped")
    out = printed_by(capsys, "--resume", "runs/stopped", "--device", "cpu")
    assert out.encode()
    assert_same_run(Path("runs/stopped"), Path("runs/whole"))
    assert config_of("stopped").data.data == str(tmp_path / folder)


def test_a_report_of_data_whose_name_is_no_text(capsys, tmp_path):
    folder = os.fsdecode(b"gr\xf6\xdfe")
    make_images(tmp_path / folder, per_class=3)
    out = printed_by(capsys, *FOLDER, "--data", tmp_path / folder, "--steps", 1, "--out", tmp_path / folder[:2])
    assert out.encode()
    assert (tmp_path / folder[:2] / "vit-folder-1/report.html").read_text(encoding="utf-8")


@pytest.mark.usefixtures("unseen")
def test_a_time_limit_ends_slow_steps_soon_after_it(capsys, data, monkeypatch):
    """A step takes a quarter of a second, so that two seconds are over long before the speed of many is known."""
    read = Files.read

    def slow(self, index):
        time.sleep(0.03)
        return read(self, index)

    words = (*FOLDER, "--data", data, "--steps", 5000, "--time-limit", 2 / 60, "--held-out", 0, "--no-test")
    with monkeypatch.context() as patch:
        patch.setattr("vitrail.training.sources.preflight", lambda source, **_: source)
        patch.setattr(Files, "read", slow)
        begin = time.monotonic()
        printed_by(capsys, *words)
        assert time.monotonic() - begin < 60
    (done,) = events(Path("runs/vit-folder-1"), "done")
    assert 1 <= done["step"] < 12
    assert events(Path("runs/vit-folder-1"), "length")[-1]["steps"] == done["step"]
