"""Whether a run fits, and what to change: every number that is advised is one that was computed."""

from dataclasses import replace

import pytest

from vitrail.config import OptimConfig, TrainConfig, VitConfig
from vitrail.training.fitting import USABLE_SHARE, Question, answer, changes, fits, suitable_parallel
from vitrail.training.footprint import footprint

CONFIG = VitConfig(
    width=128, depth=6, num_heads=4, mlp_width=512, patch_size=(4, 4), image_size=(16, 16), num_classes=10
)
MEGABYTE = 1e6


def question(megabytes: float, gpus: int = 1, parallel=None, **train) -> Question:
    return Question(
        model=CONFIG,
        train=TrainConfig(**{"batch_size": 1024, "loss": "softmax", "steps": 1, "precision": "bfloat16", **train}),
        optim=OptimConfig(optimizer="adam", lr=1e-3),
        gpus=gpus,
        parallel=parallel,
        memory=megabytes * MEGABYTE,
    )


def test_the_largest_micro_batch_that_fits_is_taken() -> None:
    asked = question(220)
    found = answer(asked)
    assert 1 < found.micro_batch < 1024
    assert fits(found, asked)
    twice = replace(asked.train, micro_batch=2 * found.micro_batch)
    assert footprint(CONFIG, twice, asked.optim).total > USABLE_SHARE * asked.memory


def test_a_micro_batch_that_was_asked_for_is_kept() -> None:
    assert answer(question(220, micro_batch=1024)).micro_batch == 1024
    assert answer(question(1e6, micro_batch=32)).micro_batch == 32


def test_where_nothing_fits_one_image_is_shown() -> None:
    asked = question(10)
    assert answer(asked).micro_batch == 1
    assert not fits(answer(asked), asked)


def test_a_margin_is_left() -> None:
    asked = question(1e6, micro_batch=64)
    total = answer(asked).total
    exact = replace(asked, memory=total / USABLE_SHARE + 1)
    assert fits(answer(exact), exact)
    tight = replace(asked, memory=total * 1.05)
    assert not fits(answer(tight), tight)


def test_parts_where_copies_leave_too_little() -> None:
    copied = footprint(CONFIG, question(1, gpus=4).train, question(1).optim, gpus=4).state
    assert suitable_parallel(question(copied / 0.39 / MEGABYTE, gpus=4)) == "ddp"
    assert suitable_parallel(question(copied / 0.41 / MEGABYTE, gpus=4)) == "fsdp"
    assert answer(question(copied / 0.41 / MEGABYTE, gpus=4)).parallel == "fsdp"
    assert answer(question(copied / 0.41 / MEGABYTE, gpus=4, parallel="ddp")).parallel == "ddp"


def test_changes_come_in_order_and_say_what_they_give() -> None:
    asked = question(220, gpus=2, parallel="ddp", micro_batch=512)
    assert not fits(answer(asked), asked)
    found = changes(asked)
    words = [change.options.split(" ")[0] for change in found]
    assert words == ["--micro-batch", "--checkpoint-activations", "--parallel", "--gpus"]
    smaller, again, parts, more = found
    assert smaller.options == f"--micro-batch {smaller.footprint.micro_batch}"
    assert smaller.fits
    assert smaller.footprint == footprint(
        CONFIG, replace(asked.train, micro_batch=smaller.footprint.micro_batch), asked.optim, gpus=2
    )
    assert again.footprint == footprint(CONFIG, replace(asked.train, checkpoint_activations=True), asked.optim, gpus=2)
    assert parts.footprint == footprint(CONFIG, asked.train, asked.optim, gpus=2, parallel="fsdp")
    assert more.fits
    assert more.footprint.gpus > 2


def test_changes_that_are_there_already_are_not_advised() -> None:
    asked = question(100, gpus=2, parallel="fsdp", checkpoint_activations=True)
    assert [change.options for change in changes(asked) if "gpus" not in change.options] == []


def test_where_no_change_is_enough_all_are_tried_together() -> None:
    """A batch that no two GPUs can share, in memory that holds one image alone only if it is computed again."""
    plain, again = (
        answer(question(1e6, batch_size=1021, micro_batch=1, checkpoint_activations=recomputed)).total
        for recomputed in (False, True)
    )
    asked = question((plain + again) / 2 / USABLE_SHARE / MEGABYTE, batch_size=1021, micro_batch=1021)
    found = changes(asked)
    assert [(change.options, change.fits) for change in found] == [
        ("--micro-batch 1", False),
        ("--checkpoint-activations", False),
        ("--micro-batch 1 --checkpoint-activations", True),
    ]
    assert found[-1].footprint.total == again


def test_where_nothing_helps_nothing_is_promised() -> None:
    """The workspaces of cuBLAS alone are larger."""
    assert [change for change in changes(question(50, gpus=2)) if change.fits] == []


@pytest.mark.parametrize("batch_size", [1021, 7])
def test_a_batch_that_cannot_be_cut_is_taken_whole_or_one_by_one(batch_size: int) -> None:
    assert answer(question(1e6, batch_size=batch_size)).micro_batch == batch_size
    assert answer(question(80, batch_size=batch_size)).micro_batch == 1
