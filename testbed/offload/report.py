"""HTML report on a profile: stalls before and after offloading, reasons, and a plot of the rates."""

from __future__ import annotations

import html
import json
from pathlib import Path

from lightbed.output_file import save_figure, write_output
from testbed.offload.policy import CANDIDATES
from testbed.offload.store import Profile

_PAGE_TEMPLATE = """<!doctype html>
<meta charset="utf-8"><title>Offloading: {name}</title>
<style>body{{font:16px/1.5 sans-serif;max-width:50em;margin:2em auto}}td,th{{padding:.2em 1em;text-align:right}}</style>
<h1>Offloading: {name}</h1>
<p>{head}</p>
<table><tr><th></th><th>before</th><th>after</th></tr>
<tr><th>samples per second</th><td>{lthp:,.1f}</td><td>{after:,.1f}</td></tr>
<tr><th>time the trainer waits for data</th><td>{stall_before:.1%}</td><td>{stall_after:.1%}</td></tr></table>
<p><img src="rates.png" alt="Rates of the model, the trainer, each candidate and the decision" width="100%"></p>
<h2>Reasons</h2><ul>{reasons}</ul>
<p>Profiling took {spent:.1f} s, {share:.1%} of the training.</p>
"""


def write_report(folder: Path, profile: Profile, name: str, *, is_simulated: bool) -> Path:
    """Write profile.json, rates.png and report.html to a folder, and return the path of report.html."""
    folder.mkdir(parents=True, exist_ok=True)
    document = profile.as_json() | {"simulated": is_simulated}
    write_output(folder / "profile.json", json.dumps(document, indent=2) + "\n")
    draw_rates(folder / "rates.png", profile, is_simulated=is_simulated)
    decision = profile.decision
    heading = f"{decision.candidate} at ratio {decision.ratio:.2f}" if decision.candidate else "No offload."
    page = _PAGE_TEMPLATE.format(
        name=html.escape(name),
        head=heading + (" SIMULATED: the model's step is a timed wait." if is_simulated else ""),
        lthp=profile.metrics.lthp,
        after=profile.rate_after,
        stall_before=profile.stall_before,
        stall_after=profile.stall_after,
        reasons="".join(f"<li>{html.escape(reason)}" for reason in decision.reasons),
        spent=profile.profiling_s,
        share=profile.profiling_share,
    )
    path = folder / "report.html"
    write_output(path, page)
    return path


def draw_rates(path: Path, profile: Profile, *, is_simulated: bool) -> None:
    """Draw the rates of the model, the pipeline on the trainer, each candidate, and the decision."""
    from matplotlib.figure import Figure

    metrics = profile.metrics
    rate_by_label = {"model alone": metrics.gthp, "all on the trainer": metrics.lthp}
    for name in sorted(metrics.candidates):
        rate_by_label[f"{name}: {CANDIDATES[name]}"] = metrics.candidates[name].rthp
    rate_by_label["decision"] = profile.rate_after
    figure = Figure(figsize=(8, 0.5 * len(rate_by_label) + 1), layout="constrained")
    axes = figure.add_subplot()
    bars = axes.barh(
        list(rate_by_label),
        list(rate_by_label.values()),
        color=["0.6", *["tab:blue"] * (len(rate_by_label) - 2), "tab:green"],
    )
    axes.bar_label(bars, fmt="{:,.0f}", padding=3)
    axes.invert_yaxis()
    axes.set_xlabel("samples per second" + (" (SIMULATED step)" if is_simulated else ""))
    axes.margins(x=0.12)
    save_figure(figure, path)
