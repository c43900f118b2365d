"""`vitrail knn`: its table, its JSON, and a k that is too large."""

import pytest
from tests.cli.photos import measured

from vitrail.cli import main


def test_the_table_and_the_numbers(place, capsys) -> None:
    (result,) = measured(capsys, "knn", "model", "--data", "photos", "--k", "1", "5")["results"]
    assert [row["k"] for row in result["votes"]] == [1, 5]
    for row in result["votes"]:
        assert row["test_images"] == 15
        assert (row["plain"], row["weighted"]) == (row["plain_right"] / 15, row["weighted_right"] / 15)
    assert result["votes"][0]["plain_right"] == result["votes"][0]["weighted_right"]
    assert main(["knn", "model", "--data", "photos", "--k", "1", "5"]) == 0
    lines = [line.split() for line in capsys.readouterr().out.splitlines() if line.startswith(" model ")]
    wanted = [[f"{100 * row['plain']:.2f}", f"{100 * row['weighted']:.2f}"] for row in result["votes"]]
    assert [line[-4:-2] for line in lines[1:]] == wanted
    assert all(line[-2:] == ["29", "15"] for line in lines[1:])


@pytest.mark.parametrize(("k", "told"), [("30", "at most the 29 training images"), ("0", "a whole number from 1")])
def test_a_k_that_is_none(place, capsys, k, told) -> None:
    assert main(["knn", "model", "--data", "photos", "--k", k]) == 2
    printed = capsys.readouterr()
    assert f"k is {k}; wanted {told}" in printed.err
