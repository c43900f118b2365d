"""The page: one file that asks nothing of the network, in which every name is text."""

import html.parser
import re
from pathlib import Path

import pytest
from tests.data.check.scenes import make_folder, scene
from tests.data.pictures import encoded

from vitrail.data.check import check, open_splits
from vitrail.data.check.page import page

CLASSES = ("<script>alert(1)</script>".replace("/", "∕"), '"quo\'te"', "고양이", "👩‍👩‍👧", "&amp;")


class Reader(html.parser.HTMLParser):
    """Checks that tags close and gathers what a browser would act on."""

    VOID = frozenset({"meta", "img", "wbr", "path", "rect", "th"})

    def __init__(self, text: str) -> None:
        super().__init__()
        self.open: list[str] = []
        self.tags: list[tuple[str, dict[str, str | None]]] = []
        self.words: list[str] = []
        self.feed(text)
        self.close()

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append((tag, dict(attrs)))
        if tag not in self.VOID:
            self.open.append(tag)

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append((tag, dict(attrs)))

    def handle_endtag(self, tag: str) -> None:
        if tag not in self.VOID:
            assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        if self.open[-1:] != ["style"]:
            self.words.append(data)

    def attributes(self, name: str) -> list[str]:
        return [attributes[name] or "" for _, attributes in self.tags if name in attributes]


@pytest.fixture(scope="module")
def folder(tmp_path_factory) -> Path:
    data = make_folder(tmp_path_factory.mktemp("page") / "da<t>a", {"train": 20, "val": 10}, CLASSES)
    home = data / "train" / CLASSES[0]
    (home / "<img src=x onerror=alert(1)>.jpg").write_bytes(b"")
    (home / "line\nbreak\u202e.jpg").write_bytes(b"")
    (data / "val" / CLASSES[1] / "leak.jpg").write_bytes(encoded(scene(0), "JPEG", quality=50))
    (data / "train" / CLASSES[3] / "same.png").write_bytes(encoded(scene(40), "PNG"))
    (data / "train" / CLASSES[2] / "same.png").write_bytes(encoded(scene(40), "PNG"))
    frames = [scene(41), scene(42)]
    (data / "train" / CLASSES[2] / "frames.gif").write_bytes(
        encoded(scene(43), "GIF", save_all=True, append_images=frames)
    )
    (data / "train" / "<i>empty").mkdir()
    return data


@pytest.fixture(scope="module")
def text(folder) -> str:
    splits = open_splits(folder)
    return page(check(splits, workers=0), splits)


def test_tags_close_and_nothing_is_fetched(text):
    reader = Reader(text)
    assert reader.open == []
    addresses = reader.attributes("src") + reader.attributes("href")
    assert addresses
    assert all(address.startswith(("data:image/jpeg;base64,", "#")) for address in addresses)
    assert not re.search(r"https?:|@import|url\(", text)
    policies = [tag for _, tag in reader.tags if tag.get("http-equiv") == "Content-Security-Policy"]
    assert [tag["content"] for tag in policies] == ["default-src 'none'; img-src data:; style-src 'unsafe-inline'"]


def test_names_are_text_and_never_markup(text):
    reader = Reader(text)
    tags = {tag for tag, _ in reader.tags}
    assert not tags & {"script", "iframe", "object", "link", "form", "input"}
    assert not [name for _, attributes in reader.tags for name in attributes if name.startswith("on")]
    assert [tag for tag, attributes in reader.tags if tag == "img" and not attributes["src"].startswith("data:")] == []
    words = "".join(reader.words)
    for name in CLASSES:
        assert name in words
    assert "<img src=x onerror=alert(1)>.jpg" in words
    assert r"line\x0abreak\u202e.jpg" in words
    assert "<i>empty" in words


def test_every_link_inside_leads_somewhere(text):
    reader = Reader(text)
    anchors = set(reader.attributes("id"))
    links = reader.attributes("href")
    assert {"#across", "#bad", "#conflicts", "#frames", "#names", "#classes", "#faults"} <= set(links)
    assert {link[1:] for link in links} <= anchors


def test_it_says_what_was_found(text):
    words = "".join(Reader(text).words)
    for told in (
        "problems found",
        "Copies across splits",
        "Equal pixels, different labels",
        "labels differ",
        "Files that cannot be used",
        "the file is empty",
        "Class balance",
        "Sizes and formats",
        "Animated and multi-page files",
        "has no images",
    ):
        assert told in words
    assert text.count("<img ") == 4
    assert "<svg" in text


def test_a_clean_page_has_no_sections_of_problems(tmp_path):
    splits = open_splits(make_folder(tmp_path / "data", {"": 6}))
    made = page(check(splits, workers=0, near=False), splits)
    words = "".join(Reader(made).words)
    assert "clean" in words
    assert "problems found" not in words
    assert 'id="bad"' not in made
    assert "<img" not in made
    assert "Near copies were not looked for." in words


def test_the_page_stays_small_and_says_what_it_leaves_out(tmp_path):
    data = make_folder(tmp_path / "data", {"": 2})
    picture = encoded(scene(0), "PNG")
    for number in range(30):
        (data / "cat" / f"same-{number}.png").write_bytes(picture)
    for number in range(70):
        for copy in "ab":
            (data / "dog" / f"{number}{copy}.png").write_bytes(encoded(scene(1000 + number, (40, 40)), "PNG"))
    for number in range(320):
        (data / "cat" / f"empty-{number}.jpg").touch()
    splits = open_splits(data)
    made = page(check(splits, workers=0), splits)
    words = "".join(Reader(made).words)
    assert "and 12 more groups; --json lists them all" in words
    assert "and 18 more copies" in words
    assert "and 20 more; --json" in words
    assert made.count("<img ") == 12 + 59 * 2
    assert len(made) < 2_000_000


def test_many_classes_are_cut_in_the_middle(tmp_path):
    data = make_folder(tmp_path / "data", {"": 100}, tuple(f"class {number}" for number in range(100)))
    splits = open_splits(data)
    made = page(check(splits, workers=0, near=False), splits)
    assert "40 classes in between are in the JSON" in "".join(Reader(made).words)
    assert made.count('class="bar"') == 60


def test_a_file_that_has_gone_is_told(folder):
    splits = open_splits(folder)
    findings = check(splits, workers=0)
    (folder / "val" / CLASSES[1] / "leak.jpg").rename(folder / "val" / CLASSES[1] / "moved.jpg")
    try:
        assert "no longer readable" in "".join(Reader(page(findings, splits)).words)
    finally:
        (folder / "val" / CLASSES[1] / "moved.jpg").rename(folder / "val" / CLASSES[1] / "leak.jpg")


def test_nothing_that_could_be_decoded(tmp_path):
    (tmp_path / "data" / "a").mkdir(parents=True)
    (tmp_path / "data" / "a" / "x.jpg").touch()
    splits = open_splits(tmp_path / "data")
    made = page(check(splits, workers=0), splits)
    assert Reader(made).open == []
    assert '<svg class="sizes"' not in made
