import contextvars
import json
import os
import re
import signal
from collections.abc import Iterator
from pathlib import Path

import pytest
import torch
from tests.experiments.conftest import save_network
from tests.training.tiny_run import make_images

import vitrail
from vitrail.cli import main
from vitrail.config import PRESETS, Settings, preset
from vitrail.experiments import driver
from vitrail.experiments.driver import Driver
from vitrail.experiments.finetune import FinetuneFolder, Options, plan_finetuning, read_finetuning
from vitrail.experiments.start import read_start
from vitrail.training.events import Event, Stepped
from vitrail.training.folder import RunFolder, read_run
from vitrail.training.run import run

QUICK = ("--steps", 3, "--batch-size", 16, "--device", "cpu", "--workers", 0)


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
def source(tmp_path: Path) -> Path:
    return save_network(tmp_path / "model")


@pytest.fixture
def data(tmp_path: Path) -> Path:
    make_images(tmp_path / "data/train", per_class=8)
    make_images(tmp_path / "data/test", per_class=2)
    return tmp_path / "data"


def printed_by(capsys, *words: object) -> str:
    code = main(["finetune", *map(str, words)])
    printed = capsys.readouterr()
    assert code == 0, printed.err
    return printed.out


def failure(capsys, code: int, *words: object) -> str:
    assert main(["finetune", *map(str, words)]) == code
    error = capsys.readouterr().err
    assert "Traceback" not in error
    # A run that was stopped is no error.
    start = "stopped" if code == 75 else "error: "
    return next(line for line in error.splitlines() if line.startswith(start))


def plan_of(name: str):
    return read_finetuning(FinetuneFolder(Path("runs") / name)).plan


def test_from_a_folder_of_images_to_a_number(capsys, source: Path, data: Path):
    out = printed_by(capsys, source, "--data", data, "--rates", 0.01, 0.1, "--seeds", 2, *QUICK)
    assert "finetune-folder on" in out
    assert "32 images to learn from, 4 classes" in out
    assert "2 runs try the learning rates 0.01, 0.1 on 6 held-out images" in out
    assert "2 final runs with the best rate; measured once on 8 test images" in out
    assert re.search(r"about \d+ seconds for all runs together", out)
    assert "run 4 of 4" in out
    assert re.search(r"test accuracy [\d.]+ ± [\d.]+ % \(8 images, mean of 2 seeds\)", out)
    folder = Path("runs/finetune-folder-1")
    assert "mean ± standard deviation of 2 seeds" in (folder / "report.html").read_text(encoding="utf-8")
    assert vitrail.load_model(folder).preprocessing == preset("google")
    assert json.loads((folder / "result.json").read_text())["seeds"][1]["seed"] == 1


@pytest.mark.usefixtures("unseen")
def test_one_rate_skips_the_sweep(capsys, source: Path, data: Path):
    out = printed_by(capsys, source, "--data", data, "--lr", 0.05, "--name", "mine", *QUICK)
    assert "1 final run with learning rate 0.05" in out
    assert "held-out accuracy" not in out
    assert not Path("runs/mine/sweep").exists()
    assert read_run(RunFolder(Path("runs/mine/seed-0"))).config.optim.lr == 0.05
    message = failure(capsys, 2, source, "--data", data, "--lr", 0.05, "--name", "mine", *QUICK)
    assert "there is a run already" in message
    assert "vitrail finetune --resume runs/mine" in message


@pytest.mark.usefixtures("unseen")
def test_without_a_test_split_it_says_what_the_number_is(capsys, source: Path, data: Path):
    out = printed_by(capsys, source, "--data", data / "train", "--rates", 0.01, 0.1, *QUICK)
    assert "there is no test split, so the number will be that of the sweep" in out
    assert "The model itself has learnt from all of them." in out
    # One rate measures nothing on the way, so something is held out of the final run.
    out = printed_by(capsys, source, "--data", data / "train", "--lr", 0.1, *QUICK)
    assert "these images were not learnt from" in out
    assert plan_of("finetune-folder-2").final_held_out == 0.2
    # Of what it started from nobody knows which images of them were held out.
    out = printed_by(capsys, "runs/finetune-folder-2", "--data", data / "train", "--lr", 0.1, *QUICK)
    assert "these images were not learnt from" not in out and "learnt from this data" in out
    out = printed_by(capsys, source, "--data", data / "train", "--lr", 0.1, "--held-out", 0, *QUICK)
    assert "so nothing was measured" in out


