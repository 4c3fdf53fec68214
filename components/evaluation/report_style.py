"""How the HTML report looks: light, one column of at most 900 px, system fonts, nothing fetched."""

STYLE = """\
:root { --ink: #1f2933; --muted: #66758a; --line: #e3e8ef; --paper: #fff; --ground: #f6f8fb; --accent: #7b61c9; }
* { box-sizing: border-box; }
body { margin: 0; background: var(--ground); color: var(--ink); font: 15px/1.55 system-ui, "Segoe UI", Arial, sans-serif; }
main { max-width: 900px; margin: 0 auto; padding: 28px 16px 48px; }
header { border-left: 4px solid var(--accent); padding-left: 14px; margin: 0 0 22px; }
header p { margin: 0; color: var(--muted); font-size: 12px; letter-spacing: .08em; text-transform: uppercase; }
h1 { font-size: 25px; line-height: 1.25; margin: 0; overflow-wrap: anywhere; }
h2 { font-size: 17px; margin: 0 0 12px; }
h3 { font-size: 14.5px; margin: 0 0 6px; overflow-wrap: anywhere; }
section { background: var(--paper); border: 1px solid var(--line); border-radius: 10px; padding: 18px 22px; margin: 0 0 16px; }
p { margin: 8px 0; overflow-wrap: anywhere; }
.scroll { overflow-x: auto; margin: 10px 0; }
table { border-collapse: collapse; width: 100%; font-size: 13.5px; font-variant-numeric: tabular-nums; }
th { text-align: left; font-weight: 600; color: var(--muted); font-size: 12px; padding: 5px 10px 5px 0; }
th { border-bottom: 1px solid var(--line); }
td { border-bottom: 1px solid var(--line); padding: 6px 10px 6px 0; vertical-align: top; }
tbody tr:last-child td { border-bottom: 0; }
.right { text-align: right; white-space: nowrap; }
figure { margin: 6px 0 14px; }
figcaption { color: var(--muted); font-size: 12.5px; margin: 0 0 4px; }
img { display: block; width: 100%; height: auto; }
pre { background: var(--ground); border: 1px solid var(--line); border-radius: 8px; padding: 10px 12px; margin: 8px 0; overflow-x: auto; }
pre { font: 12.5px/1.55 ui-monospace, "SF Mono", Menlo, Consolas, "DejaVu Sans Mono", monospace; }
.badge { display: inline-block; border-radius: 999px; padding: 1px 9px; font-size: 12px; font-weight: 600; white-space: nowrap; }
.good { background: #dff3ea; color: #10623f; }
.bad { background: #fbe3e1; color: #9a2a20; }
.plain { background: #eaeef4; color: #4a5768; }
summary { font-size: 17px; font-weight: 700; cursor: pointer; }
.episode { border-top: 1px solid var(--line); padding: 10px 0; }
.episode:first-of-type { border-top: 0; }
.episode summary { font-size: 14.5px; font-weight: 600; overflow-wrap: anywhere; }
.turn { background: var(--ground); border-radius: 8px; padding: 6px 12px; margin: 6px 0; }
.turn p { margin: 2px 0; }
.act, .both, .pair { font: 12.5px/1.55 ui-monospace, "SF Mono", Menlo, Consolas, "DejaVu Sans Mono", monospace; }
.act { color: #5b43a8; font-weight: 600; white-space: pre-wrap; }
.act::before { content: "> "; color: var(--muted); }
.pair { display: grid; grid-template-columns: 1fr 1fr; gap: 14px; }
.pair span { overflow-wrap: anywhere; min-width: 0; }
.muted { color: var(--muted); }
mark { background: #ffe9a8; border-radius: 3px; padding: 0 2px; }
.fact { display: inline-block; font-size: 12px; border-radius: 4px; padding: 0 7px; margin: 2px 4px 2px 0; }
.denied { background: #fbe3e1; color: #9a2a20; }
.dream_alone { background: #fdf1d3; color: #7a5607; }
.real_alone { background: #e1ecfb; color: #1c4a86; }
@media print { body { background: #fff; } section { break-inside: avoid; } }
"""
