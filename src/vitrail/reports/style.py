"""How the page of a run looks: the sheet of the data check, and what only a run has."""

from vitrail.data.check.page_style import STYLE as SHEET

# For a drawing that is a picture of its own, to which the style of the page does not reach.
DARK = "@media (prefers-color-scheme: dark) { svg { --ink: #e9e7e2; --soft: #9aa2af; --card: #1c1f25; } }"

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
.plot .r0 { --r: var(--s0); } .plot .r1 { --r: var(--s1); } .plot .r2 { --r: var(--s2); }
.plot .r3 { --r: var(--bad); } .plot .r4 { --r: var(--soft); } .plot .r5 { --r: var(--ink); }
.plot .r0.line, .plot .r1.line, .plot .r2.line, .plot .r3.line, .plot .r4.line, .plot .r5.line { stroke: var(--r); }
.plot .r1.line { stroke-dasharray: 7 4; } .plot .r2.line { stroke-dasharray: 1.5 4; }
.plot .r3.line { stroke-dasharray: 9 4 1.5 4; } .plot .r4.line { stroke-dasharray: 14 4; }
.plot .r5.line { stroke-dasharray: 4 3; } .plot .shape { fill: var(--card); stroke: var(--r); stroke-width: 1.6; }
.plot .star { fill: none; stroke: var(--s1); stroke-width: 2; }
.plot .foot { fill: none; stroke: var(--s1); stroke-dasharray: 2 3; }
.plot .strip { fill: var(--ink); fill-opacity: 0; } .plot .strip:hover { fill-opacity: .07; }
.plot .hit, .meter .hit { fill: var(--s0); } .plot .miss { fill: var(--bad); }
.plot .sheet { fill: var(--card); }
.plot .track { fill: var(--track); } .plot .gap { fill: var(--s1); fill-opacity: .75; }
.plot .modest { fill: var(--s0); fill-opacity: .35; }
.plot .few { fill: var(--soft); fill-opacity: .5; } .plot .span { stroke: var(--ink); stroke-opacity: .6; fill: none; }
.meter .span { stroke: var(--ink); stroke-opacity: .7; stroke-width: 1.5; vector-effect: non-scaling-stroke; }
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
.hero .cards { margin-bottom: 16px; grid-template-columns: repeat(auto-fit, minmax(128px, 1fr)); }
.hero .card { background: var(--paper); } .hero .card b { font-size: 21px; }
.hero .card span { display: block; line-height: 1.35; margin-top: 3px; }
.charts { display: grid; grid-template-columns: 1fr 1fr; gap: 22px 24px; }
.charts + .charts { grid-template-columns: 1fr 1fr 1fr; margin-top: 22px; }
.charts .plot { width: 100%; }
.beside { display: flex; flex-wrap: wrap; gap: 20px 36px; align-items: flex-start; }
.beside .matrix { flex: none; } .beside table { flex: 1; width: auto; min-width: 260px; }
.beside .told { flex: 1 1 320px; min-width: 0; } .beside .told table { width: 100%; }
.above .matrix { margin-bottom: 20px; } .verdict { white-space: nowrap; }
.matrix a { cursor: pointer; } .matrix a:hover rect { stroke: var(--ink); stroke-width: 1.5; }
.matrix a:focus { outline: none; } .matrix a:focus-visible rect { stroke: var(--ink); stroke-width: 3; }
.matrix a[aria-current] rect { stroke: var(--ink); stroke-width: 2.5; }
.cell { display: none; scroll-margin-top: 24px; outline: none; } .cell:target { display: block; }
.cell h3 { margin-top: 0; }
.confusions:has(.cell:target) .pairs { display: none; }
nav { display: flex; flex-wrap: wrap; gap: 4px 18px; margin: -8px 0 22px; font-size: 13.5px; }
a { color: var(--accent); } nav a { text-decoration: none; padding: 4px 0; } nav a:hover { text-decoration: underline; }
a:focus-visible, summary:focus-visible { outline: 2px solid var(--accent); outline-offset: 2px; border-radius: 3px; }
section { scroll-margin-top: 16px; }
td, figcaption { word-break: keep-all; } .sortable td:first-child, .pairs td { min-width: 76px; }
th, .sortable td, .pairs td { overflow-wrap: break-word; } .told, .across { overflow-x: auto; }
th.n { text-align: right; padding-right: 0; } td.n, th.n { padding-left: 14px; } td.n, .bins td { white-space: nowrap; }
.lead { overflow-wrap: anywhere; }
.lead:last-child, details .shots { margin-bottom: 0; } details .shots { margin-top: 14px; }
.scroll { max-height: 460px; overflow: auto; }
.scroll thead :is(th, td) { position: sticky; top: 0; background: var(--card); box-shadow: inset 0 -1px var(--line); }
.sortable td, .sortable th { padding-right: 22px; } .sortable td:last-child span { color: var(--soft); }
th button { all: unset; cursor: pointer; } th button:hover { color: var(--ink); }
th button:focus-visible { outline: 2px solid var(--accent); outline-offset: 2px; }
th button[data-order]::after { content: " \\2191"; } th button[data-order=up]::after { content: " \\2193"; }
.share { white-space: nowrap; font-variant-numeric: tabular-nums; }
.meter { width: 110px; height: 8px; border-radius: 4px; margin-right: 10px; vertical-align: 1px; }
.meter .back { fill: var(--track); }
.shots figure { width: 144px; break-inside: avoid; } .shots { gap: 20px 16px; }
.shots .frame { height: 128px; } .shots img.pixels { height: 112px; image-rendering: pixelated; }
.shots.doubled { display: grid; grid-template-columns: repeat(auto-fill, minmax(236px, 1fr)); }
.shots.doubled figure { width: auto; } .frames { display: flex; gap: 4px; } .frames .frame { flex: 1; min-width: 0; }
.figures { display: grid; grid-template-columns: 1fr 1fr; gap: 28px 32px; } .drawn { width: auto; margin: 0; }
.drawn img { max-width: 100%; height: auto; max-height: none; }
.drawn figcaption { color: var(--soft); margin-top: 10px; }
.drawn figcaption b { margin: 0; color: var(--ink); }
.shots.small { gap: 14px 12px; } .shots.small figure { width: 92px; } .shots.small .frame { height: 84px; }
.shots.small img.pixels { height: 76px; }
table.hidden { border-collapse: separate; border-spacing: 8px; width: auto; } table.hidden td { padding: 0; border: 0; }
table.hidden th { text-align: left; font-weight: 500; color: var(--soft); font-size: 13px; border: 0; }
table.hidden th { min-width: 84px; white-space: normal; }
table.hidden img { display: block; width: 96px; border-radius: 4px; }
table.hidden img.pixels { image-rendering: pixelated; }
figcaption .truth { display: block; font-weight: 600; }
figcaption .truth::before { content: "is "; color: var(--soft); font-weight: 400; }
figcaption .guess { display: block; color: var(--bad); }
figcaption .guess i { font-style: normal; color: var(--soft); }
pre.command {
  background: var(--track); border-radius: 8px; padding: 10px 14px; margin: 0 0 12px; font-size: 13px;
  font-family: ui-monospace, "SF Mono", Menlo, "DejaVu Sans Mono", monospace;
  white-space: pre-wrap; overflow-wrap: anywhere;
}
.runs thead th { color: var(--ink); font-weight: 600; } .runs tbody th { padding-right: 18px; }
.runs thead td { border-bottom: 1px solid var(--line); } .runs tbody tr:last-child th { border-bottom: 0; }
.models td:first-child { min-width: 132px; } .teaching td:first-child { white-space: nowrap; }
.short { width: auto; min-width: 260px; margin: 12px 0 0; } .scroll:focus-visible { outline: 2px solid var(--accent); }
.facts td:first-child { color: var(--soft); width: 190px; } .facts td.path:first-child { width: 230px; }
.next { display: grid; gap: 4px; margin: 0; } .next dd { margin: 0 0 10px; color: var(--soft); }
.next pre { margin: 0 0 2px; }
@media screen and (max-width: 860px) { .charts, .charts + .charts, .figures { grid-template-columns: 1fr; } }
@media screen and (max-width: 560px) {
  main { padding: 24px 14px 40px; } section { padding: 18px 16px; } .hero { padding: 20px 18px 4px; }
  .verdict { white-space: normal; } .score b { font-size: 54px; } .bins th, .pairs th { white-space: normal; }
  .pairs td, .pairs th { min-width: 0; padding-right: 6px; } td.n, th.n { padding-left: 8px; }
  .facts td:first-child, .facts td.path:first-child { width: 44%; }
  .bins { font-size: 13px; } .bins td, .bins th { padding-right: 0; }
  .runs tbody th { position: sticky; left: 0; background: var(--card); white-space: normal; padding-right: 8px; }
  .runs td.n, .runs thead th { white-space: normal; overflow-wrap: anywhere; min-width: 92px; }
  .scroll:has(.runs) { max-height: none; }
  .settings td { min-width: 68px; } .settings td:first-child { min-width: 112px; }
  .teaching :is(td, th) { padding-right: 6px; white-space: normal; overflow-wrap: normal; }
  .teaching td:first-child { white-space: nowrap; }
  .teaching .chip { display: block; width: fit-content; padding: 0 4px; }
  .teaching .meter { display: block; width: 56px; margin: 7px 0 5px; }
  .charts:first-of-type .plot text { font-size: 13.5px; } .charts:first-of-type .plot text.title { font-size: 16px; }
}
@media print {
  .hero .cards { grid-template-columns: repeat(3, 1fr); }
  .charts { grid-template-columns: 1fr 1fr; } .charts .plot, .matrix { break-inside: avoid; }
  .scroll { max-height: none; overflow: visible; } .sortable tbody tr:nth-child(n+61) { display: none; }
  .hero .card, .score, .drawn, .lead { break-inside: avoid; } h2, h3, .lead:not(:last-child) { break-after: avoid; }
  section:has(> .lead:last-child) { break-inside: avoid; }
  nav, .cell:target { display: none; } .confusions:has(.cell:target) .pairs { display: table; }
}
"""

STYLE = SHEET + CHARTS + PAGE


def picture(svg: str) -> str:
    """A drawing of the page as a file of its own."""
    opening, rest = svg.split(">", 1)
    named = opening.replace("<svg ", '<svg xmlns="http://www.w3.org/2000/svg" ', 1)
    return f'{named}><style>{SHEET}{CHARTS}</style><rect class="sheet" width="100%" height="100%"/>{rest}\n'
