import io
import json
import os
import re
import signal
import sys
from collections.abc import Iterator
from contextlib import contextmanager, redirect_stdout
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import unquote, urlparse

import numpy as np
import pytest
import torch
from rich.console import Console

from vitrail.cli import demo, live, main, training
from vitrail.cli.demo_answers import few, rollout
from vitrail.cli.demo_pictures import cut, draw, letters_wide
from vitrail.cli.main import VERBS
from vitrail.evaluation import Predictions
from vitrail.recipes import recipe
from vitrail.training.events import Event, Stepped
from vitrail.zoo.published import PUBLISHED


@pytest.fixture(autouse=True)
def plain_output(monkeypatch: pytest.MonkeyPatch) -> None:
    """No colours, even where a build server asks for them."""
    monkeypatch.delenv("FORCE_COLOR", raising=False)


@dataclass(frozen=True)
class Shown:
    """A demo of one epoch: what it printed, and its folder."""

    text: str
    folder: Path

    @property
    def done(self) -> dict:
        return json.loads((self.folder / "log.jsonl").read_text().splitlines()[-1])


@pytest.fixture(scope="module")
def shown(tmp_path_factory: pytest.TempPathFactory) -> Shown:
    out, text = tmp_path_factory.mktemp("a folder"), io.StringIO()
    threads = torch.get_num_threads()
    with redirect_stdout(text):
        assert main(["demo", "--epochs", "1", "--out", str(out)]) == 0
    assert torch.get_num_threads() == threads
    return Shown(text.getvalue(), out / "demo-1")


def test_the_story_is_told_in_order(shown: Shown):
    marks = [
        "A Vision Transformer learns to read digits",
        "1,294 handwritten digits",
        "a sentence of 16 words",
        "vit-digits on digits",
        "done in",
        "It reads",
        "below each the patches it looked at",
        "Open its page",
        "Try",
    ]
    places = [shown.text.index(mark) for mark in marks]
    assert places == sorted(places)


def test_digits_are_drawn_side_by_side_and_one_in_its_patches(shown: Shown):
    before = shown.text.split("vit-digits on digits")[0]
    five = re.findall(r"^(?:[·░▒▓█]{16} *){5}$", before, re.MULTILINE)
    assert len(five) == 8
    assert any("█" in line for line in five)
    patches = re.findall(r"^[·░▒▓█]{4}  [·░▒▓█]{4}  [·░▒▓█]{4}  [·░▒▓█]{4}  ", before, re.MULTILINE)
    assert len(patches) == 8


def test_the_result_is_what_the_log_says_with_images_counted(shown: Shown):
    found = re.search(r"^It reads (\d+) of (\d+) test digits right: ([\d.]+) %", shown.text, re.MULTILINE)
    assert found is not None
    right, images = int(found[1]), int(found[2])
    metrics = shown.done["metrics"]
    assert (right, images) == (round(metrics["accuracy"] * 359), 359)
    assert float(found[3]) == pytest.approx(100 * right / images, abs=0.01)


def test_answers_are_drawn_with_where_it_looked_and_three_guesses(shown: Shown):
    after = shown.text.split("three best guesses:")[1].split("Open its page")[0]
    verdicts = re.findall(r"a (\d): (right|wrong)", after)
    assert [verdict for _, verdict in verdicts] == ["right", "right", "right", "wrong"]
    assert len({digit for digit, _ in verdicts[:3]}) == 3
    assert len(re.findall(r"^(?:[·░▒▓█]{16} *){4}$", after, re.MULTILINE)) == 16
    guesses = re.findall(r"(\d) [█ ]{9} *(\d+)%", after)
    assert len(guesses) == 12
    # Line by line: the first guess of each column is right but in the last.
    assert [digit for digit, _ in guesses[:3]] == [digit for digit, _ in verdicts[:3]]
    assert guesses[3][0] != verdicts[3][0]
    assert all(int(first[1]) >= int(second[1]) for first, second in zip(guesses[:4], guesses[4:8], strict=True))


