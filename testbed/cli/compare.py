"""`testbed compare`: the same job on many fabrics, at equal rate and at equal cost."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from lightbed.wording import counted
from testbed.cli import options, workload_options
from testbed.cli.output import print_json, print_lines, print_table
from testbed.commands.documents import DONE

if TYPE_CHECKING:
    from testbed.design.evaluation.comparison import Row
    from testbed.design.evaluation.job import Job

Fabrics = Annotated[str, typer.Option("--fabrics", metavar="all|NAMES", help="Separated by commas.")]
PlotFile = Annotated[
    Path | None, typer.Option("--picture", metavar="FILE", help="Draw the table (.png, .svg).")
]


def register(app: typer.Typer) -> None:
    """Add the command."""
    app.command("compare")(compare)


def compare(
    workload: workload_options.Workload = "",
    torch: workload_options.Torch = "",
    fabrics: Fabrics = "all",
    rate_gbps: workload_options.RateGbps = None,
    nodes: workload_options.Nodes = None,
    degree: workload_options.Degree = None,
    preset: workload_options.Preset = "",
    settings: workload_options.Settings = None,
    device: workload_options.Device = "",
    mig: workload_options.Mig = 1,
    profile: workload_options.Profile = "",
    strategy: workload_options.StrategyChoice = "",
    oversubscription: workload_options.Oversubscription = 2.0,
    reconfiguration_ms: workload_options.ReconfigurationMs = 10.0,
    fluid: workload_options.Fluid = None,
    routing: workload_options.Routing = "",
    seed: workload_options.Seed = 0,
    plot: PlotFile = None,
    as_json: options.AsJson = False,
) -> int:
    """Simulate one iteration of a workload on several fabrics and compare time and cost."""
    from testbed.design.evaluation.comparison import compare_fabrics, rows_of
    from testbed.design.evaluation.comparison_plot import draw_comparison
    from testbed.design.fabrics.builders import FabricOptions

    nodes, degree, _ = workload_options.cut(nodes, degree, mig, usual_degree=4)
    named = (workload, torch, preset, settings, workload_options.instance_of(device, mig), profile)
    job = workload_options.chosen_job(*named, nodes, strategy, routing)
    links, rate = job.links(degree, usual=4), job.rate_gbps(rate_gbps)
    asked = FabricOptions(oversubscription, reconfiguration_ms * 1e-3, seed, fluid, routing)
    rows = compare_fabrics(job, rows_of(fabrics), links, rate, asked)
    title = _title(job, links, rate)
    if plot:
        draw_comparison(rows, plot, title)
    if as_json:
        print_json(_document(job, links, rate, rows))
    else:
        _show(title + _batch(job), rows)
    return DONE


def _title(job: Job, links: int, rate_gbps: float) -> str:
    each = f"{counted(links, 'link')} of {rate_gbps:g} Gbit/s each"
    return f"SIMULATED {job.name} on {counted(job.graph.nodes, 'server')}, {each}"


def _batch(job: Job) -> str:
    return f", batch of {job.about['batch']:,} samples" if "batch" in job.about else ""


def _document(job: Job, degree: int, rate_gbps: float, rows: tuple[Row, ...]) -> dict[str, Any]:
    about = {"job": job.name, "simulated": True, **job.about}
    about |= {"nodes": job.graph.nodes, "degree": degree, "rate_gbps": rate_gbps}
    return about | {"fabrics": [row.as_json() for row in rows]}


def _show(title: str, rows: tuple[Row, ...]) -> None:
    columns = ("fabric", "compared at", "Gbit/s a host", "iteration (ms)", "slowdown", "tax", "cost (USD)")
    print_table(title, columns, [row.cells() for row in rows])
    if any(row.figures["prices_recalled"] for row in rows if row.figures):
        print_lines(["prices are recalled from the literature, not checked against it"])
    print_lines([f"{row.name}: {row.failure}" for row in rows if row.failure])
