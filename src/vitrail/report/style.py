"""How the page of a run looks: the sheet of the data check, and what only a run has."""

from vitrail.data.check.page_style import STYLE as SHEET

CHARTS = """
.plot { display: block; max-width: 100%; height: auto; overflow: visible; }
.plot text {
  fill: var(--soft); font-size: 11px; font-variant-numeric: tabular-nums;
  font-family: system-ui, -apple-system, "Segoe UI", Roboto, "Apple SD Gothic Neo", "Noto Sans KR", sans-serif;
}
.plot text.title { fill: var(--ink); font-size: 13px; font-weight: 600; }
.plot text.told {
  fill: var(--s1); font-weight: 600; paint-order: stroke; stroke: var(--card); stroke-width: 4px;
}
.plot text.on { fill: var(--card); font-weight: 600; } .plot text.off { fill: var(--ink); }
.plot .grid { stroke: var(--line); fill: none; } .plot .axis { stroke: var(--soft); fill: none; }
.plot path.epoch { stroke: var(--soft); } .plot text.epoch { opacity: .8; }
.plot .event { stroke: var(--bad); stroke-width: 1.5; stroke-dasharray: 3 3; fill: none; }
.plot .line { fill: none; stroke-width: 1.8; stroke-linejoin: round; stroke-linecap: round; }
.plot .line.s0 { stroke: var(--s0); } .plot .line.s1 { stroke: var(--s1); } .plot .line.s2 { stroke: var(--s2); }
.plot .dots.s0 { fill: var(--s0); } .plot .dots.s1 { fill: var(--s1); } .plot .dots.s2 { fill: var(--s2); }
.plot .star { fill: none; stroke: var(--s1); stroke-width: 2; }
.plot .strip { fill: var(--ink); fill-opacity: 0; } .plot .strip:hover { fill-opacity: .07; }
.plot .hit, .meter .hit { fill: var(--s0); } .plot .miss { fill: var(--bad); }
.plot .sheet { fill: var(--card); }
.plot .track { fill: var(--track); } .plot .gap { fill: var(--s1); fill-opacity: .75; }
.plot .modest { fill: var(--s0); fill-opacity: .35; }
.plot .few { fill: var(--soft); fill-opacity: .5; } .plot .span { stroke: var(--ink); stroke-opacity: .6; fill: none; }
.plot .ideal { stroke: var(--soft); stroke-dasharray: 4 4; fill: none; }
.plot text.value { fill: var(--ink); }
"""

PAGE = """
h1 .on { color: var(--soft); font-weight: 400; }
h3 { font-size: 15px; margin: 26px 0 8px; }
.verdict.open { background: var(--warn-soft); color: var(--warn); }
.hero { padding: 26px 28px 10px; }
.score { display: flex; flex-wrap: wrap; align-items: center; gap: 6px 22px; }
.score b { font-size: 68px; line-height: 1; letter-spacing: -0.04em; font-weight: 700; color: var(--accent); }
.score small { font-size: 32px; font-weight: 500; letter-spacing: 0; margin-left: 4px; }
.score p { margin: 0; font-size: 17px; } .score span { color: var(--soft); font-size: 13.5px; }
.score + .cards { margin-top: 20px; }
.how { margin: 16px 0 20px; max-width: 72ch; }
.hero .cards { margin-bottom: 16px; grid-template-columns: repeat(auto-fit, minmax(140px, 1fr)); }
.hero .card { background: var(--paper); } .hero .card b { font-size: 21px; }
.hero .card span { display: block; line-height: 1.35; margin-top: 3px; }
.charts { display: grid; grid-template-columns: 1fr 1fr; gap: 22px 24px; }
.charts + .charts { grid-template-columns: 1fr 1fr 1fr; margin-top: 22px; }
.charts .plot { width: 100%; }
.beside { display: flex; flex-wrap: wrap; gap: 20px 36px; align-items: flex-start; }
.beside .matrix { flex: none; } .beside table { flex: 1; width: auto; min-width: 260px; }
.above .matrix { margin-bottom: 20px; }
td, figcaption { word-break: keep-all; } .sortable td:first-child, .pairs td { min-width: 76px; }
th.n { text-align: right; padding-right: 0; } td.n, th.n { padding-left: 14px; }
.scroll { max-height: 460px; overflow: auto; }
.scroll th { position: sticky; top: 0; background: var(--card); box-shadow: inset 0 -1px var(--line); }
.sortable td, .sortable th { padding-right: 22px; } .sortable td:last-child span { color: var(--soft); }
th button { all: unset; cursor: pointer; } th button:hover { color: var(--ink); }
th button:focus-visible { outline: 2px solid var(--accent); outline-offset: 2px; }
th button[data-order]::after { content: " \\2191"; } th button[data-order=up]::after { content: " \\2193"; }
.share { white-space: nowrap; font-variant-numeric: tabular-nums; }
.meter { width: 110px; height: 8px; border-radius: 4px; margin-right: 10px; vertical-align: 1px; }
.meter .back { fill: var(--track); }
.shots figure { width: 144px; break-inside: avoid; } .shots { gap: 20px 16px; }
.shots .frame { height: 128px; } .shots img.pixels { height: 112px; image-rendering: pixelated; }
figcaption .truth { display: block; font-weight: 600; }
figcaption .truth::before { content: "is "; color: var(--soft); font-weight: 400; }
figcaption .guess { display: block; color: var(--bad); }
figcaption .guess::before { content: "taken for "; color: var(--soft); }
figcaption .guess i { font-style: normal; color: var(--soft); }
pre.command {
  background: var(--track); border-radius: 8px; padding: 10px 14px; margin: 0 0 12px; font-size: 13px;
  font-family: ui-monospace, "SF Mono", Menlo, "DejaVu Sans Mono", monospace;
  white-space: pre-wrap; overflow-wrap: anywhere;
}
.facts td:first-child { color: var(--soft); width: 190px; }
.next { display: grid; gap: 4px; margin: 0; } .next dd { margin: 0 0 10px; color: var(--soft); }
.next pre { margin: 0 0 2px; }
@media screen and (max-width: 860px) { .charts, .charts + .charts { grid-template-columns: 1fr; } }
@media print {
  .charts { grid-template-columns: 1fr 1fr; } .charts .plot, .matrix { break-inside: avoid; }
  .scroll { max-height: none; overflow: visible; } .sortable tbody tr:nth-child(n+61) { display: none; }
  .hero .card, .score { break-inside: avoid; } h2, h3 { break-after: avoid; }
}
"""

STYLE = SHEET + CHARTS + PAGE


def picture(svg: str) -> str:
    """A drawing of the page as a file of its own."""
    opening, rest = svg.split(">", 1)
    named = opening.replace("<svg ", '<svg xmlns="http://www.w3.org/2000/svg" ', 1)
    return f'{named}><style>{SHEET}{CHARTS}</style><rect class="sheet" width="100%" height="100%"/>{rest}\n'
