"""How the page of a check looks: on a light or a dark screen, and on paper."""

STYLE = """
:root {
  color-scheme: light dark;
  --paper: #fbfaf8; --card: #ffffff; --ink: #1d2129; --soft: #626a77; --line: #e4e1db; --track: #efece6;
  --bad: #b3261e; --bad-soft: #fbeae8; --warn: #8a5a00; --warn-soft: #fbf1dd; --fine: #1e6f43; --fine-soft: #e4f3ea;
  --s0: #35619c; --s1: #d9922e; --s2: #4d9464; --accent: #35619c;
}
@media (prefers-color-scheme: dark) {
  :root {
    --paper: #14161a; --card: #1c1f25; --ink: #e9e7e2; --soft: #9aa2af; --line: #2d323b; --track: #262a32;
    --bad: #ff9a90; --bad-soft: #3a201f; --warn: #f0c270; --warn-soft: #352a17; --fine: #86d3a4; --fine-soft: #1a3025;
    --s0: #7ea6dd; --s1: #e9b166; --s2: #82c397; --accent: #7ea6dd;
  }
}
* { box-sizing: border-box; }
body {
  margin: 0; background: var(--paper); color: var(--ink);
  font: 15px/1.55 system-ui, -apple-system, "Segoe UI", Roboto, "Apple SD Gothic Neo", "Noto Sans KR", sans-serif;
}
main { max-width: 1080px; margin: 0 auto; padding: 40px 24px 64px; }
header { display: flex; gap: 18px; align-items: center; margin-bottom: 28px; }
header svg { flex: none; border-radius: 10px; }
h1 { font-size: 26px; line-height: 1.2; margin: 0 0 4px; letter-spacing: -0.01em; overflow-wrap: anywhere; }
h2 { font-size: 18px; margin: 0 0 4px; letter-spacing: -0.005em; }
header p, .lead { color: var(--soft); margin: 0; }
.lead { margin-bottom: 16px; }
.verdict { display: inline-block; padding: 2px 12px; border-radius: 99px; font-weight: 600; font-size: 13px; }
.verdict.bad { background: var(--bad-soft); color: var(--bad); }
.verdict.fine { background: var(--fine-soft); color: var(--fine); }
.cards { display: grid; grid-template-columns: repeat(auto-fit, minmax(180px, 1fr)); gap: 12px; margin-bottom: 36px; }
.card {
  display: block; background: var(--card); border: 1px solid var(--line); border-radius: 12px; padding: 14px 16px;
  color: inherit; text-decoration: none;
}
a.card:hover { border-color: var(--accent); }
.card b { display: block; font-size: 26px; line-height: 1.15; letter-spacing: -0.02em; }
.card span { color: var(--soft); font-size: 13px; }
.card.bad { background: var(--bad-soft); border-color: transparent; } .card.bad b { color: var(--bad); }
.card.warn { background: var(--warn-soft); border-color: transparent; } .card.warn b { color: var(--warn); }
section {
  background: var(--card); border: 1px solid var(--line); border-radius: 14px; padding: 22px 24px; margin-bottom: 20px;
}
table { border-collapse: collapse; width: 100%; font-size: 14px; }
th { text-align: left; color: var(--soft); font-weight: 500; font-size: 13px; white-space: nowrap; }
th, td { padding: 7px 14px 7px 0; border-bottom: 1px solid var(--line); vertical-align: top; overflow-wrap: anywhere; }
tr:last-child td { border-bottom: 0; }
.path { font-family: ui-monospace, "SF Mono", Menlo, "DejaVu Sans Mono", monospace; font-size: 12.5px; }
.chip {
  display: inline-block; border-radius: 6px; padding: 0 7px; font-size: 12px; line-height: 20px; font-weight: 600;
  background: var(--track); color: var(--soft); white-space: nowrap;
}
.chip.s0 { color: var(--s0); } .chip.s1 { color: var(--s1); } .chip.s2 { color: var(--s2); }
.chip.bad { background: var(--bad-soft); color: var(--bad); }
.groups { display: flex; flex-wrap: wrap; gap: 14px; }
.group { border: 1px solid var(--line); border-radius: 10px; padding: 12px; break-inside: avoid; max-width: 100%; }
.group > p { margin: 0 0 8px; display: flex; gap: 6px; flex-wrap: wrap; }
.shots { display: flex; flex-wrap: wrap; gap: 12px; }
figure { margin: 0; width: 139px; }
figure .frame {
  height: 112px; background: var(--track); border-radius: 8px; display: flex; align-items: center;
  justify-content: center; overflow: hidden;
}
figure img { max-width: 100%; max-height: 100%; display: block; }
figcaption { font-size: 12.5px; line-height: 1.4; margin-top: 6px; overflow-wrap: anywhere; }
figcaption b { font-weight: 600; margin-left: 4px; }
figcaption .path { display: block; font-size: 11.5px; color: var(--soft); }
summary { cursor: pointer; color: var(--accent); font-size: 13px; padding-top: 10px; }
.gone { color: var(--soft); font-size: 12px; }
.more { color: var(--soft); margin: 10px 0 0; font-size: 13px; }
.legend { display: flex; gap: 18px; flex-wrap: wrap; margin: 0 0 12px; font-size: 13px; color: var(--soft); }
.legend i { display: inline-block; width: 11px; height: 11px; border-radius: 3px; margin-right: 6px; }
.legend b { color: var(--ink); font-variant-numeric: tabular-nums; }
i.s0 { background: var(--s0); } i.s1 { background: var(--s1); } i.s2 { background: var(--s2); }
.bars { display: grid; gap: 5px; }
.bar { display: grid; grid-template-columns: minmax(90px, 220px) 1fr 64px; gap: 12px; align-items: center; }
.bar .name { overflow: hidden; text-overflow: ellipsis; white-space: nowrap; font-size: 13.5px; }
.bar .track { background: var(--track); height: 14px; border-radius: 4px; display: flex; overflow: hidden; }
.bar .count { text-align: right; font-variant-numeric: tabular-nums; font-size: 13px; color: var(--soft); }
.two { display: flex; flex-wrap: wrap; gap: 24px 40px; align-items: flex-start; }
.two > table { width: auto; min-width: 240px; flex: 1; }
.sizes { max-width: 100%; height: auto; }
.sizes text { fill: var(--soft); font-size: 11px; }
.sizes .grid { stroke: var(--line); fill: none; }
.sizes .square { stroke: var(--soft); stroke-dasharray: 2 4; opacity: .6; fill: none; }
.sizes .cells { fill: var(--accent); }
td.n { text-align: right; font-variant-numeric: tabular-nums; padding-right: 0; }
ul { margin: 0; padding-left: 20px; } li { overflow-wrap: anywhere; margin: 3px 0; }
footer { color: var(--soft); font-size: 13px; margin-top: 28px; }
@media print {
  body { background: #fff; font-size: 11px; } main { max-width: none; padding: 0; }
  section, .card { border-color: #ccc; break-inside: auto; } .card { break-inside: avoid; }
  * { -webkit-print-color-adjust: exact; print-color-adjust: exact; }
}
"""

LOGO = (
    '<svg width="56" height="56" viewBox="0 0 56 56" aria-hidden="true">'
    '<rect width="56" height="56" fill="#20242c"/><g stroke="#20242c" stroke-width="2.5">'
    '<path fill="#35619c" d="M0 0h20v18H0z"/><path fill="#d9922e" d="M20 0h22v12L20 18z"/>'
    '<path fill="#b8443c" d="M42 0h14v26L42 12z"/><path fill="#4d9464" d="M0 18h20l-6 20H0z"/>'
    '<path fill="#e8c46a" d="M20 18l22-6 14 14-18 10-24 2z"/><path fill="#7b5aa6" d="M0 38h14l8 18H0z"/>'
    '<path fill="#4b9fb8" d="M14 38l24-2 4 20H22z"/><path fill="#c46a93" d="M38 36l18-10v30H42z"/></g></svg>'
)
