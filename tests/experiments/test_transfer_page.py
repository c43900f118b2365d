"""The pages of a transfer and of a VTAB: their tables as text, with a way to each fine-tuning."""

from dataclasses import replace
from pathlib import Path

import pytest
from tests.experiments.test_transfer_table import finished, named, pair_of, plan, table_of
from tests.experiments.test_vtab import asked, base
from tests.experiments.test_vtab import table_of as vtab_of
from tests.reports.reader import Reader

from vitrail.data.vtab.tasks import TASKS
from vitrail.errors import DataError
from vitrail.experiments.transfer import TransferFolder
from vitrail.experiments.transfer_table import transfer_page
from vitrail.experiments.vtab_folder import VtabFolder, begin_vtab, read_table, write_table
from vitrail.experiments.vtab_table import vtab_page

__all__ = ["base", "plan"]


def read(page: str) -> Reader:
    reader = Reader(page)
    assert reader.open == []
    assert len(reader.scripts) == 1
    return reader


def test_numbers_of_a_transfer_lead_to_their_pages(tmp_path: Path, plan) -> None:
    folder = TransferFolder(tmp_path)
    done = finished(folder, pair_of(named(plan, "cifar10"), "mine", "cifar10"), 0.90, 0.92)
    waiting, failed = pair_of(plan, "mine", "고양이 <b>"), pair_of(None, "mine", "gone", "the data is not there")
    table = replace(table_of(folder, done, waiting, failed), command="vitrail transfer '<script>x</script>'")
    reader = read(transfer_page(table, "all<i>"))
    assert "1 of 3 fine-tunings done" in reader.words
    assert "ViT-B/16, ImageNet-21k (Table 5)98.95" in reader.words
    assert "mine91.00 ± 1.41...failed" in reader.words
    assert "failed: mine on gone: the data is not there" in reader.words
    assert "vitrail transfer '<script>x</script>'" in reader.words
    assert reader.inside("table", "href") == ["mine/cifar10/report.html"]
    assert reader.sections() == ["table", "notes", "spent", "again"]


def test_a_vtab_is_read_back_as_it_was_written(tmp_path: Path, base) -> None:
    folder = VtabFolder(tmp_path / "v")
    begin_vtab(folder, asked("dtd", "svhn"))
    assert read_table(folder).scores == {}
    table = replace(vtab_of(base, ["dtd", "svhn"]), missing={"dmlab": "<u>not there</u>"})
    write_table(folder, table)
    assert read_table(folder) == table
    page = folder.report.read_text(encoding="utf-8")
    reader = read(page)
    assert "2 of 19 tasks" in reader.words
    assert "dmlab: <u>not there</u>" in reader.words
    assert (
        reader.inside("tasks", "href") == ["dtd/report.html", "svhn/report.html"]
        or len(reader.inside("tasks", "href")) == 2
    )
    (folder.path / "table.json").write_text("{")
    with pytest.raises(DataError, match="the table cannot be read"):
        read_table(folder)


def test_a_whole_vtab_has_its_mean_at_the_top(base) -> None:
    reader = read(vtab_page(vtab_of(base, list(TASKS)), "vitrail vtab m"))
    assert "9.0%mean accuracy of the 19 tasks" in reader.words
    assert "finished" in reader.words
    assert "mean accuracy" not in read(vtab_page(vtab_of(base, ["dtd"]), "vitrail vtab m")).words
