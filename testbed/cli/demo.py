"""`testbed demo`: the main job, end to end."""

from __future__ import annotations

import os
from collections.abc import Iterator
from dataclasses import asdict
from typing import TYPE_CHECKING, Annotated, Any

import typer

from testbed.cli import options
from testbed.cli.output import print_json, print_lines, print_table
from testbed.cli.unfinished import with_unfinished
from testbed.commands.documents import DONE
from testbed.commands.progress import narrate

if TYPE_CHECKING:
    from testbed.lab.model import Lab
    from testbed.measure.gain import RingGain
    from testbed.measure.job import JobResult
    from testbed.measure.model import Timing
    from testbed.measure.results.records import Repatch

CPU_NOTE = ", limited by the hosts' CPU"


def register(app: typer.Typer) -> None:
    """Add the command."""
    app.command("demo")(demo)


def demo(
    lab_file: options.LabFile,
    hosts: options.HostsMode = "auto",
    sizes: Annotated[
        str, typer.Option("--sizes", metavar="MIN:MAX", help="Message sizes, doubling: 1KiB:8MiB.")
    ] = "1KiB:8MiB",
    rate_mbps: options.RateMbps = None,
    deadline_s: options.Deadline = 240.0,
    really_move: options.ReallyMove = None,
    runs_dir: options.RunsDirectory = options.DEFAULT_RUNS,
    as_json: options.AsJson = False,
) -> int:
    """Patch a topology, prove it, measure collectives, re-patch, measure again, write a report."""
    from testbed.lab.inventory import load_lab
    from testbed.lab.simulated.lifecycle import at_rate
    from testbed.measure.collectives.spec import parse_sizes
    from testbed.measure.job import run_job

    # The second job is small: interpreted it is planned in a moment, translating would take half a minute.
    os.environ.setdefault("NUMBA_DISABLE_JIT", "1")
    lab = at_rate(load_lab(lab_file), rate_mbps)
    if not (lab.simulated or as_json or really_move == lab.name):
        _show_plan(lab)
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
    document, lines = with_unfinished({}, [], runs_dir, lab)
    if as_json:
        print_json(_document(result) | document)
    else:
        _show(result)
        print_lines(lines)
    return DONE


def _show_plan(lab: Lab) -> None:
    """Print what would be done on a real lab that nobody allowed to move."""
    from testbed.operate.plan import describe
    from testbed.operate.session import design_for, open_lab

    with open_lab(lab, None, model_hosts=True) as session:
        print_lines(describe(lab, session.plan(design_for(lab))))


def _document(result: JobResult) -> dict[str, Any]:
    gain, link = result.ring_gain, result.lab.link
    about = {
        "run_id": result.run_id,
        "lab": result.lab.name,
        "simulated": result.lab.simulated,
        "links": result.links,
        "verified": result.verified,
        "hosts": result.hosts,
        "rate_mbps": link.rate_mbps,
        "represents_gbps": link.represents_gbps,
        "link_rate": asdict(result.link_rate) if result.link_rate else None,
    }
    rows = (gain.one, gain.most) if gain else ()
    return about | {
        "busbw_mbps": {_key(row): row.busbw_mbps for row in rows},
        "busbw_spread_mbps": {_key(row): row.busbw_spread_mbps for row in rows},
        "ratio": gain.ratio if gain else None,
        "ratio_spread": gain.spread if gain else None,
        "ratio_limit": gain.most.rings if gain else None,
        "cpu_limited": gain.cpu_limited if gain else None,
        "report": str(result.report),
    }


def _key(row: Timing) -> str:
    return row.configuration.replace(" ", "_")


def _headline(gain: RingGain) -> str:
    """Return in words what all rings give over one, or that this machine cannot tell."""
    from testbed.measure.units import size_text

    what = f"{gain.most.configuration} over {gain.one.configuration} at {size_text(gain.most.size_bytes)}"
    low, high = gain.spread
    if gain.cpu_limited:
        return (
            f"{what}: limited by the hosts' CPU (measured {gain.ratio:.2f}x, of links that allow {gain.most.rings}x); "
            "leave the machine to the demo, or lower the links' rate with --rate-mbps"
        )
    return f"{what}: {gain.ratio:.2f}x ({low:.2f} to {high:.2f} by quartiles; the links allow {gain.most.rings}x)"


def _bound(row: Timing) -> str:
    if row.cpu_limited:
        return "host CPU"
    return "link" if row.busbw_mbps > 0.9 * row.limit_mbps else "latency"


_COLUMNS = (
    "topology",
    "configuration",
    "size (B)",
    "time (us)",
    "quartiles (us)",
    "busbw (Mbit/s)",
    "link limit",
    "bound by",
)


def _cells(row: Timing) -> tuple[object, ...]:
    quartiles = f"{row.low_us:.0f} to {row.high_us:.0f}"
    what = (row.topology, row.configuration, row.size_bytes)
    return *what, row.time_us, quartiles, row.busbw_mbps, row.limit_mbps, _bound(row)


def _show(result: JobResult) -> None:
    mark = "SIMULATED " if result.lab.simulated else ""
    model = ", hosts only modelled" if result.hosts == "model" else ""
    title = f"{mark}AllReduce on {result.lab.name}{model}"
    print_table(title, _COLUMNS, [_cells(row) for row in result.timings])
    print_lines(list(_lines(result)))


def _lines(result: JobResult) -> Iterator[str]:
    link = result.lab.link
    if result.lab.simulated:
        yield f"scale: {link.rate_mbps:g} Mbit/s stands for {link.represents_gbps:g} Gb/s ({link.scale:g}x)"
    if result.link_rate and result.link_rate.is_lowered:
        yield result.link_rate.describe()
    if result.ring_gain:
        yield _headline(result.ring_gain)
    if result.repatch:
        yield from _repatch_lines(result.repatch)
    yield f"report: {result.report}"
    yield f"next: open it, then `testbed runs`, `testbed report {result.run_id}`, `testbed sim up LAB`"


def _repatch_lines(repatch: Repatch) -> Iterator[str]:
    yield f"re-patch: {repatch.reason}"
    stall = f", TCP stalled {repatch.stall_s * 1e3:.0f} ms" if repatch.stall_s is not None else ""
    yield f"  dark for {repatch.outage_s * 1e3:.0f} ms{stall}"
    for one in repatch.comparisons:
        note = CPU_NOTE if one.cpu_limited else ""
        yield f"  {one.label}: {one.before:.4g} -> {one.after:.4g} {one.unit} ({one.gain:.2f}x{note})"
