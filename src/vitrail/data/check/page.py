"""A check as one HTML page that needs nothing but itself."""

from collections.abc import Iterable

from vitrail.config.decoding import DecodePolicy
from vitrail.data.check.charts import class_bars, size_map
from vitrail.data.check.findings import Duplicates, Findings, Place
from vitrail.data.check.page_style import LOGO, STYLE
from vitrail.data.check.thumbnails import Thumbnails
from vitrail.data.check.words import counted, number, path, text
from vitrail.data.sources.source import Source

GENERATOR = '<meta name="generator" content="vitrail data check">'
_GROUPS = 60
_IMAGES_PER_GROUP = 12
_ROWS = 300
_OPEN_ROWS = 12


def page(findings: Findings, splits: dict[str, Source], policy: DecodePolicy | None = None) -> str:
    """The whole document; the few images shown are read again from the splits."""
    writer = _Writer(findings, Thumbnails(splits, policy or DecodePolicy()))
    title = f"Check of {text(findings.data)}"
    return (
        '<!doctype html>\n<html lang="en"><head><meta charset="utf-8">'
        '<meta http-equiv="Content-Security-Policy" content="default-src \'none\'; img-src data:; '
        "style-src 'unsafe-inline'\">"
        f'{GENERATOR}<meta name="viewport" content="width=device-width, initial-scale=1">'
        f"<title>{title}</title><style>{STYLE}</style></head><body><main>"
        f"{''.join(writer.parts())}</main></body></html>\n"
    )


