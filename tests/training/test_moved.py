"""What lies beside a run and moves with it."""

from pathlib import Path

import pytest
from tests.training.tiny_run import config

from vitrail.data.sources.taught import RECORD
from vitrail.training.folder import beside


@pytest.mark.parametrize(
    ("run", "lesson", "found"),
    [
        ("round-1", "taught-1", "new/taught-1"),
        ("round-2", "taught-1", "old/taught-1"),
        ("mine", "taught-1", "old/taught-1"),
        ("round-2", "taught-2", "old/taught-2"),
    ],
)
def test_only_the_student_of_a_lesson_takes_the_one_beside_it(run, lesson, found, tmp_path) -> None:
    for place in ("old", "new"):
        (tmp_path / place / "taught-1").mkdir(parents=True)
        (tmp_path / place / "taught-1" / RECORD).touch()
    stored = config(Path(f"taught:{tmp_path / 'old' / lesson}"))
    assert beside(stored, tmp_path / "new" / run).data.data == f"taught:{tmp_path / found}"
