"""`testbed simulate`: one simulated iteration of a job on a fabric."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from testbed.commands.declare import Command, option
from testbed.commands.design.workload import (
    DIRECT_DEGREE,
    FabricSetting,
    Figures,
    JobDocument,
    SimulatesWorkload,
    job_keys,
)
from testbed.commands.documents import OMIT_NONE
from testbed.commands.place import Place
from testbed.design.fabrics.fabric_list import FABRICS, is_of_gpus, is_switched

if TYPE_CHECKING:
    from testbed.design.evaluation.job import Job
    from testbed.design.evaluation.simulation import Execution
    from testbed.design.fabrics.kind import ChosenFabric


@dataclass(frozen=True, kw_only=True)
class LinkTraffic:
    """Bytes of a link, and the fraction of the time in which it was full; None for circuits that are reconfigured."""

    link: str
    bytes: int
    busy: float | None


@dataclass(frozen=True, kw_only=True)
class SimulationDocument(Figures, JobDocument):
    """An iteration of a job on a fabric. `host_gbps` is set if every server has one link, to a switch."""

    fabric: str
    host_gbps: float | None = field(default=None, metadata=OMIT_NONE)
    routes: str | None = field(default=None, metadata=OMIT_NONE)
    strides: tuple[int, ...] | None = field(default=None, metadata=OMIT_NONE)
    links: tuple[LinkTraffic, ...]

    def lines(self) -> Iterator[str]:
        """Yield the document as lines for people."""
        from lightbed.wording import count_noun

        several = f"{count_noun(self.degree, 'link')} of {self.rate_gbps:g} Gbit/s"
        links = f"one link of {self.host_gbps:g} Gbit/s" if self.host_gbps else several
        servers = count_noun(self.nodes, "server" if self.hb_domain is None else "GPU")
        yield f"SIMULATED {self.job} on {servers}, fabric {self.fabric}, {links} each"
        if self.hb_domain is not None:
            servers = count_noun(self.nodes // self.hb_domain, "domain")
            yield f"{servers} of {self.hb_domain} GPUs, {self.hb_gbps:g} Gbit/s from each inside its domain"
        elif self.servers is not None:
            yield f"{count_noun(self.servers, 'server')} as {count_noun(self.nodes, 'logical server')}"
        if self.batch is not None:
            yield f"batch of {self.batch:,} samples an iteration"
        yield f"iteration {self.iteration_ms:.3f} ms, of it {self.compute_ms:.3f} ms computing"
        busiest = self.busiest_link
        full = f", the busiest link is full {busiest:.0%} of the time" if busiest is not None else ""
        yield f"{self.payload_bytes / 1e9:.4g} GB sent, bandwidth tax {self.bandwidth_tax:.3f}{full}"
        if self.rings == "fluid":
            late = f", and flows begin and end up to {self.rounding:.0%} late" if self.rounding else ""
            exact = "--fluid: exact flows; " if self.rounding else ""
            yield f"all rounds of a ring are simulated as one flow{late} ({exact}--rounds: each round)"
        yield f"cost {self.cost_usd:,} USD{' (prices recalled, not checked)' if self.prices_recalled else ''}"
        if self.routes == "found":
            yield "the plan has no routes: the simulation chose them"
        yield from self.notes or ()
        if self.estimated_nodes is not None:
            nodes = count_noun(self.estimated_nodes, "node")
            yield f"{nodes} without a duration: estimated for a {self.device}"


@dataclass(frozen=True, kw_only=True)
class Simulate(SimulatesWorkload, Command[SimulationDocument]):
    """`testbed simulate`."""

    fabric: Annotated[str, option(", ".join(FABRICS) + ".", metavar="NAME")] = "direct"
    equal_cost: Annotated[
        bool,
        option("Give the Fat-tree the rate at which it costs as much as direct connect.", "--equal-cost"),
    ] = False
    trace: Annotated[
        Path | None, option("Write flows, links and tasks as Parquet.", metavar="DIR", is_local=True)
    ] = None
    timeline: Annotated[
        Path | None, option("Draw the time line (.png, .svg).", metavar="FILE", is_local=True)
    ] = None
    heat_map: Annotated[
        Path | None, option("Draw how much each server sends to each other.", metavar="FILE", is_local=True)
    ] = None
    export_chakra: Annotated[
        Path | None,
        option("Write the job as Chakra traces, one file per server.", metavar="DIR", is_local=True),
    ] = None

    def run(self, place: Place) -> SimulationDocument:
        """Simulate an iteration. Raises the errors of `open_job`, `TopologyError` and `WorkloadError`."""
        from testbed.design.evaluation.simulation import figures, link_traffic, simulate_on

        # At equal cost a Fat-tree is compared with direct connect, so the links of direct connect are paid for.
        has_one_link = is_switched(self.fabric) and not self.equal_cost
        setting = self.setting(
            1 if has_one_link else DIRECT_DEGREE, may_share=has_one_link, of_gpus=is_of_gpus(self.fabric)
        )
        job, rate_gbps = setting.job, setting.rate_gbps
        fabric = job.fabric(
            self.fabric, setting.degree, rate_gbps, setting.options, equal_cost=self.equal_cost
        )
        execution = simulate_on(fabric, job.graph, trace=bool(self.trace or self.timeline))
        self._write_files(job, execution)
        document = SimulationDocument(
            **job_keys(setting),
            **_fabric_keys(setting, fabric),
            **figures(fabric, execution, job.arithmetic_s),
            links=tuple(LinkTraffic(**row) for row in link_traffic(execution)),
        )
        place.say(*document.lines())
        return document

    def _write_files(self, job: Job, execution: Execution) -> None:
        from testbed.design.evaluation.simulation import draw_timeline, write_trace
        from testbed.design.workloads.imports.chakra_export import export_traces

        if self.trace:
            write_trace(execution, self.trace)
        if self.export_chakra:
            export_traces(job.graph, self.export_chakra, job.name)
        if self.timeline:
            took_ms = execution.iteration_s * 1e3
            draw_timeline(
                execution, self.timeline, f"SIMULATED: {job.name} on {self.fabric}, {took_ms:.2f} ms"
            )
        if self.heat_map:
            job.draw_heat_map(self.heat_map)


def _fabric_keys(setting: FabricSetting, fabric: ChosenFabric) -> dict[str, Any]:
    if is_switched(fabric.name):
        return {"fabric": fabric.name, "host_gbps": fabric.host_gbps}
    plan = setting.job.plan
    has_planned_routes = plan is not None and fabric.fabric.weights is not None
    return {
        "fabric": fabric.name,
        "routes": ("planned" if plan.routes else "found") if plan and has_planned_routes else None,
        "strides": tuple(fabric.topology.strides) if fabric.topology else None,
    }
