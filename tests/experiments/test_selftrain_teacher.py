"""Which output of a teacher is which class."""

import numpy as np
import pytest
import torch
from tests.experiments.selftrain_small import teacher_folder
from tests.training.tiny_run import CLASSES, CPU

from vitrail.errors import DataError, Notice
from vitrail.experiments.selftrain_teacher import match_outputs, open_teacher


def test_names_decide_and_not_numbers() -> None:
    assert match_outputs(("b", "c", "a"), 3, ("a", "b", "c"), "m", "d").tolist() == [2, 0, 1]
    assert match_outputs(("e\u0301", "o"), 2, ("o", "\u00e9"), "m", "d").tolist() == [1, 0]


def test_without_names_the_number_of_classes_decides() -> None:
    with pytest.warns(Notice, match="not known"):
        assert match_outputs(None, 3, ("a", "b", "c"), "m", "d").tolist() == [0, 1, 2]


@pytest.mark.parametrize(
    ("labels", "outputs", "said"),
    [
        (None, 7, "7 classes without names"),
        (None, 0, "no head"),
        (("a", "x"), 2, "does not know the class 'b'"),
        (("a", "b", "c"), 3, "only the teacher knows the class 'c'"),
        (("a", "a", "b"), 3, "two classes of the teacher are called 'a'"),
    ],
)
def test_other_classes_are_refused_with_the_way_to_teach_them(labels, outputs, said) -> None:
    with pytest.raises(DataError, match=said) as found:
        match_outputs(labels, outputs, ("a", "b"), "some/model", "photos")
    assert "vitrail finetune some/model --data photos" in str(found.value)


def test_columns_follow_the_classes_and_sigmoids_are_shared_out(tmp_path) -> None:
    backwards = tuple(reversed(CLASSES))
    teacher = open_teacher(str(teacher_folder(tmp_path / "t", backwards)), CLASSES, "d", CPU)
    logits = torch.tensor([[4.0, 3.0, 2.0, 1.0], [0.0, 0.0, 9.0, 0.0]])
    said = teacher.probabilities(logits)
    assert torch.allclose(said, logits.flip(1).softmax(dim=1))
    teacher.subject.model.provenance = {"loss": "sigmoid"}
    each = logits.flip(1).sigmoid()
    shared = teacher.probabilities(logits)
    assert torch.allclose(shared, each / each.sum(dim=1, keepdim=True))
    assert np.allclose(shared.sum(dim=1), 1)
    assert torch.isfinite(teacher.probabilities(torch.full((1, 4), -1000.0))).all()
