"""What the page says is said in every language."""

import importlib
import inspect
import re
from pathlib import Path

import vitrail.serving

PAGE = Path(vitrail.serving.__file__).parent / "page"


def words(language: str) -> dict[str, str]:
    text = (PAGE / f"words.{language}.js").read_text(encoding="utf-8")
    return dict(re.findall(r'(?:^|[\s{,])(\w+): "((?:[^"\\]|\\.)*)"', text))


def test_both_languages_say_the_same_things() -> None:
    english, korean = words("en"), words("ko")
    assert len(english) > 150
    assert english.keys() == korean.keys()
    for name, text in english.items():
        assert set(re.findall(r"\{\w+\}", text)) == set(re.findall(r"\{\w+\}", korean[name])), name


def test_korean_is_korean() -> None:
    same = {name for name, text in words("ko").items() if not re.search("[가-힣]", text)}
    # Names of file formats, and a number with its range.
    assert same == {"savePicture", "saveNumbers", "layerOf"}


def test_every_name_that_is_asked_for_is_there() -> None:
    known = words("en")
    for path in [*PAGE.glob("*.js"), PAGE / "index.html"]:
        text = path.read_text(encoding="utf-8")
        asked = re.findall(r'\bsay\("(\w+)"', text) + re.findall(r'data-(?:word|label)="(\w+)"', text)
        assert [name for name in asked if name not in known] == [], path.name


def test_the_code_beside_each_equation_is_there_and_computes_it() -> None:
    text = (PAGE / "view-equations.js").read_text(encoding="utf-8")
    named = dict(re.findall(r'name: (?:\w+\.class_token \? |POSITION_ROWS\[.*?\]|)"?(\w*)"?.*?code: (.*?) \}', text))
    assert set(named) == {"cut", "project", "class", "", "heads", "residual", "mlp", "read", "answer"}
    # What each part has to say of itself, in the notation of the paper.
    computes = {
        "cut": "projection(features)",
        "project": "projection(features)",
        "class": "self.class_token",
        "": "z + self.positions[0]()",
        "heads": "torch.softmax(",
        "residual": "z + self.skip(self.dropout(self.attention(",
        "mlp": "self.contract(",
        "read": ("self.output(", "tokens[:, 0]"),
        "answer": "self.head(self.features(images))",
    }
    for step, code in named.items():
        parts = re.findall(r'\["models/(\w+)\.py", "(\w+)\.(\w+)"\]', code)
        lines = [computes[step]] if isinstance(computes[step], str) else computes[step]
        assert len(parts) == len(lines), step
        for (module, owner, function), line in zip(parts, lines, strict=True):
            found = getattr(vars(importlib.import_module(f"vitrail.models.{module}"))[owner], function)
            assert line in inspect.getsource(found), step


def test_nothing_comes_from_outside() -> None:
    for path in PAGE.iterdir():
        text = path.read_text(encoding="utf-8")
        addresses = {address for address in re.findall(r"https?://[^\s\"'<>)]+", text) if "www.w3.org" not in address}
        assert not addresses, path.name
        assert "innerHTML" not in text and "insertAdjacentHTML" not in text and "eval(" not in text, path.name
    page = (PAGE / "index.html").read_text(encoding="utf-8")
    assert "style=" not in page and "<style" not in page and not re.search(r"<script(?![^>]*\bsrc=)", page)
