"""Rounds, one after the other: who teaches whom, what travels with the models, and going on from anywhere."""

import shutil
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tests.experiments.selftrain_small import carried_out, plan, planned, said_by, teacher_folder
from tests.training.test_resume import Crash, crash_at
from tests.training.tiny_run import CLASSES, CPU, assert_same_run

from vitrail.config import preset
from vitrail.data import OpenOptions, evaluation_batches, open_data
from vitrail.data.loading.prepare import Preparation
from vitrail.data.sources.taught import read_lesson, read_record
from vitrail.errors import DataError, UsageError, VitrailError
from vitrail.experiments import selftrain_rounds
from vitrail.experiments.audience import Audience
from vitrail.experiments.driver import Driver, How
from vitrail.experiments.selftrain import SelftrainFolder
from vitrail.experiments.selftrain_result import Taught, read_result
from vitrail.reports.story import gather
from vitrail.training.events import Evaluating, Stepped
from vitrail.weights.load import load_model, read_checkpoint


@pytest.fixture(scope="module")
def unbroken(place, tmp_path_factory) -> Path:
    folder = tmp_path_factory.mktemp("unbroken") / "self"
    carried_out(folder, plan(place / "teacher", place / "labelled", place / "loose", rounds=2))
    return folder


def test_what_a_student_is_taught_is_what_the_teacher_says(unbroken, place) -> None:
    source = open_data(f"taught:{unbroken / 'taught-1'}", "train")
    lesson = read_lesson(unbroken / "taught-1", read_record(unbroken / "taught-1"))
    assert lesson.shares is not None
    loose = open_data(place / "loose", "train", options=OpenOptions(labelled=False))
    model = load_model(place / "teacher")
    assert model.preprocessing is not None
    preparation = Preparation(size=(8, 8), preprocessing=model.preprocessing, channels=3)
    [batch] = evaluation_batches(loose, preparation, batch_size=100)
    said = said_by(place / "teacher", batch.images).numpy()
    learnt = len(lesson.learnt)
    targets = source.labels.targets(np.arange(len(source))).numpy()
    assert np.allclose(targets[learnt:], said[lesson.taught], atol=1e-3)
    # Labelled images stay what people say they are.
    assert set(np.unique(targets[:learnt])) == {0.0, 1.0} and (targets[:learnt].sum(axis=1) == 1).all()
    assert source.where(learnt) == loose.where(int(lesson.taught[0]))


def test_the_student_of_a_round_teaches_the_next(unbroken, place) -> None:
    result = read_result(unbroken / "selftrain.json")
    assert [student.name for student in result.students] == ["round-1", "round-2"]
    assert result.teacher.held_out is not None and result.teacher.held_out.images == 2
    second = read_record(unbroken / "taught-2").lineage
    assert second["teacher"] == str(unbroken / "round-1")
    kept = read_checkpoint(unbroken)
    assert kept.provenance["taught"] == second
    first = second["teacher_provenance"]["taught"]
    assert first["teacher"] == str(place / "teacher")
    assert first["teacher_fingerprint"] == result.teacher.fingerprint
    assert (first["labels"], first["threshold"], first["images"], first["unlabelled_images"]) == (
        "soft", 0.0, result.students[0].taught.images, 36,
    )  # fmt: skip
    assert second["teacher_fingerprint"] != first["teacher_fingerprint"]
    assert second["teacher_fingerprint"] == result.students[0].fingerprint
    assert len({result.teacher.fingerprint, *(one.fingerprint for one in result.students)}) == 3
    card = (unbroken / "model" / "README.md").read_text()
    assert "## Lineage" in card and card.count("Taught by") == 2
    assert kept.labels == CLASSES
    assert (unbroken / "model/model.safetensors").read_bytes() == (
        unbroken / "round-2/model/model.safetensors"
    ).read_bytes()


def test_labels_are_compared_with_the_truth_only_where_there_is_one(unbroken, place, tmp_path) -> None:
    assert read_result(unbroken / "selftrain.json").students[0].taught.right is None
    found = carried_out(
        tmp_path / "self", plan(place / "teacher", place / "labelled", place / "more", labels="hard", balance=False)
    )
    taught = found.students[0].taught
    assert taught is not None and taught.right is not None
    assert (taught.images, taught.copies, taught.right.images) == (36, 36, 36)
    lesson = read_lesson(tmp_path / "self/taught-1", read_record(tmp_path / "self/taught-1"))
    truth = [CLASSES.index(path.parent.name) for path in sorted((place / "more").rglob("*.png"))]
    assert taught.right.accuracy == pytest.approx(np.mean(lesson.classes == truth))
    assert lesson.shares is None


