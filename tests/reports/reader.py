"""What a browser would make of a page."""

import html.parser


class Reader(html.parser.HTMLParser):
    """Checks that tags close, and gathers tags, words and what stands in scripts."""

    VOID = frozenset({"meta", "img", "wbr", "br", "th", "path", "rect", "circle"})

    def __init__(self, text: str) -> None:
        super().__init__()
        self.open: list[str] = []
        self.tags: list[tuple[str, dict[str, str | None]]] = []
        self.scripts: list[str] = []
        self.styles: list[str] = []
        self._words: list[str] = []
        self.feed(text)
        self.close()

    @property
    def words(self) -> str:
        return "".join(self._words)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append((tag, dict(attrs)))
        # A strip or a mark holds its title; any other of these stands alone and ends itself.
        if tag not in self.VOID or tag in ("rect", "path"):
            self.open.append(tag)

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append((tag, dict(attrs)))

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        inside = self.open[-1] if self.open else ""
        {"script": self.scripts, "style": self.styles}.get(inside, self._words).append(data)

    def attributes(self, name: str) -> list[str]:
        return [attributes[name] or "" for _, attributes in self.tags if name in attributes]

    def inside(self, section: str, name: str) -> list[str]:
        """The attributes of this name in one part of the page."""
        found, where = [], ""
        for tag, attributes in self.tags:
            where = attributes.get("id") or "" if tag == "section" else where
            if where == section and name in attributes:
                found.append(attributes[name] or "")
        return found

    def sections(self) -> list[str]:
        return [attributes["id"] or "" for tag, attributes in self.tags if tag == "section" and "id" in attributes]
