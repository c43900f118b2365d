"""Checkpoints: bit-equal round trips, their order, damage of every kind, what is kept, and space."""

import json
import shutil
import warnings
from collections import namedtuple

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from vitrail.errors import DataError, DiskError, Notice, VitrailError
from vitrail.training import checkpoint as checkpoints

DTYPES = [
    torch.float64, torch.float32, torch.float16, torch.bfloat16, torch.int64, torch.int32, torch.int16, torch.int8,
    torch.uint8, torch.bool, torch.float8_e4m3fn, torch.complex64,
]  # fmt: skip
STATE = {"progress": {"step": 3, "note": "가나다 \u2028 🦋"}, "data": "digest"}


def bits(tensor: torch.Tensor) -> bytes:
    return tensor.contiguous().reshape(-1).view(torch.uint8).numpy().tobytes()


def some(value: float = 1.0) -> dict[str, dict[str, torch.Tensor]]:
    return {"model": {"a.weight": torch.full((4, 3), value)}, "optimizer": {"step/a.weight": torch.tensor(value)}}


def names(folder) -> list[str]:
    return [path.name for path in checkpoints.listed(folder)]


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_a_round_trip_keeps_every_bit(dtype, tmp_path) -> None:
    generator = torch.Generator().manual_seed(1)
    # Random bytes: not-a-numbers with payloads, denormals and negative zeros among them.
    raw = torch.randint(0, 2 if dtype == torch.bool else 256, (7 * 5 * 16,), generator=generator, dtype=torch.uint8)
    matrix = raw.view(dtype)[:35].reshape(5, 7)
    group = {"matrix": matrix, "turned": matrix.t(), "number": matrix[0, 0].clone(), "empty": matrix[:0]}
    path = checkpoints.save(tmp_path, 3, {"model": group}, STATE)
    found = checkpoints.read(path)
    for name, tensor in group.items():
        came = found.tensors["model"][name]
        assert (came.dtype, came.shape) == (tensor.dtype, tensor.shape)
        assert bits(came) == bits(tensor)


def test_state_and_groups_come_back(tmp_path) -> None:
    shared = torch.arange(6.0)
    groups = {"model": {"a": shared, "b": shared}, "average": {"layer/with.slash": shared[1:3]}}
    path = checkpoints.save(tmp_path, 3, groups, STATE)
    found = checkpoints.read(path)
    assert set(found.tensors) == set(groups)
    assert found.tensors["average"]["layer/with.slash"].tolist() == [1, 2]
    assert (found.path, found.state["step"]) == (path, 3)
    assert {name: found.state[name] for name in STATE} == STATE


def test_tensors_that_need_gradients_are_saved_as_values(tmp_path) -> None:
    weight = torch.nn.Parameter(torch.ones(2))
    found = checkpoints.read(checkpoints.save(tmp_path, 1, {"model": {"w": weight}}, {}))
    assert not found.tensors["model"]["w"].requires_grad


def test_the_order_is_by_step_and_then_by_repetition(tmp_path) -> None:
    wanted = ["step-000000000", "step-000000009", "step-000000009-r1", "step-000000009-r2", "step-000000009-r10"]
    wanted += ["step-000000010", "step-000000100", "step-123456789"]
    strangers = [
        "step-1",
        "step-0000000001",
        ".step-000000009.tmp",
        "damaged-step-000000009",
        "step-000000009-rx",
        "last",
    ]
    for name in [*reversed(wanted), *strangers]:
        (tmp_path / name).mkdir()
    assert names(tmp_path) == wanted
    assert checkpoints.listed(tmp_path / "nothing") == []


def test_exactly_two_are_kept_and_the_last_is_named(tmp_path) -> None:
    for step in range(5):
        checkpoints.save(tmp_path, 10 * step, some(step), {})
        assert (tmp_path / "last").read_text() == f"step-{10 * step:09}\n"
        assert len(names(tmp_path)) == min(step + 1, 2)
    assert names(tmp_path) == ["step-000000030", "step-000000040"]
    assert sorted(path.name for path in tmp_path.iterdir()) == ["last", *names(tmp_path)]
    assert checkpoints.newest(tmp_path).tensors["model"]["a.weight"][0, 0] == 4


def test_a_step_saved_twice_has_two_names_and_the_second_is_newer(tmp_path) -> None:
    checkpoints.save(tmp_path, 5, some(1), {})
    second = checkpoints.save(tmp_path, 5, some(2), {})
    assert names(tmp_path) == ["step-000000005", "step-000000005-r1"]
    assert second.name == "step-000000005-r1"
    assert checkpoints.newest(tmp_path).tensors["model"]["a.weight"][0, 0] == 2


