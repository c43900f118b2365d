import json
import subprocess
import sys
from itertools import groupby

import pytest

from vitrail.cli import main
from vitrail.data.sources.named_rows import NAMED
from vitrail.recipes import RECIPES, MaskedRow, RuleRow
from vitrail.zoo import ZOO


@pytest.fixture(autouse=True)
def plain_output(monkeypatch: pytest.MonkeyPatch) -> None:
    """No colours, even where a build server asks for them."""
    monkeypatch.delenv("FORCE_COLOR", raising=False)


def printed_by(capsys, *words: str) -> str:
    assert main(["list", *words]) == 0
    printed = capsys.readouterr()
    assert printed.err == ""
    return printed.out


def line_of(out: str, key: str) -> list[str]:
    (line,) = [line for line in out.splitlines() if line.split()[:1] == [key]]
    return line.split()


@pytest.mark.parametrize("words", [[], ["models"]])
def test_models_are_listed_one_per_line(capsys, words: list[str]):
    out = printed_by(capsys, *words)
    for key, row in ZOO.items():
        line = line_of(out, key)
        assert " ".join(line).startswith(f"{key} {row.name} {row.about} ")
        weights = f" {row.published.megabytes:,} MB, {row.published.licence}" if row.published else ""
        assert " ".join(line).endswith(f" {row.config.tokens}{weights}")


def test_a_line_of_the_models(capsys):
    out = printed_by(capsys)
    base, toy = (" ".join(line_of(out, key)) for key in ("vit-b16", "vit-test"))
    assert base == "vit-b16 ViT-B/16 base, Table 1 86.6 M 35.1 197 346 MB, apache-2.0"
    assert toy == "vit-test ViT for tests a toy that builds in milliseconds 24.2 k 0.0008 17"


def test_models_as_json(capsys):
    rows = json.loads(printed_by(capsys, "models", "--json"))
    assert [row["model"] for row in rows] == list(ZOO)
    (base,) = [row for row in rows if row["model"] == "vit-b16"]
    (toy,) = [row for row in rows if row["model"] == "vit-test"]
    assert base["published"]["hub"] == "timm/vit_base_patch16_224.augreg_in21k_ft_in1k"
    assert base["published"]["preprocessing"]["crop"] == 0.9
    assert (base["parameters"], base["macs"], base["tokens"]) == (86_567_656, 17_563_828_224, 197)
    assert toy == {
        "model": "vit-test",
        "name": "ViT for tests",
        "about": "a toy that builds in milliseconds",
        "parameters": 24_234,
        "macs": 414_144,
        "image_size": [32, 32],
        "tokens": 17,
        "published": None,
    }


def test_recipes_are_listed_one_per_line(capsys):
    out = printed_by(capsys, "recipes")
    for name, row in RECIPES.items():
        line = line_of(out, name)
        assert row.data in name or isinstance(row, RuleRow | MaskedRow)
        assert (f"{row.score.value:.2f}" in line) if row.score else ("not stated" in " ".join(line))


def test_lines_of_the_recipes(capsys):
    out = printed_by(capsys, "recipes")
    assert " ".join(line_of(out, "vit-l16-i21k-30ep")) == ("vit-l16-i21k-30ep 30 epochs 0.001 not stated 0.03 Table 3")
    assert " ".join(line_of(out, "finetune-oxford-pets")) == (
        "finetune-oxford-pets 500 steps 0.001 0.003 0.01 0.03 94.43 % 0 "
        "ViT-B/16 from ImageNet-21k, top-1 Table 4, Table 5"
    )
    assert " ".join(line_of(out, "augreg-vit-b16-i21k-300ep")) == (
        "augreg-vit-b16-i21k-300ep 300 epochs 0.001 85.49 % 0.1 "
        "fine-tuned ImageNet top-1 at 384 px AugReg, vision_transformer README"
    )
    assert " ".join(line_of(out, "finetune-folder")) == (
        "finetune-folder by the data 0.003 0.01 0.03 not stated 0 ours"
    )


