"""How good a model is class by class."""

import numpy as np

from vitrail.data.check.words import counted, number, text
from vitrail.reports.cells import NO_CELLS, Cells
from vitrail.reports.confusion import MOST_CLASSES, heat_map, pairs_table, worst_pairs
from vitrail.reports.numbers import percent

_ROWS = 1000


def class_parts(table: np.ndarray, classes: tuple[str, ...], cells: Cells = NO_CELLS) -> str:
    """The confusions, whose cells lead to their images, then a table of all classes."""
    pairs = worst_pairs(table)
    few = len(classes) <= MOST_CLASSES
    listed = pairs[:10] if few else pairs
    words = pairs_table(listed, classes, cells.link) if pairs else '<p class="lead">No image is wrong.</p>'
    panels = cells.html if cells.panels else ""
    if few:
        # A wide map gets a line of its own.
        look = "beside" if len(classes) <= 20 else "above"
        drawn = heat_map(table, classes, cells.link)
        shown = f'<div class="{look} confusions">{drawn}<div class="told">{words}{panels}</div></div>'
    else:
        lead = f"{len(classes):,} classes are too many for a map: these are the most frequent confusions."
        shown = f'<p class="lead">{lead}</p><div class="confusions"><div class="told">{words}{panels}</div></div>'
    return f"{shown}{_every_class(table, classes)}"


def class_accuracy(table: np.ndarray) -> np.ndarray:
    """Share of each class that is right; nan for a class without images."""
    totals = table.sum(axis=1)
    return np.divide(np.diag(table), totals, out=np.full(len(table), np.nan), where=totals > 0)


def _every_class(table: np.ndarray, classes: tuple[str, ...]) -> str:
    shares, there = class_accuracy(table), np.flatnonzero(table.sum(axis=1))
    # The worst first; among equals the larger class.
    order = sorted(there.tolist(), key=lambda one: (shares[one], -int(table[one].sum()), one))
    rows = "".join(_row(one, table, shares[one], classes) for one in order[:_ROWS])
    heads = (
        '<th><button>class</button><th class="n"><button>images</button><th class="n"><button>right</button>'
        '<th><button>accuracy</button><th class="n"><button>right when guessed</button>'
        "<th><button>most often taken for</button>"
    )
    empty = len(classes) - len(order)
    hidden = [
        *(
            [f"{counted(len(order) - _ROWS, 'better class is', 'better classes are')} left out."]
            if len(order) > _ROWS
            else []
        ),
        *([f"{counted(empty, 'class has', 'classes have')} no image here."] if empty else []),
    ]
    more = f'<p class="more">{" ".join(hidden)}</p>' if hidden else ""
    return (
        "<h3>Every class, the worst first</h3>"
        f'<div class="scroll"><table class="sortable"><thead><tr>{heads}</tr></thead><tbody>{rows}</tbody></table>'
        f"</div>{more}"
    )


def _row(one: int, table: np.ndarray, share: float, classes: tuple[str, ...]) -> str:
    total, right, guessed = int(table[one].sum()), int(table[one, one]), int(table[:, one].sum())
    wrong = table[one].copy()
    wrong[one] = 0
    worst = int(wrong.argmax())
    taken = f"{text(classes[worst])} <span>({number(int(wrong[worst]))})</span>" if wrong[worst] else ""
    precision = f'<td class="n" data-v="{right / guessed:.6f}">{percent(right / guessed)}</td>' if guessed else None
    meter = (
        '<svg class="meter" viewBox="0 0 100 8" preserveAspectRatio="none" aria-hidden="true">'
        f'<rect class="back" width="100" height="8"/><rect class="hit" width="{100 * share:.1f}" height="8"/></svg>'
    )
    return (
        f'<tr><td>{text(classes[one])}</td><td class="n" data-v="{total}">{number(total)}</td>'
        f'<td class="n" data-v="{right}">{number(right)}</td>'
        f'<td class="share" data-v="{share:.6f}">{meter}{percent(share)}</td>'
        f"{precision or '<td class=n data-v=-1>never guessed</td>'}"
        f"<td>{taken}</td></tr>"
    )
