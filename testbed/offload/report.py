"""A page about a profile: the stall before and after, the reasons, and a plot of the rates."""

from __future__ import annotations

import html
import json
from pathlib import Path

from lightbed.output_file import save_figure, write_output
from testbed.offload.policy import CANDIDATES
from testbed.offload.store import Profile

_PAGE = """<!doctype html>
<meta charset="utf-8"><title>Offloading: {name}</title>
<style>body{{font:16px/1.5 sans-serif;max-width:50em;margin:2em auto}}td,th{{padding:.2em 1em;text-align:right}}</style>
<h1>Offloading: {name}</h1>
<p>{head}</p>
<table><tr><th></th><th>before</th><th>after</th></tr>
<tr><th>samples a second</th><td>{lthp:,.1f}</td><td>{after:,.1f}</td></tr>
<tr><th>time in which the trainer waits</th><td>{stall_before:.1%}</td><td>{stall_after:.1%}</td></tr></table>
<p><img src="rates.png" alt="Rates of the model, the pipeline and its candidates" width="100%"></p>
<h2>Why</h2><ul>{reasons}</ul>
<p>Profiling took {spent:.1f} s, {share:.1%} of the training.</p>
"""


def write_report(folder: Path, found: Profile, name: str, *, is_simulated: bool) -> Path:
    """Write profile.json, rates.png and report.html to a folder, and return the page."""
    folder.mkdir(parents=True, exist_ok=True)
    document = found.document() | {"simulated": is_simulated}
    write_output(folder / "profile.json", json.dumps(document, indent=2) + "\n")
    draw_rates(folder / "rates.png", found, is_simulated=is_simulated)
    decision = found.decision
    head = f"{decision.candidate} at ratio {decision.ratio:.2f}" if decision.candidate else "No offload."
    page = _PAGE.format(
        name=html.escape(name),
        head=head + (" SIMULATED: the model's step is a timed wait." if is_simulated else ""),
        lthp=found.metrics.lthp,
        after=found.rate_after,
        stall_before=found.stall_before,
        stall_after=found.stall_after,
        reasons="".join(f"<li>{html.escape(reason)}" for reason in decision.reasons),
        spent=found.profiling_s,
        share=found.profiling_share,
    )
    path = folder / "report.html"
    write_output(path, page)
    return path


def draw_rates(path: Path, found: Profile, *, is_simulated: bool) -> None:
    """Draw the rates of the model, the pipeline on the trainer, each candidate, and what was decided."""
    from matplotlib.figure import Figure

    metrics = found.metrics
    rates = {"model alone": metrics.gthp, "all here": metrics.lthp}
    for name in sorted(metrics.candidates):
        rates[f"{name}: {CANDIDATES[name]}"] = metrics.candidates[name].rthp
    rates["decided"] = found.rate_after
    figure = Figure(figsize=(8, 0.5 * len(rates) + 1), layout="constrained")
    axes = figure.add_subplot()
    bars = axes.barh(
        list(rates), list(rates.values()), color=["0.6", *["tab:blue"] * (len(rates) - 2), "tab:green"]
    )
    axes.bar_label(bars, fmt="{:,.0f}", padding=3)
    axes.invert_yaxis()
    axes.set_xlabel("samples a second" + (" (SIMULATED step)" if is_simulated else ""))
    axes.margins(x=0.12)
    save_figure(figure, path)