def test_the_labels_of_unlabelled_images_change_nothing(place, tmp_path) -> None:
    files = sorted((place / "more").rglob("*.png"))
    made = {}
    for name, shift in (("true", 0), ("permuted", 1)):
        rows = [f"{file},{CLASSES[(CLASSES.index(file.parent.name) + shift) % 4]}" for file in files]
        (tmp_path / f"{name}.csv").write_text("\n".join(["path,label", *rows]) + "\n")
        carried_out(tmp_path / name, plan(place / "teacher", place / "labelled", tmp_path / f"{name}.csv"))
        made[name] = (tmp_path / name / "round-1/model/model.safetensors").read_bytes()
        right = read_result(tmp_path / name / "selftrain.json").students[0].taught.right
        made[f"{name}, right"] = right.accuracy
    assert made["true, right"] != made["permuted, right"]

    def weights(name: str) -> dict:
        return {key: tensor.tolist() for key, tensor in read_checkpoint(tmp_path / name).state.items()}

    assert weights("true") == weights("permuted")


def test_going_on_from_anywhere_is_exact(unbroken, place, tmp_path, monkeypatch) -> None:
    folder, made = tmp_path / "self", plan(place / "teacher", place / "labelled", place / "loose", rounds=2)

    def broken(*_arguments, **_names) -> None:
        raise Crash

    with monkeypatch.context() as patch:
        patch.setattr(selftrain_rounds, "write_taught", broken)
        with pytest.raises(Crash):
            carried_out(folder, made)
    with pytest.raises(Crash):
        carried_out(folder, watcher=crash_at(Stepped, 3))
    with monkeypatch.context() as patch:
        patch.setattr(selftrain_rounds, "keep_model", broken)
        with pytest.raises(Crash):
            carried_out(folder)
    with pytest.raises(Crash):
        carried_out(folder, watcher=crash_at(Evaluating, 4))
    with monkeypatch.context() as patch:
        # Of the last round, after which nobody would come to it again.
        patch.setattr(selftrain_rounds, "keep_model", broken)
        with pytest.raises(Crash):
            carried_out(folder)
    result = carried_out(folder)
    assert len(result.students) == 2
    for name in ("taught-1/taught.npz", "taught-2/taught.npz"):
        with np.load(folder / name) as one, np.load(unbroken / name) as other:
            assert all(np.array_equal(one[key], other[key]) for key in other.files)
    last, kept = (read_checkpoint(one).state for one in (folder / "round-2", folder / "model"))
    assert all((kept[name] == last[name]).all() for name in last)
    assert_same_weights(folder, unbroken)


def assert_same_weights(one: Path, other: Path) -> None:
    for number in (1, 2):
        found, wanted = (read_checkpoint(folder / f"round-{number}").state for folder in (one, other))
        assert all((found[name] == wanted[name]).all() for name in wanted)


@pytest.mark.slow
def test_a_student_run_resumes_to_the_last_bit(place, tmp_path) -> None:
    made = plan(place / "teacher", place / "labelled", place / "loose")
    carried_out(tmp_path / "a", made)
    shutil.copytree(tmp_path / "a", tmp_path / "b")
    shutil.rmtree(tmp_path / "b" / "round-1")
    (tmp_path / "b" / "selftrain.json").unlink()
    # The same folder of what was taught, so that nothing but the break differs.
    shutil.rmtree(tmp_path / "b" / "taught-1")
    (tmp_path / "b" / "taught-1").symlink_to(tmp_path / "a" / "taught-1")
    with pytest.raises(Crash):
        carried_out(tmp_path / "b", watcher=crash_at(Stepped, 4))
    carried_out(tmp_path / "b")
    for name in ("a", "b"):
        model = tmp_path / name / "round-1/model/model.safetensors"
        model.write_bytes(b"")  # it names its folder of data; the tensors are compared in the checkpoint
    assert_same_run(tmp_path / "b" / "round-1", tmp_path / "a" / "round-1")


def test_a_teacher_that_is_sure_of_nothing_is_said(place, tmp_path) -> None:
    with pytest.raises(DataError, match="sure of none of the 36 unlabelled images"):
        carried_out(tmp_path / "self", plan(place / "teacher", place / "labelled", place / "loose", threshold=0.999))