def test_the_folder_is_a_whole_run_and_the_link_opens_its_page(shown: Shown):
    assert shown.done["event"] == "done"
    for name in ("config.json", "model/model.safetensors", "model/config.json", "report.html"):
        assert (shown.folder / name).is_file(), name
    link = re.search(r"^  (file://\S+)$", shown.text, re.MULTILINE)
    assert link is not None
    assert Path(unquote(urlparse(link[1]).path)) == (shown.folder / "report.html").resolve()


def test_every_command_to_try_exists(shown: Shown, capsys):
    commands = re.findall(r"^  vitrail (.+?)(?:  +.*)?$", shown.text.split("\nTry\n")[1], re.MULTILINE)
    verbs = [command.split()[0] for command in commands]
    assert verbs == ["serve", "predict", "info", "train", "data", "train", "finetune", "list"]
    assert set(verbs) <= set(VERBS)
    assert recipe(commands[3].split()[1]).name == "vit-digits"
    assert commands[6].split()[1] in PUBLISHED
    # The folder of the run has a space in it, so it must come quoted.
    assert commands[2] == f"info '{shown.folder}'"
    assert main(["info", str(shown.folder)]) == 0
    assert "4 blocks" in capsys.readouterr().out


def test_another_one_has_its_own_folder_and_seed(shown: Shown, capsys):
    before = (shown.folder / "log.jsonl").read_bytes()
    assert main(["demo", "--epochs", "1", "--seed", "1", "--out", str(shown.folder.parent)]) == 0
    other = shown.folder.with_name("demo-2")
    assert json.loads((other / "config.json").read_text())["config"]["train"]["seed"] == 1
    assert f"info '{other}'" in capsys.readouterr().out
    weights = "model/model.safetensors"
    assert (other / weights).read_bytes() != (shown.folder / weights).read_bytes()
    assert (shown.folder / "log.jsonl").read_bytes() == before


