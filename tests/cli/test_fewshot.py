"""`vitrail fewshot`: the table, the choice of l2 and what is said of it, JSON, and too few images."""

import json
import statistics

import pytest
from tests.cli.photos import draw, measured
from tests.evaluation.small import model_folder

from vitrail.cli import main
from vitrail.data import open_data
from vitrail.evaluation import fewshot
from vitrail.evaluation.features import extract_features
from vitrail.evaluation.shots import choose_shots
from vitrail.evaluation.subject import open_subject


def test_the_numbers_are_those_of_the_closed_form(place, capsys) -> None:
    found = measured(capsys, "fewshot", "model", "--data", "photos", "--shots", "5", "1", "--l2", "3")
    assert found["seeds"] == [0, 1, 2]
    (result,) = found["results"]
    train, test = open_data("photos", "train"), open_data("photos", "test")
    subject = open_subject("model")
    train_x, test_x = (extract_features(subject, source, batch_size=64) for source in (train, test))
    for row, shots in zip(result["shots"], (1, 5), strict=True):
        chosen = [choose_shots(train.labels.values, shots, seed) for seed in range(3)]
        wanted = [
            fewshot(train_x[rows], train.labels.values[rows], test_x, test.labels.values, l2=3.0).accuracy
            for rows in chosen
        ]
        assert row["shots"] == shots
        assert row["learnt_from"] == 3 * shots
        assert row["test_images"] == 15
        assert row["accuracies"] == wanted
        assert row["accuracy"] == pytest.approx(statistics.fmean(wanted))
        assert row["std"] == pytest.approx(statistics.stdev(wanted))
        assert (row["l2"], row["tried_l2"], row["l2_chosen_on_test_images_of"]) == (3.0, [3.0], [])


def test_the_table_has_mean_std_and_counts(place, capsys) -> None:
    (result,) = measured(capsys, "fewshot", "model", "--data", "photos", "--shots", "1", "5")["results"]
    assert main(["fewshot", "model", "--data", "photos", "--shots", "1", "5"]) == 0
    out = capsys.readouterr().out
    (line,) = (line for line in out.splitlines() if line.startswith(" photos "))
    cells = [f"{100 * row['accuracy']:.2f} ± {100 * row['std']:.2f}" for row in result["shots"]]
    assert [part.strip() for part in line.split("   ") if part.strip()] == ["photos", "3", *cells, "15"]
    assert "over 3 choices of images (seeds 0 to 2)" in out
    assert "l2 is 2^10, given and not chosen on any image." in out


def test_one_seed_has_no_deviation(place, capsys) -> None:
    words = ("fewshot", "model", "--data", "photos", "--shots", "1", "--seeds", "1")
    assert measured(capsys, *words)["results"][0]["shots"][0]["std"] is None
    assert main([*words]) == 0
    out = capsys.readouterr().out
    assert "±" not in out
    assert "seed 0" in out


def test_a_grid_on_one_data_set_is_shown_and_nothing_is_chosen(place, capsys) -> None:
    words = ("fewshot", "model", "--data", "photos", "--shots", "1", "5", "--l2-grid")
    (result,) = measured(capsys, *words)["results"]
    for row in result["shots"]:
        assert (len(row["tried_l2"]), row["l2"], row["l2_chosen_on_test_images_of"]) == (30, 1024.0, [])
        assert [len(right) for right in row["right"]] == [30, 30, 30]
    assert main([*words]) == 0
    out = capsys.readouterr().out
    assert "none was chosen, because only its test images could choose" in out
    assert "its best value is no fair score" in out
    curve = [line.split() for line in out.splitlines() if line.strip().startswith("2^")]
    assert [line[0] for line in curve] == [f"2^{power}" for power in range(-10, 20)]
    assert curve[20].count("*") == 2


def test_a_grid_over_several_data_sets_chooses_one_l2_for_all(place, capsys) -> None:
    draw(place / "more" / "train", ant=6, bee=6)
    draw(place / "more" / "test", ant=9, bee=3)
    words = ("fewshot", "model", "--data", "photos", "more", "--shots", "1", "5", "--l2-grid")
    results = measured(capsys, *words)["results"]
    for rows in zip(*(result["shots"] for result in results), strict=True):
        assert len({row["l2"] for row in rows}) == 1
        assert rows[0]["l2_chosen_on_test_images_of"] == ["photos", "more"]
        place_of_l2 = rows[0]["tried_l2"].index(rows[0]["l2"])
        means = [[statistics.fmean(column) for column in zip(*row["right"], strict=True)] for row in rows]
        orders = [sorted(range(30), key=mean.__getitem__) for mean in means]
        ranks = [statistics.fmean(order.index(number) for order in orders) for number in range(30)]
        assert place_of_l2 == ranks.index(max(ranks))
        for row in rows:
            assert row["accuracies"] == [right[place_of_l2] / row["test_images"] for right in row["right"]]
    assert main([*words]) == 0
    assert "for all, chosen on the test images of photos, more by mean rank" in capsys.readouterr().out


def test_several_models_have_rows_of_their_own(place, capsys) -> None:
    model_folder(place / "other", seed=1)
    assert main(["fewshot", "model", "other", "--data", "photos", "--shots", "1"]) == 0
    out = capsys.readouterr().out
    assert [line.split()[0] for line in out.splitlines() if " photos " in line and "±" in line] == ["model", "other"]


def test_too_few_images_name_the_class_after_what_was_found(place, capsys) -> None:
    words = ["fewshot", "model", "--data", "photos", "--shots", "25", "1", "5", "10"]
    assert main(words) == 3
    printed = capsys.readouterr()
    assert "1-shot" in printed.out
    assert "5-shot" in printed.out
    assert "10-shot" not in printed.out
    assert printed.err == (
        "error: model on photos: the class 'cow' has 6 images; wanted 10 of each for 10-shot. "
        "Ask for at most 6 with --shots.\n"
    )
    assert main([*words, "--json"]) == 3
    assert [row["shots"] for row in json.loads(capsys.readouterr().out)["results"][0]["shots"]] == [1, 5]


@pytest.mark.parametrize("words", [("--l2", "0"), ("--seeds", "0"), ("--shots", "0")])
def test_numbers_that_are_none(place, capsys, words) -> None:
    assert main(["fewshot", "model", "--data", "photos", *words]) == 2
    printed = capsys.readouterr()
    assert printed.err.startswith(f"error: {words[0].removeprefix('--')} is {words[1]}")
    # Before any feature is computed.
    assert printed.out == ""