@pytest.mark.usefixtures("unseen")
def test_everything_can_be_changed(capsys, source: Path, data: Path):
    words = ("--image-size", 16, "--freeze", 1, "--optim.layer-decay", 0.7, "--model.dropout", 0.1)
    more = ("--time-limit", 10, "--seed", 5, "--seeds", 2, "--preprocessing", "imagenet", "--lr", 0.1)
    printed_by(capsys, source, "--data", data, *words, *more, *QUICK)
    config = plan_of("finetune-folder-1").config
    assert config.model.image_size == (16, 16)
    assert (config.optim.freeze, config.optim.layer_decay, config.model.dropout) == (1, 0.7, 0.1)
    assert config.augment.resize == 16 * 7 // 6
    assert config.train.time_limit == 5
    assert config.preprocessing == PRESETS["imagenet"]
    assert config.start == str(source.resolve())
    # 100 of 500 steps of warm-up become a fifth of whatever is asked for.
    assert (config.schedule.warmup_steps, config.schedule.warmup_share) == (0, 0.2)
    assert plan_of("finetune-folder-1").seeds == (5, 6)


@pytest.mark.usefixtures("unseen")
def test_the_papers_rows_and_the_hyper_rule(capsys, source: Path, data: Path):
    words = ("--data", data, "--lr", 0.01, "--image-size", 8, *QUICK)
    printed_by(capsys, source, "--recipe", "finetune-oxford-pets", *words)
    plan = plan_of("finetune-oxford-pets-1")
    assert len(plan.seeds) == 3
    assert plan.config.augment.resize == 448 * 8 // 384
    assert plan.config.data.held_out == 0.1
    printed_by(capsys, source, "--recipe", "finetune-bit-hyperrule", *words)
    config = plan_of("finetune-bit-hyperrule-1").config
    assert (config.schedule.decay, config.optim.clip) == ("steps", None)
    # The images have 12 pixels a side: 160 and 128 by the rule, here at a sixteenth.
    assert config.augment.resize == 160 * 8 // 128


def test_the_paper_fine_tunes_at_384_pixels(source: Path, data: Path):
    given = Settings({"data.data": str(data)})
    plan = plan_finetuning(read_start(str(source)), given, Options(recipe="finetune-cifar10", device="cpu"))
    assert plan.config.model.image_size == (384, 384)
    assert plan.rates == (0.001, 0.003, 0.01, 0.03)
    optim, train = plan.config.optim, plan.config.train
    assert (optim.optimizer, optim.momentum, optim.clip, optim.weight_decay) == ("sgd", 0.9, 1.0, 0.0)
    assert (train.batch_size, train.steps, train.loss) == (512, 10_000, "softmax")
    assert (plan.config.schedule.decay, plan.config.schedule.warmup_steps) == ("cosine", 500)


@pytest.mark.usefixtures("unseen")
def test_ctrl_c_and_going_on(capsys, source: Path, data: Path, monkeypatch: pytest.MonkeyPatch):
    words = (source, "--data", data, "--rates", 0.01, 0.1, "--name", "mine", *QUICK)

    def interrupted(_driver, session, folder, _run):
        def watch(event: Event) -> None:
            if isinstance(event, Stepped) and session.config.optim.lr == 0.1:
                os.kill(os.getpid(), signal.SIGINT)

        return run(session, folder, watch)

    with monkeypatch.context() as patch:
        patch.setattr(Driver, "train", interrupted)
        message = failure(capsys, 75, *words)
    assert message.endswith("To go on: vitrail finetune --resume runs/mine.")
    out = printed_by(capsys, "--resume", "runs/mine", "--device", "cpu")
    assert "run 2 of 3: learning rate 0.1, going on after step 1" in out
    assert "run 1 of 3" not in out
    assert "test accuracy" in out
    assert "test accuracy" in printed_by(capsys, "--resume", "runs/mine", "--device", "cpu")


