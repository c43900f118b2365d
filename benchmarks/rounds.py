"""From seconds per round to medians, spreads and paired ratios, and to Markdown."""

import statistics
from collections.abc import Iterable
from dataclasses import dataclass

from agreement import Agreement
from peers import OURS

_EXPLANATION = """\
Median over the rounds; the spread is the distance between the quartiles over the median. The ratio is our speed over
theirs, taken in each round and then the median with its quartiles: above 1 ours is faster. vit-pytorch's network is of
equal size but another function (two more LayerNorms, no biases of q, k and v, no fused attention): timed only."""


@dataclass(frozen=True, kw_only=True)
class Case:
    """One network in one mode, eager or compiled, at one batch size."""

    model: str
    mode: str
    compiled: bool
    batch: int

    def __str__(self) -> str:
        return f"{self.model}, {self.mode}, {'compiled' if self.compiled else 'eager'}, batch {self.batch}"


@dataclass(frozen=True, kw_only=True)
class Result:
    """What was measured of every contender of a case."""

    case: Case
    seconds: dict[str, list[float]]
    """Per iteration, one number for each round."""
    memory: dict[str, int | None]
    left_out: dict[str, str]
    """Peers that took no part, and why."""


def ratios(result: Result, peer: str) -> list[float]:
    """Our speed over the peer's in each round: above 1 ours is faster."""
    return [theirs / ours for ours, theirs in zip(result.seconds[OURS], result.seconds[peer], strict=True)]


def case_section(result: Result) -> str:
    """A table of every contender, the fastest first."""
    names = sorted(result.seconds, key=lambda name: statistics.median(result.seconds[name]))
    memory = any(result.memory.values())
    heads = ["library", "ms per step", "images/s", "spread", "ours / theirs", *(["peak memory"] if memory else [])]
    rows = [_contender_row(result, name, memory) for name in names]
    notes = [f"{name} is left out: {reason}." for name, reason in result.left_out.items()]
    return "\n\n".join([f"### {result.case}", _table(heads, rows), *notes])


def summary_section(results: Iterable[Result]) -> str:
    """Ours beside the fastest peer of every case."""
    rows = []
    for result in results:
        # The second copy of ours shows the noise; it is no peer.
        peers = {name: seconds for name, seconds in result.seconds.items() if not name.startswith(OURS)}
        if not peers:
            continue
        fastest = min(peers, key=lambda name: statistics.median(peers[name]))
        speed = result.case.batch / statistics.median(result.seconds[OURS])
        rows.append([str(result.case), f"{speed:,.1f}", fastest, _quartiles(ratios(result, fastest))])
    heads = ["case", "our images/s", "fastest peer", "ours / theirs"]
    return "\n\n".join(["## Ours beside the fastest peer", _table(heads, rows)]) if rows else ""


def agreement_section(agreements: Iterable[Agreement]) -> str:
    """How close our network with each peer's weights is to the peer."""
    rows = [
        [each.model, each.peer, f"{each.logits:.1e}", f"{each.magnitude:.2f}", f"{each.gradient:.1e}"]
        for each in agreements
    ]
    heads = ["network", "peer", "largest logit difference", "largest logit", "gradient, relative"]
    text = "Our network with the peer's own weights and numerics against the peer, in float32 on the CPU."
    return "\n\n".join(["## The same function", text, _table(heads, rows)]) if rows else ""


def document(facts: dict[str, str], agreements: list[Agreement], results: list[Result]) -> str:
    """The whole results file."""
    listed = "\n".join(f"- {name}: {value}" for name, value in facts.items())
    cases = "\n\n".join(["## Every contender", _EXPLANATION, *map(case_section, results)])
    sections = [
        "# Speed beside other libraries",
        listed,
        summary_section(results),
        agreement_section(agreements),
        cases,
    ]
    return "\n\n".join(section for section in sections if section) + "\n"


def _contender_row(result: Result, name: str, memory: bool) -> list[str]:
    seconds = result.seconds[name]
    median = statistics.median(seconds)
    row = [
        name,
        f"{median * 1000:,.2f}",
        f"{result.case.batch / median:,.1f}",
        f"{_spread(seconds):.1%}",
        "" if name == OURS else _quartiles(ratios(result, name)),
    ]
    if memory:
        used = result.memory[name]
        row.append("" if used is None else f"{used / 2**30:.2f} GiB")
    return row


def _spread(values: list[float]) -> float:
    """The distance between the quartiles over the median."""
    lower, middle, upper = _three(values)
    return (upper - lower) / middle


def _quartiles(values: list[float]) -> str:
    lower, middle, upper = _three(values)
    return f"{middle:.3f} ({lower:.3f} to {upper:.3f})"


def _three(values: list[float]) -> tuple[float, float, float]:
    if len(values) == 1:
        return values[0], values[0], values[0]
    lower, middle, upper = statistics.quantiles(values, n=4, method="inclusive")
    return lower, middle, upper


def _table(heads: list[str], rows: list[list[str]]) -> str:
    lines = [heads, ["---"] * len(heads), *rows]
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)