def test_a_step_saved_many_times_never_overwrites(tmp_path) -> None:
    """Memory that runs out four times before the first step: 512, 256, 128, 64."""
    for value in range(12):
        before = names(tmp_path)
        path = checkpoints.save(tmp_path, 0, some(value), {})
        assert path.name not in before
        assert names(tmp_path) == [*before, path.name][-2:]


def test_a_step_saved_many_times_ends_with_the_newest(tmp_path) -> None:
    for value in range(12):
        checkpoints.save(tmp_path, 0, some(value), {})
        assert checkpoints.newest(tmp_path).tensors["model"]["a.weight"][0, 0] == value


def flip(path, place: int = -1) -> None:
    blob = bytearray(path.read_bytes())
    blob[place] ^= 0x01
    path.write_bytes(blob)


def put_folder(path) -> None:
    path.unlink()
    path.mkdir()


DAMAGES = {
    "a flipped bit": (lambda path: flip(path / "model.safetensors"), "model.safetensors: the file is damaged"),
    "a flipped header": (lambda path: flip(path / "optimizer.safetensors", 0), "optimizer.safetensors: the file is"),
    "cut off": (lambda path: (path / "model.safetensors").write_bytes(b"\x08"), "the file is damaged"),
    "empty": (lambda path: (path / "model.safetensors").write_bytes(b""), "the file is damaged"),
    "longer": (lambda path: (path / "model.safetensors").open("ab").write(b"\0"), "the file is damaged"),
    "gone": (lambda path: (path / "model.safetensors").unlink(), "model.safetensors: cannot be read"),
    "no state": (lambda path: (path / "state.json").unlink(), "state.json: the checkpoint is not complete"),
    "half a state": (lambda path: (path / "state.json").write_text('{"format": '), "not complete"),
    "an empty state": (lambda path: (path / "state.json").write_text(""), "not complete"),
    "no text": (lambda path: (path / "state.json").write_bytes(b"\xff\xfe"), "not complete"),
    "a folder": (lambda path: put_folder(path / "model.safetensors"), "model.safetensors: cannot be read"),
}


@pytest.mark.parametrize("damage", DAMAGES)
def test_every_damage_is_named_and_the_one_before_is_taken(damage, tmp_path) -> None:
    harm, told = DAMAGES[damage]
    checkpoints.save(tmp_path, 1, some(1), {})
    path = checkpoints.save(tmp_path, 2, some(2), {})
    harm(path)
    with pytest.raises(DataError, match=r"checkpoint|damaged|read") as caught:
        checkpoints.verify(path)
    assert told in str(caught.value)
    assert str(path) in str(caught.value)
    with pytest.warns(Notice, match="Going back to the checkpoint before it"):
        found = checkpoints.newest(tmp_path)
    assert found.tensors["model"]["a.weight"][0, 0] == 1


@settings(max_examples=30)
@given(data=st.data())
def test_any_flipped_bit_of_any_file_is_noticed(data, tmp_path_factory) -> None:
    path = checkpoints.save(tmp_path_factory.mktemp("flips"), 1, some(), {"progress": {"step": 1}})
    file = path / data.draw(st.sampled_from(["model.safetensors", "optimizer.safetensors"]))
    blob = bytearray(file.read_bytes())
    blob[data.draw(st.integers(0, len(blob) - 1))] ^= 1 << data.draw(st.integers(0, 7))
    file.write_bytes(blob)
    with pytest.raises(DataError, match="damaged"):
        checkpoints.verify(path)


def test_a_changed_digit_of_the_state_is_noticed(tmp_path) -> None:
    path = checkpoints.save(tmp_path, 1, some(), {"progress": {"step": 100, "rate_factor": 0.5}})
    state = path / "state.json"
    state.write_text(state.read_text().replace('"step": 100', '"step": 108'))
    with pytest.raises(DataError):
        checkpoints.verify(path)


def test_none_is_whole(tmp_path) -> None:
    with pytest.raises(DataError, match="there is no checkpoint"):
        checkpoints.newest(tmp_path)
    for step in (1, 2):
        flip(checkpoints.save(tmp_path, step, some(), {}) / "model.safetensors")
    with pytest.warns(Notice), pytest.raises(DataError, match="none of its checkpoints can be read"):
        checkpoints.newest(tmp_path)


def hostile(sums, **more) -> str:
    """A state whose own checksum is right, so that the rest of it is looked at."""
    state = {"format": checkpoints.FORMAT, "step": 1, "sha256": sums, **more}
    return json.dumps({**state, "checksum": checkpoints._checksum(state)})