class _Writer:
    def __init__(self, findings: Findings, thumbnails: Thumbnails) -> None:
        self._findings, self._thumbnails = findings, thumbnails
        self._colours = {split: f"s{place % 3}" for place, split in enumerate(findings.splits)}

    def parts(self) -> Iterable[str]:
        found = self._findings
        yield self._header()
        yield self._cards()
        yield self._groups(
            "across",
            "Copies across splits",
            "The same picture is in more than one split: a model would be measured on what it was trained on.",
            found.across,
        )
        yield self._groups(
            "conflicts",
            "Equal pixels, different labels",
            "The same picture is said to show different things. At most one of the labels is right.",
            found.conflicts,
        )
        yield self._bad()
        yield self._class_faults()
        yield self._classes()
        yield self._sizes()
        yield self._groups(
            "within",
            "Copies inside a split",
            "Each copy counts again in training. What training holds out, and parts such as train[:90%], have all "
            "copies of an image or none; a split made elsewhere may not.",
            found.within,
        )
        yield self._frames()
        yield self._names()
        yield self._notes()
        near = "" if found.near is not None else " Near copies were not looked for."
        yield f"<footer>Made by <b>vitrail data check</b>. Nothing was written into the data folder.{near}</footer>"

    def _header(self) -> str:
        if self._findings.has_problems:
            verdict = '<span class="verdict bad">problems found</span>'
        elif self._findings.within:
            verdict = '<span class="verdict fine">no problems, but copies</span>'
        else:
            verdict = '<span class="verdict fine">clean</span>'
        splits = ", ".join(f"{text(split)} {number(count)}" for split, count in self._findings.splits.items())
        return f"<header>{LOGO}<div><h1>{text(self._findings.data)}</h1><p>{verdict} &nbsp;{splits}</p></div></header>"

    def _cards(self) -> str:
        found = self._findings
        cards = [
            ("", "", found.images, "image", "images"),
            ("", "classes", len(found.classes), "class", "classes"),
            ("bad", "across", len(found.across), "copied across splits", "copied across splits"),
            ("bad", "conflicts", len(found.conflicts), "picture with two labels", "pictures with two labels"),
            ("bad", "bad", len(found.bad), "file that cannot be used", "files that cannot be used"),
            ("bad", "faults", len(found.class_faults), "class at fault", "classes at fault"),
            ("warn", "within", len(found.within), "copied inside a split", "copied inside a split"),
            ("warn", "frames", len(found.several_frames), "animated or multi-page", "animated or multi-page"),
            ("warn", "names", len(found.strange_names), "strange name", "strange names"),
        ]
        return f'<div class="cards">{"".join(self._card(*card) for card in cards)}</div>'

    def _card(self, kind: str, anchor: str, count: int, one: str, many: str) -> str:
        # Zero bad files is worth saying; nothing else that was not found is.
        if not count and kind and anchor not in ("bad", "across"):
            return ""
        look = f"card {kind}" if count else "card"
        words = f"<b>{number(count)}</b><span>{one if count == 1 else many}</span>"
        link = anchor and count
        return f'<a class="{look}" href="#{anchor}">{words}</a>' if link else f'<div class="{look}">{words}</div>'

    def _bad(self) -> str:
        rows = [
            f'<tr><td>{self._chip(one.image.split)}</td><td class="path">{self._path(one.image.path)}</td>'
            f"<td>{_labels(one.image)}</td><td>{text(one.reason)}</td></tr>"
            for one in self._findings.bad[:_ROWS]
        ]
        table = _table("<th>split<th>file<th>class<th>why", rows)
        lead = "Training and measuring stop at these. <b>--skip-bad</b> leaves them out and says so."
        return self._section("bad", "Files that cannot be used", lead, table, len(self._findings.bad), _ROWS)

    def _class_faults(self) -> str:
        items = [
            f"<li>{self._chip(one.split)} <b>{text(one.name)}</b> {text(one.reason)}</li>"
            for one in self._findings.class_faults[:_ROWS]
        ]
        body = f"<ul>{''.join(items)}</ul>"
        lead = "Classes are matched by name. Training stops at these."
        return self._section("faults", "Classes at fault", lead, body, len(self._findings.class_faults), _ROWS)

    def _groups(self, anchor: str, title: str, lead: str, groups: tuple[Duplicates, ...]) -> str:
        body = f'<div class="groups">{"".join(self._group(group) for group in groups[:_GROUPS])}</div>'
        return self._section(anchor, title, lead, body, len(groups), _GROUPS, " groups")

    def _group(self, group: Duplicates) -> str:
        chips = [
            f'<span class="chip">{group.kind}</span>',
            f'<span class="chip">{counted(len(group.images), "image")}</span>',
        ]
        if group.labels_differ:
            chips.append('<span class="chip bad">labels differ</span>')
        shots = "".join(self._shot(place) for place in group.images[:_IMAGES_PER_GROUP])
        hidden = len(group.images) - _IMAGES_PER_GROUP
        more = f'<p class="more">and {counted(hidden, "more copy", "more copies")}</p>' if hidden > 0 else ""
        return f'<div class="group"><p>{"".join(chips)}</p><div class="shots">{shots}</div>{more}</div>'

    def _shot(self, place: Place) -> str:
        address = self._thumbnails.of(place)
        picture = f'<img alt="" src="{address}">' if address else '<span class="gone">no longer readable</span>'
        return (
            f'<figure><div class="frame">{picture}</div><figcaption>{self._chip(place.split)}'
            f'<b>{_labels(place)}</b><span class="path">{self._path(place.path)}</span></figcaption></figure>'
        )

    def _classes(self) -> str:
        lead = "Images of each class, all splits together."
        bars = class_bars(self._findings.classes, self._findings.splits)
        return self._section("classes", "Class balance", lead, bars, len(self._findings.classes))

    def _sizes(self) -> str:
        sizes, found = self._findings.sizes, self._findings
        if sizes is None:
            return ""
        rows = [
            ("width", " / ".join(map(number, sizes.width))),
            ("height", " / ".join(map(number, sizes.height))),
            *((text(name), number(count)) for name, count in found.formats.items()),
        ]
        body = "".join(f'<tr><td>{name}</td><td class="n">{value}</td></tr>' for name, value in rows)
        table = f"<table><tr><th>smallest / median / largest, then formats<th></tr>{body}</table>"
        lead = "Pixels after EXIF rotation. The dotted line is a square image."
        return self._section("sizes", "Sizes and formats", lead, f'<div class="two">{size_map(sizes)}{table}</div>', 1)

    def _frames(self) -> str:
        places = self._findings.several_frames
        body = f"<ul>{''.join(f'<li class=path>{self._path(one.path)}</li>' for one in places[:_ROWS])}</ul>"
        lead = "Of each, the first frame is used."
        return self._section("frames", "Animated and multi-page files", lead, body, len(places), _ROWS)

    def _names(self) -> str:
        names = self._findings.strange_names
        rows = [
            f'<tr><td class="path">{self._path(one.path)}</td><td>{text(one.reason)}</td></tr>' for one in names[:_ROWS]
        ]
        lead = "They work here and may not elsewhere: in archives, on other systems, in scripts."
        return self._section("names", "Strange names", lead, _table("<th>name<th>why", rows), len(names), _ROWS)

    def _notes(self) -> str:
        items = "".join(f"<li>{text(note)}</li>" for note in self._findings.notes[:_ROWS])
        return self._section("notes", "Notes", "", f"<ul>{items}</ul>", len(self._findings.notes), _ROWS)

    def _section(
        self, anchor: str, title: str, lead: str, body: str, count: int, shown: int | None = None, things: str = ""
    ) -> str:
        if not count:
            return ""
        hidden = count - shown if shown else 0
        more = f'<p class="more">and {number(hidden)} more{things}; --json lists them all</p>' if hidden > 0 else ""
        words = f'<p class="lead">{lead}</p>' if lead else ""
        return f'<section id="{anchor}"><h2>{title}</h2>{words}{body}{more}</section>'

    def _chip(self, split: str) -> str:
        return f'<span class="chip {self._colours.get(split, "")}">{text(split)}</span>'

    def _path(self, value: str) -> str:
        return path(value, self._findings.data)


def _table(heads: str, rows: list[str]) -> str:
    """A table of which a long tail is folded away."""
    first, rest = rows[:_OPEN_ROWS], rows[_OPEN_ROWS:]
    tail = (
        f"<details><summary>{number(len(rest))} more</summary><table><tr>{heads}</tr>{''.join(rest)}</table></details>"
        if rest
        else ""
    )
    return f"<table><tr>{heads}</tr>{''.join(first)}</table>{tail}"


def _labels(place: Place) -> str:
    return text(", ".join(place.labels))
