"""`testbed demo`: the main job, end to end."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING, Any

import typer

from testbed.cli.options import DEFAULT_RUNS, AsJson, Deadline, HostsMode, LabFile, ReallyMove, RunsDirectory
from testbed.cli.output import DONE, narrate, print_json, print_lines, print_table
from testbed.cli.sizes import Sizes, parse_sizes

if TYPE_CHECKING:
    from testbed.lab.model import Lab
    from testbed.measure.job import JobResult


def register(app: typer.Typer) -> None:
    """Add the command."""
    app.command("demo")(demo)


def demo(
    lab_file: LabFile,
    hosts: HostsMode = "auto",
    sizes: Sizes = "1KiB:8MiB",
    deadline_s: Deadline = 120.0,
    really_move: ReallyMove = None,
    runs_dir: RunsDirectory = DEFAULT_RUNS,
    as_json: AsJson = False,
) -> int:
    """Patch a topology, prove it, measure collectives, re-patch, measure again, write a report."""
    from testbed.lab.inventory import load_lab
    from testbed.measure.job import run_job

    # The second job is small: interpreted it is planned in a moment, translating would take half a minute.
    os.environ.setdefault("NUMBA_DISABLE_JIT", "1")
    lab = load_lab(lab_file)
    if not (lab.simulated or as_json or really_move == lab.name):
        _show_plan(lab, runs_dir)
    with narrate() as narrator:
        result = run_job(
            lab,
            hosts=hosts,
            sizes=parse_sizes(sizes),
            runs_dir=runs_dir,
            narrator=narrator,
            deadline_s=deadline_s,
            really_move=really_move,
        )
    if as_json:
        print_json(_document(result))
    else:
        _show(result)
    return DONE


def _show_plan(lab: Lab, runs_dir: Path) -> None:
    """A real lab that nobody allowed to move: say what would be done."""
    from testbed.operate.journal import journal_in
    from testbed.operate.plan import describe
    from testbed.operate.session import design_for, open_lab

    with journal_in(runs_dir) as journal, open_lab(lab, journal, model_hosts=True) as session:
        print_lines(describe(lab, session.plan(design_for(lab))))


def _document(result: JobResult) -> dict[str, Any]:
    from testbed.measure.standing import ONE_RING

    configurations = list(dict.fromkeys(row.configuration for row in result.timings))
    all_rings = next(name for name in configurations if name.endswith(" rings"))
    one, every = (result.best_busbw_mbps(name) for name in (ONE_RING, all_rings))
    return {
        "run_id": result.run_id,
        "lab": result.lab.name,
        "simulated": result.lab.simulated,
        "links": result.links,
        "verified": result.verified,
        "hosts": result.hosts,
        "busbw_mbps": {"one_ring": one, all_rings.replace(" ", "_"): every},
        "ratio": every / one,
        "report": str(result.report),
    }


def _show(result: JobResult) -> None:
    mark = "SIMULATED " if result.lab.simulated else ""
    model = ", hosts only modelled" if result.hosts == "model" else ""
    columns = [
        "topology",
        "configuration",
        "size (B)",
        "time (us)",
        "busbw (Mbit/s)",
        "link limit",
        "bound by",
    ]
    rows = [
        [row.topology, row.configuration, row.size_bytes, row.time_us, row.busbw_mbps, row.limit_mbps, bound]
        for row in result.timings
        for bound in [
            "host CPU" if row.cpu_limited else "link" if row.busbw_mbps > 0.9 * row.limit_mbps else "latency"
        ]
    ]
    print_table(f"{mark}AllReduce on {result.lab.name}{model}", columns, rows)
    link = result.lab.link
    if result.lab.simulated:
        print_lines(
            [f"scale: {link.rate_mbps:g} Mbit/s stands for {link.represents_gbps:g} Gb/s ({link.scale:g}x)"]
        )
    if result.repatch:
        repatch = result.repatch
        stall = f", TCP stalled {repatch.stall_s * 1e3:.0f} ms" if repatch.stall_s is not None else ""
        print_lines([f"re-patch: {repatch.reason}", f"  dark for {repatch.dark_s * 1e3:.0f} ms{stall}"])
        print_lines(
            [
                f"  {c.label}: {c.before:.4g} -> {c.after:.4g} {c.unit} ({c.gain:.2f}x)"
                for c in repatch.comparisons
            ]
        )
    print_lines(
        [
            f"report: {result.report}",
            f"next: open it, then `testbed runs`, `testbed report {result.run_id}`, `testbed sim up LAB`",
        ]
    )
