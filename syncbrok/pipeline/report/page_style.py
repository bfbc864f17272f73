"""The look of the page: the broker's own colours, light and dark. One text, since the page asks nobody for anything."""

STYLE = """\
:root { color-scheme: light dark; --ground: #f4f6fa; --card: #fff; --ink: #131c2b; --quiet: #5a687c; --line: #e1e7f0;
  --soft: #eef2f8; --bad: #bd1e2e; --c1: #2746d8; --c2: #1f9d6b; --c3: #d98a00; --c4: #bd1e2e; --c5: #7a4fd0;
  --c6: #0b8796; --c7: #a8577e; --c8: #7c889a; --shadow: 0 1px 2px #1020400d, 0 4px 16px #1020400a; }
@media (prefers-color-scheme: dark) { :root { --ground: #0c1119; --card: #141b26; --ink: #e4ebf5; --quiet: #93a1b6;
  --line: #253042; --soft: #1a2331; --bad: #ff8d98; --c1: #7d95ff; --c2: #4cc38a; --c3: #f0b04a; --c4: #ff7f8c;
  --c5: #b196ff; --c6: #57c7d6; --c7: #e08fb8; --c8: #8b98ab; --shadow: none; } }
* { box-sizing: border-box; }
body { margin: 0; background: var(--ground); color: var(--ink);
  font: 15px/1.5 system-ui, -apple-system, "Segoe UI", Roboto, "Liberation Sans", sans-serif; }
main { max-width: 76rem; margin: 0 auto; padding: 2rem clamp(.9rem, 3vw, 2rem) 3rem; display: grid; gap: 1.1rem;
  grid-template-columns: minmax(0, 1fr); }
header h1 { margin: 0; font-size: 1.7rem; letter-spacing: -.02em; line-height: 1.2; }
header p { margin: .35rem 0 0; color: var(--quiet); overflow-wrap: anywhere; }
header b { color: var(--ink); font-weight: 550; }
h2 { margin: 0; font-size: 1.02rem; letter-spacing: -.005em; }
h2 + p { margin: .15rem 0 .9rem; color: var(--quiet); font-size: .87rem; }
.card { background: var(--card); border: 1px solid var(--line); border-radius: 12px; padding: 1.1rem 1.2rem;
  box-shadow: var(--shadow); min-width: 0; }
.pair { display: grid; gap: 1.1rem; grid-template-columns: minmax(0, 1fr); }
@media (min-width: 60rem) { .pair { grid-template-columns: repeat(2, minmax(0, 1fr)); } }
.tiles { display: grid; gap: .8rem; grid-template-columns: repeat(auto-fit, minmax(8.6rem, 1fr)); }
.tile { background: var(--card); border: 1px solid var(--line); border-radius: 12px; padding: .8rem 1rem;
  box-shadow: var(--shadow); display: flex; flex-direction: column; justify-content: space-between; }
.tile span { display: block; color: var(--quiet); font-size: .8rem; }
.tile strong { display: block; font-size: 1.6rem; line-height: 1.3; font-weight: 600; letter-spacing: -.02em;
  font-variant-numeric: tabular-nums; white-space: nowrap; }
.tile.bad strong { color: var(--bad); }
.plot { position: relative; margin: .4rem 0 0 3.9rem; padding-bottom: 1.5rem; }
.plot.bare { margin-left: 0; }
.plot svg { display: block; width: 100%; height: 12rem; overflow: visible; }
.plot .y span { position: absolute; right: 100%; margin-right: .5rem; transform: translateY(50%); white-space: nowrap;
  color: var(--quiet); font-size: .75rem; line-height: 1; font-variant-numeric: tabular-nums; }
.plot .y { position: absolute; inset: 0 0 1.5rem 0; pointer-events: none; }
.plot .x { position: absolute; left: 0; right: 0; bottom: 0; height: 1.2rem; }
.plot .x span { position: absolute; transform: translateX(-50%); color: var(--quiet); font-size: .75rem;
  white-space: nowrap; font-variant-numeric: tabular-nums; }
.plot.bare .x span:first-child { transform: none; }
.plot.bare .x span:last-child { transform: translateX(-100%); }
.rule { stroke: var(--line); stroke-width: 1; vector-effect: non-scaling-stroke; }
polyline { fill: none; stroke-width: 1.8; stroke-linejoin: round; vector-effect: non-scaling-stroke; }
polygon { fill-opacity: .13; }
rect.c1, polygon.c1, i.c1, .bar .c1 { fill: var(--c1); background: var(--c1); } polyline.c1 { stroke: var(--c1); }
rect.c2, polygon.c2, i.c2, .bar .c2 { fill: var(--c2); background: var(--c2); } polyline.c2 { stroke: var(--c2); }
rect.c3, polygon.c3, i.c3, .bar .c3 { fill: var(--c3); background: var(--c3); } polyline.c3 { stroke: var(--c3); }
rect.c4, polygon.c4, i.c4, .bar .c4 { fill: var(--c4); background: var(--c4); } polyline.c4 { stroke: var(--c4); }
rect.c5, polygon.c5, i.c5, .bar .c5 { fill: var(--c5); background: var(--c5); } polyline.c5 { stroke: var(--c5); }
rect.c6, polygon.c6, i.c6, .bar .c6 { fill: var(--c6); background: var(--c6); } polyline.c6 { stroke: var(--c6); }
rect.c7, polygon.c7, i.c7, .bar .c7 { fill: var(--c7); background: var(--c7); } polyline.c7 { stroke: var(--c7); }
rect.c8, polygon.c8, i.c8, .bar .c8 { fill: var(--c8); background: var(--c8); } polyline.c8 { stroke: var(--c8); }
g:hover rect { opacity: .75; }
.legend { display: flex; flex-wrap: wrap; gap: .2rem 1rem; margin-top: .7rem; color: var(--quiet); font-size: .8rem; }
.legend i { display: inline-block; width: .7rem; height: .7rem; border-radius: 3px; margin-right: .4rem;
  vertical-align: -1px; }
.scroll { overflow-x: auto; margin: 0 -1.2rem; padding: 0 1.2rem; }
table { border-collapse: collapse; width: 100%; font-size: .87rem; font-variant-numeric: tabular-nums; }
th { text-align: right; font-weight: 500; color: var(--quiet); font-size: .78rem; padding: .25rem .6rem;
  border-bottom: 1px solid var(--line); white-space: nowrap; vertical-align: bottom; }
td { text-align: right; padding: .42rem .6rem; border-bottom: 1px solid var(--line); white-space: nowrap; }
tr:last-child td { border-bottom: 0; }
th.t, td.t { text-align: left; }
th:first-child, td:first-child { padding-left: 0; } th:last-child, td:last-child { padding-right: 0; }
td small { display: block; color: var(--quiet); font-size: .78rem; max-width: 24rem; overflow: hidden;
  text-overflow: ellipsis; }
td.bad { color: var(--bad); }
.bar { display: block; min-width: 5rem; height: .5rem; border-radius: 99px; background: var(--soft); overflow: hidden; }
.bar span { display: block; height: 100%; border-radius: 99px; }
.none { color: var(--quiet); margin: .3rem 0 0; }
footer { color: var(--quiet); font-size: .82rem; }
footer p { margin: .2rem 0; }
@media print { .card, .tile { break-inside: avoid; box-shadow: none; } }
"""