def test_mistakes_get_a_sentence_and_leave_nothing(capsys, source: Path, data: Path, tmp_path: Path):
    given = (source, "--data", data)
    assert "Did you mean 'finetune-cifar10'?" in failure(capsys, 2, *given, "--recipe", "finetune-cifar")
    assert "Unknown recipe for fine-tuning" in failure(capsys, 2, *given, "--recipe", "vit-b16-i21k-90ep")
    assert "Did you mean 'imagenet'?" in failure(capsys, 2, *given, "--preprocessing", "imagnet")
    assert "both --lr and --rates" in failure(capsys, 2, *given, "--lr", 0.1, "--rates", 0.1, 0.2)
    assert "keep is 'best'" in failure(capsys, 2, *given, "--train.keep", "best")
    assert "there is no model to start from" in failure(capsys, 2, "--data", data)
    assert "there is no such file or folder" in failure(capsys, 3, tmp_path / "nothing.npz", "--data", data)
    assert "there is no such folder" in failure(capsys, 3, source, "--data", tmp_path / "nothing")
    assert "freeze is 9" in failure(capsys, 2, *given, "--freeze", 9, "--device", "cpu")
    assert "it would lie inside the data" in failure(capsys, 2, *given, "--out", data / "runs", "--device", "cpu")
    assert "no config.json" in failure(capsys, 2, "--resume", tmp_path)
    assert not list(tmp_path.glob("runs/*"))


def test_weights_that_do_not_say_how_images_were_prepared(capsys, data: Path, tmp_path: Path):
    vitrail.save_model(vitrail.create_model("vit-test", gelu="erf"), tmp_path / "bare.safetensors", layout="timm")
    message = failure(capsys, 2, tmp_path / "bare.safetensors", "--data", data)
    assert "does not say how its images were prepared; wanted one of the presets google, augreg, imagenet" in message
    assert "--preprocessing" in message


def test_help_needs_neither_source_nor_data(capsys):
    with pytest.raises(SystemExit) as ended:
        main(["finetune", "--help"])
    assert ended.value.code == 0
    out = capsys.readouterr().out
    for word in ("--data", "--recipe", "--rates", "--seeds", "--optim.layer-decay", "--model.dropout", "--train.steps"):
        assert word in out


@pytest.mark.usefixtures("unseen")
def test_what_learnt_without_labels_has_a_recipe_of_its_own(source, data, capsys) -> None:
    model = vitrail.load_model(source)
    model.provenance = {"masking": {"method": "patches"}}
    vitrail.save_model(model, "masked")
    printed_by(capsys, "masked", "--data", data, *QUICK, "--name", "first")
    plan = plan_of("first")
    assert plan.config.recipe == "finetune-masked"
    assert plan.config.model.stochastic_depth == 0.1
    assert plan.config.augment.crop == "pad"
    printed_by(capsys, "masked", "--data", data, *QUICK, "--name", "second", "--recipe", "finetune-folder")
    assert plan_of("second").config.recipe == "finetune-folder"


@pytest.mark.usefixtures("unseen")
def test_a_second_start_before_the_first_run_has_begun_writes_nothing(capsys, source, data, monkeypatch):
    begun, second = driver.begin, []
    words = ["finetune", *map(str, (source, "--data", data, *QUICK, "--lr", 0.01, "--seeds", 1, "--name", "mine"))]

    def meet(*arguments, **more):
        if not second:
            second.append(None)
            second[0] = contextvars.Context().run(main, words)
            assert [path.name for path in Path("runs/mine").iterdir()] == [".lock"]
        return begun(*arguments, **more)

    monkeypatch.setattr(driver, "begin", meet)
    assert main(words) == 0
    assert second == [2]
    assert "another process is working on" in capsys.readouterr().err