def test_recipes_are_listed_by_where_they_come_from(capsys):
    lines = [line.strip() for line in printed_by(capsys, "recipes").splitlines()]
    headings = [
        "the paper, from scratch",
        "the paper, fine-tuning",
        "AugReg: How to train your ViT?",
        "Big Transfer",
        "our own, for small data",
        "learning without labels",
    ]
    places = [lines.index(heading) for heading in headings]
    assert places == sorted(places)
    firsts = [lines[place + 1].split()[0] for place in places]
    assert firsts == [
        *("vit-b16-jft-7ep", "finetune-imagenet", "augreg-vit-ti16-i1k-300ep", "finetune-bit-hyperrule"),
        "vit-digits",
        "mpp-vit-b16",
    ]


def test_recipes_as_json(capsys):
    rows = {row["recipe"]: row for row in json.loads(printed_by(capsys, "recipes", "--json"))}
    assert list(rows) == list(RECIPES)
    assert rows["finetune-vtab"] == {
        "recipe": "finetune-vtab",
        "group": "the paper, fine-tuning",
        "data": "vtab",
        "length": "2500 steps",
        "learning_rates": [0.01],
        "weight_decay": 0.0,
        "expected": 72.7,
        "measured": "ViT-L/16 from ImageNet-21k, mean of 19 tasks",
        "source": "Table 4, Table 9",
    }
    assert rows["vit-b16-i1k-300ep"]["learning_rates"] == [0.003]
    assert rows["vit-b16-i1k-300ep"]["weight_decay"] == 0.3
    assert rows["vit-b16-i1k-300ep"]["length"] == "300 epochs"
    assert rows["vit-l32-i21k-30ep"]["expected"] is None
    assert rows["vit-l32-i21k-30ep"]["source"] == "Table 3"
    assert rows["finetune-bit-hyperrule"] == {
        "recipe": "finetune-bit-hyperrule",
        "group": "Big Transfer",
        "data": "any",
        "length": "by the data",
        "learning_rates": [0.003],
        "weight_decay": 0.0,
        "expected": None,
        "measured": None,
        "source": "BiT",
    }
    assert (rows["vit-cifar10"]["group"], rows["vit-cifar10"]["length"]) == ("our own, for small data", "600 epochs")
    # Each group in one piece, so that a program may cut the list where it changes.
    assert len(list(groupby(row["group"] for row in rows.values()))) == 6


def test_data_sets_are_listed_one_per_line(capsys):
    out = printed_by(capsys, "datasets")
    for key, row in NAMED.items():
        counts = " ".join(f"{count:,}" for count in row.images.values())
        assert " ".join(line_of(out, key)) == f"{key} {row.name} {row.classes:,} {counts} {row.about}"


def test_data_sets_as_json(capsys):
    rows = {row["data"]: row for row in json.loads(printed_by(capsys, "datasets", "--json"))}
    assert list(rows) == list(NAMED)
    assert rows["oxford-pets"] == {
        "data": "oxford-pets",
        "name": "Oxford-IIIT Pets",
        "about": "cats and dogs by breed; train is the official trainval",
        "classes": 37,
        "images": {"train": 3_680, "test": 3_669},
        "official_split": True,
        "can_download": True,
        "megabytes": 811,
    }
    assert [key for key, row in rows.items() if not row["official_split"]] == [
        *("digits", "eurosat", "caltech101", "sun397"),
    ]
    assert [key for key, row in rows.items() if not row["can_download"]] == ["digits", "imagenet", "stanford-cars"]


def test_help_needs_no_torch():
    program = "import sys; from vitrail.cli import main\ntry: main(['list', '--help'])\nfinally: print(*sys.modules)"
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=60, check=False)
    assert "datasets" in done.stdout
    assert not {"torch", "datasets", "vitrail.data"} & set(done.stdout.splitlines()[-1].split())


def test_something_else_cannot_be_listed(capsys):
    with pytest.raises(SystemExit) as stopped:
        main(["list", "cats"])
    assert stopped.value.code == 2
    assert "'cats'" in capsys.readouterr().err
