import pytest

from vitrail.config import DataConfig, OptimConfig, TrainConfig
from vitrail.config.spelling import KEYWORDS, OPTIONS, SHORT
from vitrail.errors import command, setting, spelled


def test_every_short_name_is_of_a_field_that_there_is():
    groups = {"data": DataConfig, "optim": OptimConfig, "train": TrainConfig}
    for name in SHORT.values():
        group, field = name.split(".")
        assert field in groups[group].__dataclass_fields__


@pytest.mark.parametrize(
    ("text", "option", "keyword"),
    [
        (setting("optim.lr"), "--lr", "lr"),
        (setting("optim.lr", 0.003), "--lr 0.003", "lr=0.003"),
        (setting("data.root"), "--root", "root"),
        (setting("data.data", "FOLDER"), "--data FOLDER", "data='FOLDER'"),
        (setting("data.skip_bad", True), "--skip-bad", "skip_bad=True"),
        (setting("train.compile", False), "--no-compile", "compile=False"),
        (setting("train.keep"), "--train.keep", 'settings["train.keep"]'),
        (setting("train.keep", "last"), "--train.keep last", 'settings={"train.keep": "last"}'),
        (setting("optim.clip", 1), "--optim.clip 1", 'settings={"optim.clip": 1}'),
        (
            setting("train.checkpoint_activations", False),
            "--train.no-checkpoint-activations",
            'settings={"train.checkpoint_activations": False}',
        ),
        (setting("device", "cpu"), "--device cpu", "device='cpu'"),
        (setting("any_size"), "--any-size", "any_size"),
        (setting("image_size", (32, 64)), "--image-size 32 64", "image_size=[32, 64]"),
        (setting("out", "my folder"), "--out 'my folder'", "out='my folder'"),
    ],
)
def test_a_setting_is_written_as_people_write_it(text: str, option: str, keyword: str):
    assert (spelled(text, OPTIONS), spelled(text, KEYWORDS)) == (option, keyword)


@pytest.mark.parametrize(
    ("text", "typed", "called"),
    [
        (command("train", resume="runs/x"), "vitrail train --resume runs/x", "vitrail.train(resume='runs/x')"),
        (command("train", resume="my run"), "vitrail train --resume 'my run'", "vitrail.train(resume='my run')"),
        (
            command("finetune", "SOURCE", data="FOLDER"),
            "vitrail finetune SOURCE --data FOLDER",
            "vitrail.finetune('SOURCE', data='FOLDER')",
        ),
        (
            command("train", "vit-s16", **{"optim.lr": 0.1, "train.keep": "last", "optim.clip": 1}),
            "vitrail train vit-s16 --lr 0.1 --train.keep last --optim.clip 1",
            """vitrail.train('vit-s16', lr=0.1, settings={"train.keep": "last", "optim.clip": 1})""",
        ),
        (command("data check", "D", json=True), "vitrail data check D --json", "vitrail data check D --json"),
    ],
)
def test_a_command_is_written_as_people_write_it(text: str, typed: str, called: str):
    assert (spelled(text, OPTIONS), spelled(text, KEYWORDS)) == (typed, called)