def test_ctrl_c_saves_and_says_how_to_go_on(tmp_path: Path, capsys, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(live, "watching", stop_at(5))
    assert main(["demo", "--epochs", "1", "--out", str(tmp_path)]) == 75
    printed = capsys.readouterr()
    folder = tmp_path / "demo-1"
    assert f"vitrail train --resume {folder}" in printed.err
    assert "Traceback" not in printed.err
    assert "It reads" not in printed.out
    monkeypatch.undo()
    assert main(["train", "--resume", str(folder)]) == 0
    assert "of 359 images" in capsys.readouterr().out


def stop_at(step: int):
    @contextmanager
    def watching(*_arguments, **_named) -> Iterator:
        def hear(event: Event) -> None:
            if event == Stepped(step=step):
                os.kill(os.getpid(), signal.SIGINT)

        yield hear

    return watching


def test_sixty_columns_and_colours_are_enough(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    terminal = Console(
        width=60, record=True, file=io.StringIO(), force_terminal=True, color_system="truecolor", highlight=False
    )
    monkeypatch.setattr(demo, "console", lambda: terminal)
    monkeypatch.setattr(training, "console", lambda: terminal)
    assert main(["demo", "--epochs", "1", "--out", str(tmp_path)]) == 0
    lines = terminal.export_text().splitlines()
    long = [line for line in lines if len(line) > 60]
    assert all(str(tmp_path) in line for line in long), long
    assert sum("▀" in line for line in lines) >= 4
    assert "·" not in "".join(lines)


def test_a_terminal_without_unicode_gets_plain_letters(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    written = io.BytesIO()
    monkeypatch.setattr(sys, "stdout", io.TextIOWrapper(written, encoding="ascii"))
    assert main(["demo", "--epochs", "1", "--out", str(tmp_path)]) == 0
    text = written.getvalue().decode("ascii")
    assert re.search(r"^[.:+*#]{16}  [.:+*#]{16}  ", text, re.MULTILINE)
    assert "Try" in text


@pytest.mark.parametrize("words", [["--fast"], ["--epochs", "0"], ["--seed", "-1"], ["--epochs", "many"]])
def test_bad_options_stop_it_before_anything_is_written(words: list[str], tmp_path: Path, capsys):
    try:
        code = main(["demo", "--out", str(tmp_path), *words])
    except SystemExit as stopped:
        code = stopped.code
    assert code == 2
    assert "Traceback" not in capsys.readouterr().err
    assert list(tmp_path.iterdir()) == []


@pytest.mark.slow
def test_the_whole_demo_reads_97_percent(tmp_path: Path, capsys):
    assert main(["demo", "--out", str(tmp_path)]) == 0
    assert Shown(capsys.readouterr().out, tmp_path / "demo-1").done["metrics"]["accuracy"] >= 0.97


def predictions(guesses: list[int], labels: list[int], losses: list[float]) -> Predictions:
    answers = np.array(guesses)[:, None]
    right = answers == np.array(labels)[:, None]
    return Predictions(answers, np.ones_like(answers, dtype=np.float32), right, np.array(losses, dtype=np.float32))


def test_few_shows_different_digits_and_the_worst_mistake_last():
    labels = [1, 1, 2, 3, 4, 5]
    said = predictions([1, 1, 2, 9, 4, 9], labels, [0.1, 3.0, 0.1, 0.9, 0.1, 0.8])
    assert few(said, np.array(labels), 4).tolist() == [0, 2, 4, 3]
    assert few(said, np.array(labels), 3).tolist() == [0, 2, 3]


def test_few_shows_the_least_sure_when_nothing_is_wrong():
    labels = [1, 2, 3]
    said = predictions(labels, labels, [0.1, 0.7, 0.2])
    assert few(said, np.array(labels), 4).tolist() == [0, 2, 1]


def test_few_has_something_to_show_when_all_is_wrong():
    said = predictions([5, 5], [1, 2], [1.0, 2.0])
    assert few(said, np.array([1, 2]), 4).tolist() == [1]


def test_rollout_shares_out_one_and_finds_the_patch_all_look_at():
    attention = torch.zeros(1, 2, 4, 4)
    attention[..., 2] = 1.0
    found = rollout([attention] * 3)
    # After three blocks an eighth has stayed where it was, spread over four patches.
    assert torch.allclose(found, torch.tensor([[1 / 32, 1 / 32, 29 / 32, 1 / 32]]))


def test_rollout_is_the_product_of_all_blocks_in_their_order():
    attention = torch.rand(3, 2, 2, 5, 5).softmax(dim=-1)
    first, second, third = ((layer.mean(dim=1) + torch.eye(5)) / 2 for layer in attention)
    assert torch.allclose(rollout(list(attention)), (third @ second @ first).mean(dim=1))


def test_cut_sets_patches_apart_and_loses_no_pixel():
    picture = np.arange(16.0).reshape(4, 4)
    apart = cut(picture, (2, 2))
    assert apart.shape == (5, 5)
    assert np.isnan(apart[2]).all()
    assert np.isnan(apart[:, 2]).all()
    assert apart[~np.isnan(apart)].tolist() == picture.ravel().tolist()


def test_two_pixels_share_a_letter_where_there_are_colours():
    out = Console(file=io.StringIO(), force_terminal=True, color_system="truecolor")
    picture = np.array([[0.0, 1.0, np.nan], [1.0, 1.0, 1.0], [0.0, np.nan, np.nan]])
    assert draw(out, picture).plain == "▀ ▄\n▀  "
    assert letters_wide(out, picture) == 3


def test_a_pixel_is_two_shaded_letters_where_there_are_none():
    out = Console(file=io.StringIO(), color_system=None)
    picture = np.array([[0.0, 0.3, 1.0, np.nan]])
    assert draw(out, picture).plain == "··░░██  "
    assert letters_wide(out, picture) == 8
