"""The model card: true, complete, and not to be broken by what it quotes."""

import dataclasses

import pytest
import yaml

import vitrail
from vitrail.config import preset
from vitrail.weights.card import model_card, plain
from vitrail.weights.checkpoint import Checkpoint, from_model

HOSTILE = (
    "고양이",
    "<script>alert(1)</script>",
    "a | b",
    "---\nkey: x",
    "```python\nimport os",
    "line\r\n\u2028\x00end",
    "[link](https://example.com) *bold* _it_ ~~no~~ $x$",
    "C:\\new\\",
    "\ud800",
    "x" * 500,
)


def checkpoint(key: str = "vit-test", **facts) -> Checkpoint:
    return dataclasses.replace(from_model(vitrail.create_model(key, num_classes=10)), **facts)


def front_matter(card: str) -> dict:
    opening, text, _ = card.split("---\n", 2)
    assert opening == ""
    return yaml.safe_load(text)


def row(card: str, name: str) -> str:
    return next(line for line in card.splitlines() if line.startswith(f"| {name} |")).removeprefix(f"| {name} | ")[:-2]


def test_the_front_matter() -> None:
    assert front_matter(model_card(checkpoint())) == {
        "library_name": "vitrail",
        "pipeline_tag": "image-classification",
        "license": "other",
        "tags": ["vitrail", "image-classification", "vision-transformer"],
    }


@pytest.mark.parametrize(
    ("provenance", "licence"),
    [
        ({"licence": "apache-2.0"}, "apache-2.0"),
        ({"license": "mit"}, "mit"),
        ({"licence": "no"}, "no"),
        ({"licence": "mit\ntags: [x]"}, "other"),
        ({"licence": ["mit"]}, "other"),
        ({"licence": "Apache License, Version 2.0"}, "other"),
    ],
)
def test_the_licence_of_the_provenance(provenance, licence) -> None:
    assert front_matter(model_card(checkpoint(provenance=provenance)))["license"] == licence


def test_facts_use_and_preprocessing() -> None:
    made = checkpoint(preprocessing=preset("augreg"), labels=tuple("abcdefghij"))
    card = model_card(made, "hf-hub:owner/name")
    config = made.config
    assert row(card, "parameters") == f"{sum(tensor.numel() for tensor in made.state.values()):,}"
    assert f"{config.depth} blocks, width {config.width}, {config.num_heads} heads" in row(card, "encoder")
    assert row(card, "head") == "class token, 10 classes"
    assert 'model = vitrail.load_model("hf-hub:owner/name")' in card
    assert "$ vitrail info hf-hub:owner/name" in card
    assert "bicubic resize, centre crop of 0.9 of the short side; mean (0.5, 0.5, 0.5), std (0.5, 0.5, 0.5)." in card
    assert "10 classes:" in card
    assert (row(card, "0"), row(card, "9")) == ("a", "j")
    assert "## Provenance" not in card
    assert "## Metrics" not in card


def test_the_python_of_the_card_runs(tmp_path) -> None:
    vitrail.save_model(vitrail.create_model("vit-test"), tmp_path / "model")
    card = model_card(checkpoint(), str(tmp_path / "model"))
    names: dict = {}
    exec(card.split("```python\n")[1].split("```")[0], names)
    assert names["logits"].shape == (1, 10)


def test_what_is_not_known_is_said() -> None:
    card = model_card(checkpoint())
    assert "Not recorded: say it with `preprocessing=`" in card
    assert "10 classes without recorded names." in card
    headless = model_card(from_model(vitrail.create_model("vit-test", num_classes=0)))
    assert "no classes" in headless and "features = model(" in headless and "classifier" not in headless
    assert front_matter(headless)["pipeline_tag"] == "image-feature-extraction"


def test_a_squash_without_antialiasing() -> None:
    card = model_card(checkpoint(preprocessing=preset("google")))
    assert "bilinear resize without antialiasing, squashed to the input size" in card


def test_only_the_first_labels_are_listed() -> None:
    made = from_model(vitrail.create_model("vit-test", num_classes=1000))
    card = model_card(dataclasses.replace(made, labels=tuple(f"label {number}" for number in range(1000))))
    assert "1,000 classes; the first 10:" in card
    assert "label 9" in card
    assert "label 10" not in card


def test_provenance_and_metrics() -> None:
    provenance = {"hub": "timm/x", "style": {"prefix": "opt/target"}, "steps": 3}
    card = model_card(checkpoint(provenance=provenance, metrics={"top1": 0.75}))
    assert row(card, "hub") == "timm/x"
    assert row(card, "style") == r'\{"prefix": "opt/target"\}'
    assert row(card, "steps") == "3"
    assert row(card, "top1") == "0.75"


@pytest.mark.parametrize("key", ["r-vit-ti16", "bit-r50x1"])
def test_other_families(key) -> None:
    card = model_card(checkpoint(key))
    assert ("# BiT ResNet, 3+4+6+3 units" if key.startswith("bit") else "# Hybrid Vision Transformer, 12") in card
    assert row(card, "head").endswith("10 classes")


def test_hostile_text_breaks_nothing() -> None:
    quiet, loud = (
        model_card(checkpoint(labels=labels, provenance={label: label for label in labels}, metrics={"m": labels[1]}))
        for labels in (tuple("abcdefghij"), HOSTILE)
    )
    assert front_matter(loud) == front_matter(quiet)
    assert len(loud.splitlines()) == len(quiet.splitlines()), "no label starts a line of its own"
    assert loud.count("```") == quiet.count("```")
    assert loud.count("\n---\n") == 1
    assert "<script" not in loud
    assert "고양이" in loud
    assert loud.encode("utf-8")
    assert "\r" not in loud
    for line in loud.splitlines():
        if line.startswith("| "):
            assert line.replace("\\\\", "").replace("\\|", "").count("|") == 3, line


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("a | b", r"a \| b"),
        ("---\nkey: x", "--- key: x"),
        ("`x`", r"\`x\`"),
        ("<b>&amp;", "&lt;b&gt;&amp;amp;"),
        ("a\\", r"a\\"),
        ("고양이 🐈", "고양이 🐈"),
        (None, "null"),
        (0.5, "0.5"),
    ],
)
def test_plain_text(text, shown) -> None:
    assert plain(text) == shown


def test_the_lineage_of_a_student_is_told_teacher_by_teacher() -> None:
    first = {"recipe": "vit-digits", "data": "digits | <b>"}
    taught = {"teacher": "runs/a", "teacher_fingerprint": "0123456789abcdef", "labels": "soft", "images": 12}
    second = {"recipe": "vit-digits", "taught": {**taught, "teacher_provenance": first}}
    third = {"recipe": "vit-digits", "taught": {**taught, "teacher": "runs/b", "teacher_provenance": second}}
    card = model_card(checkpoint(provenance=third))
    lines = card.partition("## Lineage")[2].partition("##")[0].strip().splitlines()
    assert [line[:20] for line in lines] == ["1. Taught by runs/b ", "2. Taught by runs/a ", "3. That teacher: vit"]
    assert "0123456789ab)" in lines[0] and "soft labels" in lines[0] and "&lt;b&gt;" in lines[2]
    assert "taught" not in card.partition("## Provenance")[2]


@pytest.mark.parametrize("taught", [None, "nonsense", 3, {}, {"teacher_provenance": [1]}])
def test_any_lineage_makes_a_card(taught) -> None:
    assert "## Provenance" in model_card(checkpoint(provenance={"recipe": "x", "taught": taught}))
