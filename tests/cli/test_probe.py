"""`vitrail probe`: its table, its JSON, what the l2 was chosen on, and a search that does not end."""

from tests.cli.photos import measured

from vitrail.cli import main
from vitrail.evaluation import probe


def test_the_table_and_the_numbers(place, capsys) -> None:
    (result,) = measured(capsys, "probe", "model", "--data", "photos")["results"]
    assert (result["chosen_on_held_out_training_images"], result["folds"]) == (12 + 11 + 6, 5)
    assert result["accuracy"] == result["right"] / result["test_images"]
    assert result["test_images"] == 15
    assert result["converged"]
    assert result["l2"] in [one["l2"] for one in result["tried"]]
    assert main(["probe", "model", "--data", "photos"]) == 0
    out = capsys.readouterr().out
    line = next(line.split() for line in out.splitlines() if " photos " in line)
    assert line[3:6] == [f"{100 * result['accuracy']:.2f}", f"{result['l2']:g}", "29"]
    assert line[6:8] == ["29", "15"]
    assert "The l2 is chosen on training images that are held out" in out


def test_a_given_l2_is_not_chosen(place, capsys) -> None:
    (result,) = measured(capsys, "probe", "model", "--data", "photos", "--l2", "0.5")["results"]
    assert (result["l2"], result["tried"], result["chosen_on_held_out_training_images"]) == (0.5, [], 0)
    assert main(["probe", "model", "--data", "photos", "--l2", "0.5"]) == 0
    assert " given " in capsys.readouterr().out
    assert main(["probe", "model", "--data", "photos", "--l2", "-1"]) == 2
    assert "l2 is -1.0; wanted a positive number" in capsys.readouterr().err


def test_a_search_that_does_not_end_is_told(place, capsys, monkeypatch) -> None:
    monkeypatch.setattr(probe, "ITERATIONS", 2)
    assert main(["probe", "model", "--data", "photos", "--l2", "1e-4"]) == 0
    told = "note: model on photos: the loss was still falling after 2 iterations; a larger --l2 converges sooner."
    assert told in capsys.readouterr().err
