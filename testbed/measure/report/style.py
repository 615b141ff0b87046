"""Style sheet of a report, for light and dark screens and for paper. It uses no external fonts or images."""

from __future__ import annotations

_LIGHT_COLOURS = """
  --paper: #fcfcfa; --ink: #1d2126; --muted: #5d6670; --faint: #e3e5e3; --panel: #ffffff;
  --amber: #8a4b00; --amber-back: #fff1d6; --amber-line: #e8b765; --bad: #a3161a; --bad-back: #fde8e7;
  --band: #eceae2; --k0: #0b62c4; --k1: #c24e00; --k2: #0f7a52; --k3: #8a35b5; --k4: #a8741a; --k5: #c2256e;
  --k6: #3c6e8f; --k7: #5b6b1e;"""

_DARK_COLOURS = """
  --paper: #14171a; --ink: #e8eaec; --muted: #9aa4ae; --faint: #2c3238; --panel: #1a1e22;
  --amber: #ffcf87; --amber-back: #33260f; --amber-line: #7d5a1f; --bad: #ff9d98; --bad-back: #3a1917;
  --band: #24282b; --k0: #63abff; --k1: #ff9a52; --k2: #4fc795; --k3: #c992ee; --k4: #d9ae5c; --k5: #ff85b8;
  --k6: #8fbbd6; --k7: #b5c46a;"""

_PALETTE = "\n".join(f".c{n}, .s{n} {{ --tone: var(--k{n}); }}" for n in range(8))

