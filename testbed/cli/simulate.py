"""`testbed simulate`: one iteration of a job on a fabric that nobody has to own."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from lightbed.wording import counted
from testbed.cli import options, workload_options
from testbed.cli.output import print_answer
from testbed.commands.documents import DONE
from testbed.design.fabrics.fabric_list import FABRICS, SWITCHED

if TYPE_CHECKING:
    from testbed.design.evaluation.job import Job
    from testbed.design.evaluation.simulation import Execution
    from testbed.design.fabrics.builders import ChosenFabric

Fabric = Annotated[str, typer.Option("--fabric", metavar="NAME", help=", ".join(FABRICS) + ".")]
Trace = Annotated[
    Path | None, typer.Option("--trace", metavar="DIR", help="Write flows, links and tasks as Parquet.")
]
Timeline = Annotated[
    Path | None, typer.Option("--timeline", metavar="FILE", help="Draw the time line (.png, .svg).")
]
HeatMap = Annotated[
    Path | None, typer.Option("--heat-map", metavar="FILE", help="Draw who sends how much to whom.")
]

ExportChakra = Annotated[
    Path | None,
    typer.Option("--export-chakra", metavar="DIR", help="Write the job as Chakra traces, a file a server."),
]

DIRECT_DEGREE = 4
"""At equal cost a Fat-tree stands beside direct connect, so that it is as many links that are paid for."""


def register(app: typer.Typer) -> None:
    """Add the command."""
    app.command("simulate")(simulate)


def simulate(
    workload: workload_options.Workload = "",
    torch: workload_options.Torch = "",
    fabric: Fabric = "direct",
    rate_gbps: workload_options.RateGbps = None,
    nodes: workload_options.Nodes = None,
    degree: workload_options.Degree = None,
    preset: workload_options.Preset = "",
    settings: workload_options.Settings = None,
    device: workload_options.Device = "",
    mig: workload_options.Mig = 1,
    profile: workload_options.Profile = "",
    strategy: workload_options.StrategyChoice = "",
    equal_cost: workload_options.EqualCost = False,
    oversubscription: workload_options.Oversubscription = 2.0,
    reconfiguration_ms: workload_options.ReconfigurationMs = 10.0,
    fluid: workload_options.Fluid = None,
    routing: workload_options.Routing = "",
    seed: workload_options.Seed = 0,
    trace: Trace = None,
    timeline: Timeline = None,
    heat_map: HeatMap = None,
    export_chakra: ExportChakra = None,
    as_json: options.AsJson = False,
) -> int:
    """Simulate one iteration of a workload or a task graph on a fabric."""
    from testbed.design.evaluation.simulation import figures, link_traffic, simulate_on
    from testbed.design.fabrics.builders import FabricOptions

    usual, nodes, degree, part = _cut(fabric, nodes, degree, mig, equal_cost=equal_cost)
    named = (workload, torch, preset, settings, workload_options.instance_of(device, mig), profile)
    job = workload_options.chosen_job(*named, nodes, strategy, routing)
    links, rate = job.links(degree, usual), job.rate_gbps(rate_gbps) * part
    asked = FabricOptions(oversubscription, reconfiguration_ms * 1e-3, seed, fluid, routing)
    chosen = job.fabric(fabric, links, rate, asked, equal_cost=equal_cost)
    done = simulate_on(chosen, job.graph, trace=bool(trace or timeline))
    _write(job, done, fabric, trace, export_chakra, timeline, heat_map)
    document = _document(job, chosen, links, rate) | figures(chosen, done) | {"links": link_traffic(done)}
    print_answer(document, _lines(document), as_json=as_json)
    return DONE


def _cut(
    fabric: str, nodes: int | None, degree: int | None, mig: int, *, equal_cost: bool
) -> tuple[int, int | None, int | None, float]:
    """Return the usual number of links, and servers, links and the part of a rate as `--mig` cuts them."""
    is_switched = fabric in SWITCHED and not equal_cost
    usual = 1 if is_switched else DIRECT_DEGREE
    return usual, *workload_options.cut(nodes, degree, mig, usual, may_share=is_switched)


def _write(
    job: Job,
    done: Execution,
    fabric: str,
    trace: Path | None,
    chakra: Path | None,
    timeline: Path | None,
    heat_map: Path | None,
) -> None:
    """Write the files that are asked for."""
    from testbed.design.evaluation.simulation import write_trace
    from testbed.design.workloads.imports.chakra_export import export_traces

    if trace:
        write_trace(done, trace)
    if chakra:
        export_traces(job.graph, chakra, job.name)
    _draw(job, done, fabric, timeline, heat_map)


def _draw(job: Job, done: Execution, fabric: str, timeline: Path | None, heat_map: Path | None) -> None:
    from testbed.design.evaluation.simulation import draw_timeline

    if timeline:
        draw_timeline(done, timeline, f"SIMULATED: {job.name} on {fabric}, {done.iteration_s * 1e3:.2f} ms")
    if heat_map:
        job.draw_heat_map(heat_map)


def _document(job: Job, chosen: ChosenFabric, degree: int, rate_gbps: float) -> dict[str, Any]:
    about = {"job": job.name, "simulated": True, **job.about, "fabric": chosen.name}
    about |= {"nodes": job.graph.nodes, "degree": degree, "rate_gbps": rate_gbps}
    if chosen.name in SWITCHED:
        return about | {"host_gbps": chosen.host_gbps}
    routes = {}
    if job.plan and chosen.fabric.weights is not None:
        routes = {"routes": "planned" if job.plan.routes else "found"}
    return about | routes | ({"strides": list(chosen.topology.strides)} if chosen.topology else {})


def _lines(document: dict[str, Any]) -> list[str]:
    rate, busiest = document.get("host_gbps"), document["busiest_link"]
    several = f"{counted(document['degree'], 'link')} of {document['rate_gbps']:g} Gbit/s"
    links = f"one link of {rate:g} Gbit/s" if rate else several
    where = f"{counted(document['nodes'], 'server')}, fabric {document['fabric']}, {links} each"
    full = f", the busiest link is full {busiest:.0%} of the time" if busiest is not None else ""
    sent = f"{document['payload_bytes'] / 1e9:.4g} GB sent"
    found = ["the plan has no routes: they were found now"] if document.get("routes") == "found" else []
    recalled = " (prices recalled, not checked)" if document["prices_recalled"] else ""
    logical = (
        [f"{counted(document['servers'], 'server')} as {counted(document['nodes'], 'logical server')}"]
        if "servers" in document
        else []
    )
    if "estimated_nodes" in document:
        nodes = counted(document["estimated_nodes"], "node")
        found.append(f"{nodes} without a duration: computed as a {document['device']} does the operations")
    batch = [f"batch of {document['batch']:,} samples an iteration"] if "batch" in document else []
    return [
        f"SIMULATED {document['job']} on {where}",
        *logical,
        *batch,
        f"iteration {document['iteration_ms']:.3f} ms, of it {document['compute_ms']:.3f} ms computing",
        f"{sent}, bandwidth tax {document['bandwidth_tax']:.3f}{full}",
        f"cost {document['cost_usd']:,} USD{recalled}",
        *found,
    ]