def test_a_class_without_taught_images_is_told(place, tmp_path) -> None:
    told = []

    class Hearing(Audience):
        def tell(self, _experiment: object, fact: object, **about: Any) -> None:
            if isinstance(fact, Taught):
                told.append((about["number"], fact))

    teacher = teacher_folder(tmp_path / "one-sided", never=1)
    carried_out(
        tmp_path / "self",
        plan(teacher, place / "labelled", place / "loose", threshold=0.0, per_class=3),
        audience=Hearing(),
    )
    [(number, taught)] = told
    lesson = read_lesson(tmp_path / "self/taught-1", read_record(tmp_path / "self/taught-1"))
    missing = [name for place_, name in enumerate(CLASSES) if place_ not in lesson.classes]
    assert number == 1 and list(taught.unseen) == missing and "bee" in missing
    assert taught.copies == 3 * (4 - len(missing))


def test_a_folder_that_was_moved_goes_on_in_the_middle_of_a_round(unbroken, place, tmp_path) -> None:
    old, new = tmp_path / "self", tmp_path / "elsewhere" / "other"
    with pytest.raises(Crash):
        carried_out(old, plan(place / "teacher", place / "labelled", place / "loose", rounds=2), crash_at(Stepped, 4))
    new.parent.mkdir()
    shutil.move(old, new)
    # What is at the old place now is something else.
    shutil.copytree(unbroken / "taught-2", old / "taught-1")
    carried_out(new)
    assert_same_weights(new, unbroken)
    story = gather(SelftrainFolder(new).round(1), None, None)
    assert story.record.config.data.data == f"taught:{new / 'taught-1'}"
    assert story.source is not None and not story.left_out


@pytest.mark.parametrize("gone", ["labelled", "teacher", pytest.param("loose", marks=pytest.mark.slow)])
def test_what_was_moved_away_is_named_with_the_way_to_lead_there(gone, place, tmp_path) -> None:
    for name in ("labelled", "loose", "teacher"):
        shutil.copytree(place / name, tmp_path / name)
    folder = tmp_path / "runs" / "self"
    planned(folder, plan(tmp_path / "teacher", tmp_path / "labelled", tmp_path / "loose"))
    (tmp_path / gone).rename(tmp_path / "runs" / "new")
    with pytest.raises(VitrailError, match=r"of this self-training (is|are) not there any more") as found:
        carried_out(folder)
    assert f"ln -s NEW_PLACE {tmp_path / gone}" in str(found.value)
    (tmp_path / gone).symlink_to(tmp_path / "runs" / "new")
    assert len(carried_out(folder).students) == 1


@pytest.mark.slow
def test_a_teacher_that_was_moved_together_with_the_folder_is_found(place, tmp_path) -> None:
    shutil.copytree(place / "teacher", tmp_path / "old" / "teacher")
    made = plan(tmp_path / "old" / "teacher", place / "labelled", place / "loose")
    planned(tmp_path / "old" / "self", made)
    (tmp_path / "old").rename(tmp_path / "new")
    assert len(carried_out(tmp_path / "new" / "self").students) == 1


def test_other_weights_in_the_place_of_the_teacher_are_noticed(place, tmp_path) -> None:
    teacher = teacher_folder(tmp_path / "teacher")
    made = plan(teacher, place / "labelled", place / "loose")
    shutil.rmtree(teacher)
    teacher_folder(teacher, seed=9)
    with pytest.raises(UsageError, match="no longer those that this was planned with"):
        carried_out(tmp_path / "self", made)


def test_who_finds_the_plan_of_another_process_does_not_carry_out_its_own(place, tmp_path) -> None:
    made = plan(place / "teacher", place / "labelled", place / "loose")
    folder = planned(tmp_path / "self", replace(made, rounds=2))
    with pytest.raises(UsageError, match="another process has begun anew"):
        Driver(How(device=CPU)).drive(made, folder)
    assert not (tmp_path / "self" / "selftrain.json").exists()


def test_a_student_may_start_from_a_model(place, tmp_path) -> None:
    made = plan(place / "teacher", place / "labelled", place / "loose")
    start = read_checkpoint(place / "teacher")
    config = replace(made.config, start=str(place / "teacher"), model=start.config, preprocessing=preset("google"))
    found = carried_out(tmp_path / "self", replace(made, config=config))
    assert read_checkpoint(tmp_path / "self").provenance["start"] == str(place / "teacher")
    assert found.students[0].held_out is not None