PAGE_STYLE = f"""
:root {{ color-scheme: light dark;{_LIGHT_COLOURS} }}
@media (prefers-color-scheme: dark) {{ :root {{{_DARK_COLOURS} }} }}
{_PALETTE}
* {{ box-sizing: border-box; }}
html {{ font: 16px/1.55 system-ui, -apple-system, "Segoe UI", Roboto, "Helvetica Neue", Arial, sans-serif;
  background: var(--paper); color: var(--ink); -webkit-text-size-adjust: 100%; }}
body {{ max-width: 69rem; margin: 0 auto; padding: 2.5rem 1.5rem 4rem; }}
h1 {{ font-size: 2rem; line-height: 1.2; letter-spacing: -0.015em; margin: 0.3rem 0 0.6rem; text-wrap: balance; }}
h2 {{ font-size: 1.3rem; letter-spacing: -0.01em; margin: 3rem 0 0.6rem; padding-top: 1rem;
  border-top: 1px solid var(--faint); }}
h3 {{ font-size: 1rem; margin: 1.6rem 0 0.3rem; }}
p {{ margin: 0.5rem 0; max-width: 46rem; }}
code, pre {{ font: 0.86em/1.5 ui-monospace, SFMono-Regular, Menlo, Consolas, "DejaVu Sans Mono", monospace; }}
pre {{ background: var(--panel); border: 1px solid var(--faint); border-radius: 6px; padding: 0.8rem 1rem;
  overflow-x: auto; }}
.muted, figcaption {{ color: var(--muted); }}
p.wide {{ max-width: none; }}
.eyebrow {{ color: var(--muted); font-size: 0.85rem; margin: 0; }}
.badge {{ display: inline-block; font-weight: 700; letter-spacing: 0.08em; color: var(--amber);
  background: var(--amber-back); border: 1px solid var(--amber-line); border-radius: 5px; padding: 0 0.55em;
  margin-right: 0.35em; }}
.notice {{ border: 1px solid var(--amber-line); background: var(--amber-back); border-radius: 8px;
  padding: 0.7rem 1rem; margin: 1.2rem 0; }}
.notice p {{ margin: 0.15rem 0; max-width: none; }}
.notice.bad {{ border-color: var(--bad); background: var(--bad-back); }}
.tiles {{ display: grid; grid-template-columns: repeat(auto-fit, minmax(15rem, 1fr)); gap: 1rem;
  margin: 1.5rem 0 0; padding: 0; }}
.tile {{ background: var(--panel); border: 1px solid var(--faint); border-radius: 8px; padding: 0.8rem 1rem; }}
.tile dt {{ color: var(--muted); font-size: 0.85rem; line-height: 1.35; }}
.tile dd {{ margin: 0.2rem 0 0; }}
.tile .figure {{ font-size: 1.65rem; font-weight: 600; letter-spacing: -0.02em; white-space: nowrap; }}
.tile .unit {{ font-size: 0.95rem; font-weight: 400; letter-spacing: 0; }}
.tile .beside {{ color: var(--muted); font-size: 0.85rem; line-height: 1.35; display: block; }}
figure {{ margin: 1.2rem 0; }}
figcaption {{ font-size: 0.88rem; line-height: 1.45; max-width: 46rem; margin-top: 0.4rem; }}
img {{ display: block; max-width: 100%; height: auto; background: #fff; border: 1px solid var(--faint);
  border-radius: 8px; }}
svg {{ display: block; width: 100%; height: auto; font-family: inherit; }}
svg text {{ fill: var(--ink); font-size: 13.5px; }}
.pair {{ display: grid; grid-template-columns: repeat(auto-fit, minmax(19rem, 1fr)); gap: 1.5rem; }}
.pair figure {{ margin: 0; }}
.topology {{ max-width: 27rem; margin: 0 auto; }}
.link {{ fill: none; stroke: var(--tone); stroke-width: 2.1; }}
.s1 {{ stroke-dasharray: 7 3; }} .s2 {{ stroke-dasharray: 2 3; }} .s3 {{ stroke-dasharray: 9 3 2 3; }}
.s4 {{ stroke-dasharray: 14 4; }} .s5 {{ stroke-dasharray: 5 5; }} .s6 {{ stroke-dasharray: 1 4; }}
.node {{ fill: var(--panel); stroke: var(--ink); stroke-width: 1.5; }}
svg .node-name {{ text-anchor: middle; dominant-baseline: central; font-size: 14px; font-weight: 600; }}
svg .node-name.outside {{ font-size: 11px; font-weight: 400; }}
.grid {{ stroke: var(--faint); stroke-width: 1; }}
.axis {{ stroke: var(--muted); stroke-width: 1; }}
svg .tick {{ fill: var(--muted); font-size: 13px; font-variant-numeric: tabular-nums; }}
svg .axis-title {{ fill: var(--muted); font-size: 13px; }}
svg .end {{ text-anchor: end; }} svg .middle {{ text-anchor: middle; }}
.cpu-band {{ fill: var(--band); }}
.heat {{ fill: var(--bad); }}
svg .band-label {{ fill: var(--muted); font-size: 12.5px; text-anchor: middle; }}
.line {{ fill: none; stroke: var(--tone); stroke-width: 2.4; stroke-linejoin: round; }}
.mark {{ fill: var(--tone); stroke: var(--tone); stroke-width: 1.8; }}
.mark.hollow {{ fill: var(--paper); }}
.limit {{ stroke: var(--tone); stroke-width: 1.4; stroke-dasharray: 6 4; opacity: 0.85; }}
.limit.shared {{ stroke: var(--muted); }}
svg .end-label {{ fill: var(--tone); font-weight: 600; }}
svg .limit-label {{ fill: var(--muted); font-size: 12.5px; }}
svg .watermark {{ text-anchor: end; fill: var(--amber); font-size: 12px; font-weight: 700; letter-spacing: 0.14em;
  opacity: 0.75; }}
.scroll {{ overflow-x: auto; }}
table {{ border-collapse: collapse; width: 100%; font-size: 0.88rem; font-variant-numeric: tabular-nums; }}
caption {{ text-align: left; color: var(--muted); padding: 0 0 0.4rem; }}
th, td {{ text-align: right; padding: 0.22rem 0.6rem; border-bottom: 1px solid var(--faint); white-space: nowrap; }}
thead th {{ color: var(--muted); font-weight: 600; border-bottom: 1px solid var(--muted); vertical-align: bottom;
  white-space: normal; line-height: 1.3; }}
th.text, td.text, tbody th {{ text-align: left; }}
td.wrap {{ white-space: normal; text-align: left; }}
tbody th {{ font-weight: 400; }}
tr.group th {{ font-weight: 600; padding-top: 1rem; }}
.tile.limited {{ background: var(--band); }}
tr.limited td, tr.limited th {{ background: var(--band); }}
.gain {{ font-weight: 600; }}
details {{ margin: 1rem 0; }}
summary {{ cursor: pointer; font-weight: 600; padding: 0.3rem 0; }}
footer {{ margin-top: 3rem; color: var(--muted); font-size: 0.85rem; }}
@media (max-width: 40rem) {{ .tiles {{ grid-template-columns: repeat(auto-fit, minmax(9.5rem, 1fr)); }} }}
@media print {{
  :root {{{_LIGHT_COLOURS} --paper: #fff; }}
  html {{ font-size: 10.5pt; }} body {{ max-width: none; padding: 0; }}
  figure, .tile, .notice, tr {{ break-inside: avoid; }} h2, h3 {{ break-after: avoid; }}
  * {{ print-color-adjust: exact; -webkit-print-color-adjust: exact; }}
}}
"""