@pytest.mark.parametrize(
    "text",
    [
        "[]", "null", "3", '"text"', "{}", '{"format": "vitrail-checkpoint/1"}',
        json.dumps({"format": "vitrail-checkpoint/2", "sha256": {}}),
        json.dumps({"format": None, "sha256": {}}),
        hostile("text"), hostile(3), hostile(None), hostile([1, 2]),
        hostile({"../model.safetensors": "0"}), hostile({"/etc/passwd": "0"}), hostile({"a/b": "0"}),
        hostile({"": "0"}), hostile({".": "0"}), hostile({"..": "0"}), hostile({"nothing": "0"}),
        hostile({"state.json": "0"}), hostile({"model.safetensors": None}), hostile({"model.safetensors": ["0"]}),
        hostile({"x" * 5000: "0"}),
        "[" * 100_000,
        hostile({"a\0b": "0"}),
        hostile({"\ud800": "0"}),
        hostile([[1, 2]]),
    ],
)  # fmt: skip
def test_a_hostile_state_is_one_sentence(text, tmp_path) -> None:
    path = checkpoints.save(tmp_path, 1, some(), {})
    (path / "state.json").write_text(text)
    with pytest.raises(DataError) as caught:
        checkpoints.verify(path)
    assert str(path) in str(caught.value)


def test_names_with_folders_reach_no_other_file(tmp_path) -> None:
    outside = tmp_path / "outside.safetensors"
    outside.write_bytes(b"")
    path = checkpoints.save(tmp_path / "run", 1, some(), {})
    (path / "state.json").write_text(hostile({"../../outside.safetensors": "0"}))
    with pytest.raises(DataError, match="names without folders"):
        checkpoints.read(path)


def test_a_disk_that_returns_other_bytes_stops_the_run_and_keeps_the_one_before(tmp_path, monkeypatch) -> None:
    checkpoints.save(tmp_path, 1, some(1), {})
    checkpoints.save(tmp_path, 2, some(2), {})

    def lies(path):
        raise DataError("the file is damaged", where=str(path))

    with monkeypatch.context() as patch:
        patch.setattr(checkpoints, "verify", lies)
        with pytest.raises(DiskError, match="not what is read back") as caught:
            checkpoints.save(tmp_path, 3, some(3), {})
    assert caught.value.exit_code == 5
    assert (tmp_path / "last").read_text() == "step-000000002\n"
    assert names(tmp_path)[:2] == ["step-000000001", "step-000000002"]


def test_a_write_that_fails_leaves_nothing_half_done(tmp_path, monkeypatch) -> None:
    checkpoints.save(tmp_path, 1, some(1), {})
    before = sorted(path.name for path in tmp_path.iterdir())

    def full(*_args, **_kwargs):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(checkpoints, "write_safetensors", full)
    with pytest.raises(VitrailError, match="No space left") as caught:
        checkpoints.save(tmp_path, 2, some(2), {})
    assert caught.value.exit_code == 5
    assert sorted(path.name for path in tmp_path.iterdir()) == before
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert checkpoints.newest(tmp_path).state["step"] == 1


def test_leftovers_are_cleaned_and_damaged_ones_put_aside(tmp_path) -> None:
    good = checkpoints.save(tmp_path, 1, some(1), {})
    bad = checkpoints.save(tmp_path, 2, some(2), {})
    (tmp_path / ".step-000000003.abc").mkdir()
    (tmp_path / ".step-000000003.abc" / "model.safetensors").write_bytes(b"half")
    (tmp_path / "damaged-step-000000002").mkdir()
    flip(bad / "model.safetensors")
    checkpoints.clean(tmp_path, good)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["damaged-step-000000002", "last", "step-000000001"]
    assert (tmp_path / "damaged-step-000000002" / "state.json").exists()
    # The step is done again under its own name.
    assert checkpoints.save(tmp_path, 2, some(3), {}).name == "step-000000002"


def test_space_for_two_is_asked_for_before_anything_starts(tmp_path, monkeypatch) -> None:
    usage = namedtuple("usage", "total used free")
    monkeypatch.setattr(shutil, "disk_usage", lambda _path: usage(10**10, 9 * 10**9, 10**9))
    checkpoints.ensure_space(tmp_path / "new" / "folder", 10**9)
    assert (tmp_path / "new" / "folder").is_dir()
    with pytest.raises(
        DiskError, match=r"1,000\.0 MB are free; wanted 1,500\.0 MB for two checkpoints.*another disk with out"
    ) as caught:
        checkpoints.ensure_space(tmp_path, 1_500_000_000)
    assert caught.value.exit_code == 5
