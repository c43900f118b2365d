"""Logit lens and occlusion: what the head says after each layer, and with parts of the image covered."""

import pytest
import torch
from tests.inspection.networks import filled, network, pictures

import vitrail
from vitrail.errors import UsageError
from vitrail.inspection import covers, logit_lens, occlusion


@pytest.mark.parametrize(
    "how", [{}, {"pool": "mean"}, {"pool": "map"}, {"pre_logits": 7}, {"position_at": "every_layer"}]
)
def test_the_last_row_of_the_lens_is_the_answer(how) -> None:
    model = network(**how)
    images = pictures(model)
    found = logit_lens(model, images)
    assert found.shape == (4, 3, 5)
    torch.testing.assert_close(found[-1], model(images).detach())


def test_a_row_of_the_lens_is_the_network_cut_off_there() -> None:
    model = network()
    images = pictures(model)
    found = logit_lens(model, images)
    del model.blocks[1:]
    torch.testing.assert_close(found[1], model(images).detach())


def test_occlusion_is_the_drop_of_the_probability() -> None:
    model = network()
    images = pictures(model, 2)
    found = occlusion(model, images, window=1)
    assert found.shape == (2, 3, 5)
    whole = torch.softmax(model(images), dim=-1).detach()
    covered = images.clone()
    covered[:, :, 4:8, 8:12] = 0
    left = torch.softmax(model(covered), dim=-1).detach()
    for place in range(2):
        guess = int(whole[place].argmax())
        assert float(found[place, 1, 2]) == pytest.approx(float(whole[place, guess] - left[place, guess]), abs=1e-6)
    asked = occlusion(model, images, torch.tensor([4, 0]), window=1)
    assert float(asked[0, 1, 2]) == pytest.approx(float(whole[0, 4] - left[0, 4]), abs=1e-6)


@pytest.mark.parametrize("sides", [(12, 20), (200, 60), (4, 4)])
@pytest.mark.parametrize("window", [1, 2, 3])
def test_covers_leave_no_patch_out(sides, window) -> None:
    model = network(image_size=sides)
    there = covers(model, window)
    assert there.rows <= 14 and there.columns <= 14 and len(there.boxes) == there.rows * there.columns
    seen = torch.zeros(sides, dtype=torch.bool)
    for top, left, bottom, right in there.boxes:
        seen[top:bottom, left:right] = True
    assert seen.all()


@pytest.mark.parametrize("grid", [5, 14, 15, 20, 28, 30])
def test_covers_lie_around_what_they_stand_for(grid) -> None:
    there = covers(network(image_size=(4 * grid, 4 * grid)), 3)
    size, cell = 4 * grid, there.cell[0]
    for place, (top, left, bottom, right) in enumerate(there.boxes):
        row, column = divmod(place, there.columns)
        for low, high, middle in ((top, bottom, (row + 0.5) * cell), (left, right, (column + 0.5) * cell)):
            assert 0 <= low < high <= size
            # At an edge a part of it is cut off.
            if low > 0 and high < size:
                assert (low + high) / 2 == middle and high - low >= 12


def test_occlusion_works_without_attention() -> None:
    bit = filled(vitrail.create_model("bit-r50x1", width=32, blocks=(1, 1, 1, 1), num_classes=2, image_size=70))
    counted = []
    assert occlusion(bit, torch.randn(1, 3, 70, 70), advance=counted.append).shape == (1, 3, 3)
    assert sum(counted) == 9


def test_a_network_without_a_head_answers_nothing() -> None:
    model = network(num_classes=0)
    for function in (logit_lens, occlusion):
        with pytest.raises(UsageError, match="the network has no head"):
            function(model, pictures(model))
    with pytest.raises(UsageError, match="BitResNet has no attention, so there is no layer to read"):
        logit_lens(vitrail.create_model("bit-r50x1", width=32, blocks=(1, 1, 1, 1)), torch.zeros(1, 3, 32, 32))
    with pytest.raises(UsageError, match="wanted 3 numbers from 0 to 4"):
        occlusion(network(), pictures(network()), torch.tensor([0, 9, 0]))
