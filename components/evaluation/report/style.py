"""Style sheet of the HTML report: one column, light or dark as the system, also narrow and printed.

It loads nothing from outside the page.
"""

STYLE = """\
:root { --ink: #1f2933; --muted: #5b6879; --line: #e3e8ef; --paper: #fff; --ground: #f6f8fb;
  --accent: #7b61c9; --act: #5b43a8; }
:root { --good: #10623f; --good-ground: #dff3ea; --bad: #9a2a20; --bad-ground: #fbe3e1; --plain: #4a5768;
  --plain-ground: #eaeef4; }
:root { --warn: #7a5607; --warn-ground: #fdf1d3; --info: #1c4a86; --info-ground: #e1ecfb; --mark: #ffe9a8; }
@media (prefers-color-scheme: dark) {
  :root { --ink: #e4e9f0; --muted: #9fabbb; --line: #323b47; --paper: #1b2129; --ground: #12161c;
    --accent: #a08be0; --act: #b9a8f0; }
  :root { --good: #8fdcb8; --good-ground: #173d2d; --bad: #ffb3aa; --bad-ground: #4d211d; --plain: #b9c4d2;
    --plain-ground: #2b343f; }
  :root { --warn: #f0d08a; --warn-ground: #44360f; --info: #a9c8f5; --info-ground: #1b3354; --mark: #6a5715; }
  img { filter: invert(1) hue-rotate(180deg); }
}
* { box-sizing: border-box; }
body { margin: 0; background: var(--ground); color: var(--ink); font: 15px/1.55 system-ui, "Segoe UI", Arial,
  sans-serif; }
main { max-width: 1040px; margin: 0 auto; padding: 28px 16px 48px; }
header { border-left: 4px solid var(--accent); padding-left: 14px; margin: 0 0 22px; }
header > p:first-child { margin: 0; color: var(--muted); font-size: 12px; letter-spacing: .08em;
  text-transform: uppercase; }
h1 { font-size: 25px; line-height: 1.25; margin: 0; overflow-wrap: anywhere; }
h2 { font-size: 18px; margin: 0 0 12px; }
h3 { font-size: 14.5px; margin: 18px 0 8px; overflow-wrap: anywhere; }
section { background: var(--paper); border: 1px solid var(--line); border-radius: 10px; padding: 18px 22px;
  margin: 0 0 16px; }
p { margin: 8px 0; overflow-wrap: anywhere; }
dl { display: grid; grid-template-columns: repeat(auto-fill, minmax(280px, 1fr)); gap: 4px 22px;
  margin: 10px 0 0; font-size: 13.5px; }
dl div { display: grid; grid-template-columns: 104px 1fr; gap: 8px; }
dt { color: var(--muted); }
dd { margin: 0; overflow-wrap: anywhere; }
dfn { font-style: normal; font-weight: 600; }
code { color: var(--muted); font: 11.5px/1.4 ui-monospace, "SF Mono", Menlo, Consolas, "DejaVu Sans Mono",
  monospace; }
code { overflow-wrap: anywhere; }
.meaning { display: block; color: var(--muted); font-size: 12.5px; line-height: 1.4; margin: 1px 0 0; }
.scroll { overflow-x: auto; margin: 10px 0; }
table { border-collapse: collapse; width: 100%; font-size: 13.5px; font-variant-numeric: tabular-nums; }
th { text-align: left; font-weight: 600; color: var(--muted); font-size: 12px; padding: 5px 10px 5px 0; }
th { border-bottom: 1px solid var(--line); }
td { border-bottom: 1px solid var(--line); padding: 6px 10px 6px 0; vertical-align: top; }
tbody tr:last-child td { border-bottom: 0; }
.right { text-align: right; white-space: nowrap; }
.named { min-width: 190px; }
figure { margin: 6px 0 14px; }
figcaption { color: var(--muted); font-size: 12.5px; margin: 0 0 4px; }
.panels { display: grid; grid-template-columns: repeat(auto-fill, minmax(min(290px, 100%), 1fr));
  gap: 14px 22px; }
.panels figure { margin: 0; break-inside: avoid; }
.panels dfn { color: var(--ink); font-size: 13.5px; }
img { display: block; width: 100%; height: auto; }
.bar { display: grid; grid-template-columns: minmax(120px, 270px) 1fr 128px; gap: 12px; align-items: center;
  margin: 5px 0; }
.bar { font-size: 13.5px; }
.track { position: relative; height: 15px; background: var(--ground); border-radius: 3px; }
.fill { position: absolute; inset: 0 auto 0 0; background: #7b61c9; border-radius: 3px; }
.fill.cloned { background: #9aa5b4; }
.fill.refined { background: #12878a; }
.interval { position: absolute; top: 5px; height: 5px; border: solid var(--ink); border-width: 0 2px; }
.interval::after { content: ""; position: absolute; left: 0; right: 0; top: 2px;
  border-top: 1.5px solid var(--ink); }
.number { font-variant-numeric: tabular-nums; white-space: nowrap; }
small { color: var(--muted); }
pre { background: var(--ground); border: 1px solid var(--line); border-radius: 8px; padding: 10px 12px;
  margin: 8px 0; }
pre { font: 12.5px/1.55 ui-monospace, "SF Mono", Menlo, Consolas, "DejaVu Sans Mono", monospace; }
pre { white-space: pre-wrap; overflow-wrap: anywhere; }
.badge { display: inline-block; border-radius: 999px; padding: 1px 9px; font-size: 12px; font-weight: 600;
  white-space: nowrap; }
.good { background: var(--good-ground); color: var(--good); }
.bad { background: var(--bad-ground); color: var(--bad); }
.plain { background: var(--plain-ground); color: var(--plain); }
summary { font-size: 17px; font-weight: 700; cursor: pointer; }
.episode { border-top: 1px solid var(--line); padding: 10px 0; }
.episode summary { font-size: 14.5px; font-weight: 600; overflow-wrap: anywhere; }
.divergence { background: var(--bad-ground); border-left: 4px solid var(--bad); border-radius: 4px;
  padding: 4px 12px; margin: 8px 0; }
.turn { background: var(--ground); border-radius: 8px; padding: 6px 12px; margin: 6px 0; break-inside: avoid;
  }
.turn.diverged { outline: 2px solid var(--bad); }
.turn p { margin: 2px 0; }
.act, .both, .pair, .why { font: 12.5px/1.55 ui-monospace, "SF Mono", Menlo, Consolas, "DejaVu Sans Mono",
  monospace; }
.act { color: var(--act); font-weight: 600; }
.pair { display: grid; grid-template-columns: 1fr 1fr; gap: 14px; }
.pair.heads { padding: 0 12px; }
.pair > span { overflow-wrap: anywhere; min-width: 0; }
.muted { color: var(--muted); }
.reward { white-space: nowrap; font-size: 11.5px; border: 1px solid var(--line); border-radius: 4px;
  padding: 0 6px; color: var(--muted); }
.reward.differs { background: var(--bad-ground); border-color: var(--bad); color: var(--bad);
  font-weight: 700; }
mark { background: var(--mark); color: inherit; border-radius: 3px; padding: 0 2px; }
.fact { display: inline-block; font-size: 12px; border-radius: 4px; padding: 0 7px; margin: 2px 4px 2px 0; }
.denied { background: var(--bad-ground); color: var(--bad); }
.dream_alone { background: var(--warn-ground); color: var(--warn); }
.real_alone { background: var(--info-ground); color: var(--info); }
@media (max-width: 620px) {
  section { padding: 14px; }
  .bar { grid-template-columns: 1fr auto; gap: 0 10px; }
  .bar .track { grid-row: 2; grid-column: 1 / 3; }
  .pair { gap: 10px; }
}
@media print {
  :root { --ink: #1f2933; --muted: #5b6879; --line: #c9d1db; --paper: #fff; --ground: #fff; --act: #5b43a8;
    --mark: #ffe9a8; }
  :root { --good: #10623f; --good-ground: #dff3ea; --bad: #9a2a20; --bad-ground: #fbe3e1; --plain: #4a5768;
    --plain-ground: #eaeef4; }
  :root { --warn: #7a5607; --warn-ground: #fdf1d3; --info: #1c4a86; --info-ground: #e1ecfb; }
  * { print-color-adjust: exact; -webkit-print-color-adjust: exact; }
  img { filter: none; }
  main { max-width: none; padding: 0; }
  section { border: 0; padding: 6px 0; }
  h2, h3, summary { break-after: avoid; }
  .episode::details-content { content-visibility: visible; height: auto; }
}
"""
