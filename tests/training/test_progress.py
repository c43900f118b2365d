"""Progress: through JSON and back, and what is better."""

import json
import math

import pytest

from vitrail.errors import UsageError
from vitrail.training.events import RolledBack
from vitrail.training.progress import Best, Progress, read_progress

FULL = Progress(
    step=5,
    steps=9,
    micro_batch=4,
    rate_factor=0.25,
    bad_in_a_row=2,
    seconds=1.5,
    best=Best(accuracy=0.5, loss=1.25, step=4),
    evaluated=4,
    records=12,
    events=({"event": "rollback", "step": 3}, {"event": "micro_batch", "step": 4, "micro_batch": 4}),
)


@pytest.mark.parametrize("progress", [FULL, Progress(steps=1, micro_batch=1)])
def test_progress_through_json(progress) -> None:
    assert read_progress(json.loads(json.dumps({"progress": progress.to_json()}))) == progress


def test_events_add_up() -> None:
    assert FULL.rollbacks == 1
    more = FULL.with_event(RolledBack(step=5, before=7, rate_factor=0.125), rate_factor=0.125)
    assert (more.rollbacks, more.rate_factor, more.events[:2]) == (2, 0.125, FULL.events)
    assert more.events[2] == {"event": "rollback", "step": 5, "from": 7, "rate_factor": 0.125}
    assert FULL.rollbacks == 1


@pytest.mark.parametrize(
    ("accuracy", "loss", "is_better"),
    [(0.6, 9.0, True), (0.4, 0.1, False), (0.5, 1.0, True), (0.5, 1.25, False), (0.5, 2.0, False)],
)
def test_more_right_or_as_many_with_less_loss(accuracy, loss, is_better) -> None:
    assert Best(accuracy=0.5, loss=1.25, step=4).is_beaten_by(Best(accuracy=accuracy, loss=loss, step=5)) == is_better


@pytest.mark.parametrize(("accuracy", "loss"), [(math.nan, 1.0), (1.5, 1.0), (0.5, math.nan), (0.5, math.inf)])
def test_a_best_that_cannot_be(accuracy, loss) -> None:
    with pytest.raises(UsageError):
        Best(accuracy=accuracy, loss=loss, step=5)
