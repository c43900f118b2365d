"""Names of models and data sets, and the record of a transfer."""

from pathlib import Path

import pytest
from tests.experiments.conftest import config

from vitrail.errors import DataError, UsageError
from vitrail.experiments.finetune import Splits, make_plan
from vitrail.experiments.transfer import Pair, TransferFolder, joined_pairs, read_pairs, short_names, write_pairs


def pair(model: str = "a", data: str = "b", problem: str = "") -> Pair:
    return Pair(model=model, data=data, pretraining="", plan=None, problem=problem)


def test_names_are_the_ends_of_paths_and_longer_where_two_end_alike(tmp_path: Path, monkeypatch) -> None:
    monkeypatch.chdir(tmp_path)
    for path in ("one/model", "two/model", "data/photos", "data/my photos"):
        Path(path).mkdir(parents=True)
    Path("ti16.v2.safetensors").touch()
    assert short_names(["ti16.v2.safetensors", "vit-b16"]) == ["ti16.v2", "vit-b16"]
    # The model of a run is called as the run is.
    assert short_names(["one/model", "two/model"]) == ["one", "two"]
    assert short_names(["cifar10", "data/my photos/"]) == ["cifar10", "my-photos"]
    assert short_names(["hf-hub:timm/some.net", "hf:me/set"]) == ["some.net", "set"]
    assert short_names(["x/net", "y/net"]) == ["x-net", "y-net"]
    assert len(set(short_names(["a:b", "a/b"]))) == 2
    assert short_names(["..."]) == ["data"]
    with pytest.raises(UsageError, match="'cifar10' is given twice"):
        short_names(["cifar10", "digits", "cifar10"])


def test_no_name_leaves_the_folder() -> None:
    for name in short_names(["../../etc", "/", "a/../..", ".hidden"]):
        assert "/" not in name
        assert name not in ("", ".", "..")
        assert not name.startswith(".")


def test_the_record_comes_back_and_something_else_is_refused(tmp_path: Path, source: Path, data: Path) -> None:
    plan = make_plan(config(source, data), rates=(0.1, 0.2), seeds=2, splits=Splits(val=False, test=True))
    done = Pair(model="a", data="photos", pretraining="not known", plan=plan)
    folder = TransferFolder(tmp_path / "table")
    write_pairs(folder, [done, pair("a", "gone", "it is not there")], "real.json")
    record = read_pairs(folder)
    assert record.pairs == (done, pair("a", "gone", "it is not there"))
    assert record.real_labels == "real.json"
    assert folder.pair(done).path == tmp_path / "table/a/photos"
    assert folder.pair(done).resume_command == folder.resume_command
    folder.config.write_text('{"format": "vitrail-finetune/1"}')
    with pytest.raises(DataError, match="vitrail finetune --resume"):
        read_pairs(folder)


def test_a_table_grows_and_keeps_its_order() -> None:
    before = [pair("a", "x"), pair("a", "y", "was absent")]
    now = [pair("a", "y"), pair("b", "x")]
    assert joined_pairs(before, now) == (pair("a", "x"), pair("a", "y"), pair("b", "x"))
