"""`testbed simulate`: one simulated iteration of a job on a fabric."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

from testbed.commands.context import CommandContext
from testbed.commands.declare import Command, option
from testbed.commands.design.workload import (
    DIRECT_DEGREE,
    FabricSetting,
    Figures,
    JobDocument,
    SimulationCommand,
    make_job_keys,
)
from testbed.commands.documents import OMIT_NONE
from testbed.design.fabrics.fabric_list import FABRICS, find_kind, has_gpu_nodes, is_switched
from testbed.errors import WorkloadError

if TYPE_CHECKING:
    from testbed.design.evaluation.job import Job
    from testbed.design.evaluation.simulation import Execution
    from testbed.design.fabrics.kind import ChosenFabric
    from testbed.design.sharing.checkpoints import Checkpoint


@dataclass(frozen=True, kw_only=True)
class LinkTraffic:
    """Bytes of a link, and the fraction of the time in which it was full (None for circuits that are reconfigured)."""

    link: str
    bytes: int
    busy: float | None


@dataclass(frozen=True, kw_only=True)
class CheckpointTimes:
    """A checkpoint of `bytes`, written to `storage` hosts in each iteration whose number is a multiple of `every`.

    `iteration_ms` is the longest iteration with a write, `plain_ms` an iteration without a write, `mean_ms` the mean
    over `every` iterations, `write_ms` the time of a write. `links` lists the traffic of the `simulated` iterations,
    which include a write. `extrapolated` is true if the write takes longer than these iterations.
    """

    bytes: int
    every: int
    storage: int
    mode: Literal["blocking", "overlapped"]
    iteration_ms: float
    plain_ms: float
    mean_ms: float
    write_ms: float
    simulated: int
    extrapolated: bool
    links: tuple[LinkTraffic, ...]

    def format_lines(self) -> Iterator[str]:
        """Yield the times as lines for people."""
        from lightbed.wording import format_count

        hosts_text = format_count(self.storage, "storage host")
        yield (
            f"{self.mode} checkpoint of {self.bytes / 1e9:.4g} GB to {hosts_text}: "
            f"the write takes {self.write_ms:.3f} ms"
        )
        # Rounding may leave -0.0, which would print a sign.
        slowdown, mean_slowdown = (
            round(time_ms / self.plain_ms - 1, 4) + 0.0 if self.plain_ms else 0.0
            for time_ms in (self.iteration_ms, self.mean_ms)
        )
        yield (
            f"iteration with it {self.iteration_ms:.3f} ms ({slowdown:+.1%}); with one every "
            f"{format_count(self.every, 'iteration')} {self.mean_ms:.3f} ms on average ({mean_slowdown:+.1%})"
        )
        if self.extrapolated:
            yield f"the write goes on after {format_count(self.simulated, 'simulated iteration')}: at the same progress"


@dataclass(frozen=True, kw_only=True)
class CircuitMoves:
    """Circuits that move: their number per node and direction, their rate, and the `controller` that moves them.

    A circuit that moves is dark for `reconfiguration_ms`. `period_ms` is the period of the controller `every`.
    """

    count: int
    rate_gbps: float
    controller: Literal["once", "per-iteration", "every", "per-layer"]
    period_ms: float | None = field(default=None, metadata=OMIT_NONE)
    hysteresis: float
    look_ahead: int
    reconfiguration_ms: float

    @classmethod
    def from_fabric(cls, fabric: ChosenFabric) -> CircuitMoves | None:
        """Return the circuits of a fabric, or None if it has none that move."""
        switch = fabric.circuits
        if switch is None:
            return None
        controller = switch.controller
        return cls(
            count=switch.degree,
            rate_gbps=switch.rate_gbps,
            controller=controller.switching_rule,
            period_ms=controller.period_s * 1e3 if controller.switching_rule == "every" else None,
            hysteresis=controller.hysteresis,
            look_ahead=controller.look_ahead,
            reconfiguration_ms=switch.delay_s * 1e3,
        )

    def format_lines(self, move_count: int, outage_ms: float) -> Iterator[str]:
        """Yield a line for people. It says how often circuits moved, and how long they were dark in total."""
        from lightbed.wording import format_count

        period_text = f":{self.period_ms:g}" if self.period_ms else ""
        circuits_text = f"{format_count(self.count, 'circuit')} of {self.rate_gbps:g} Gbit/s each way"
        outage_text = f"{format_count(move_count, 'move')}, dark for {outage_ms:.3f} ms in all"
        yield f"{circuits_text}, controller {self.controller}{period_text}: {outage_text}"


@dataclass(frozen=True, kw_only=True)
class SimulationDocument(Figures, JobDocument):
    """An iteration of a job on a fabric. `host_gbps` is set if every server has one link, to a switch.

    With `checkpoint` the cluster also has storage hosts. Figures and links describe an iteration without a write.
    """

    fabric: str
    host_gbps: float | None = field(default=None, metadata=OMIT_NONE)
    routes: str | None = field(default=None, metadata=OMIT_NONE)
    strides: tuple[int, ...] | None = field(default=None, metadata=OMIT_NONE)
    circuits: CircuitMoves | None = field(default=None, metadata=OMIT_NONE)
    checkpoint: CheckpointTimes | None = field(default=None, metadata=OMIT_NONE)
    links: tuple[LinkTraffic, ...]

    def format_lines(self) -> Iterator[str]:
        """Yield the document as lines for people."""
        from lightbed.wording import format_count

        links_text = f"{format_count(self.degree, 'link')} of {self.rate_gbps:g} Gbit/s"
        host_links_text = f"one link of {self.host_gbps:g} Gbit/s" if self.host_gbps else links_text
        servers_text = format_count(self.nodes, "server" if self.hb_domain is None else "GPU")
        yield f"SIMULATED {self.job} on {servers_text}, fabric {self.fabric}, {host_links_text} each"
        if self.hb_domain is not None:
            servers_text = format_count(self.nodes // self.hb_domain, "domain")
            yield f"{servers_text} of {self.hb_domain} GPUs, {self.hb_gbps:g} Gbit/s from each inside its domain"
        elif self.servers is not None:
            yield f"{format_count(self.servers, 'server')} as {format_count(self.nodes, 'logical server')}"
        if self.batch is not None:
            yield f"batch of {self.batch:,} samples an iteration"
        yield f"iteration {self.iteration_ms:.3f} ms, of it {self.compute_ms:.3f} ms computing"
        busiest_share = self.busiest_link
        busy_note = (
            f", the busiest link is full {busiest_share:.0%} of the time" if busiest_share is not None else ""
        )
        yield f"{self.payload_bytes / 1e9:.4g} GB sent, bandwidth tax {self.bandwidth_tax:.3f}{busy_note}"
        if self.rings == "fluid":
            rounding_note = (
                f", and flows begin and end up to {self.rounding:.0%} late" if self.rounding else ""
            )
            option_note = "--fluid: exact flows; " if self.rounding else ""
            yield f"all rounds of a ring are simulated as one flow{rounding_note} ({option_note}--rounds: each round)"
        if self.exchanges == "whole":
            yield "an all-to-all is simulated as its load of links (--fluid: message by message)"
        if self.circuits:
            yield from self.circuits.format_lines(self.reconfigurations, self.outage_ms)
        if self.checkpoint:
            yield from self.checkpoint.format_lines()
        yield f"cost {self.cost_usd:,} USD{' (prices recalled, not checked)' if self.prices_recalled else ''}"
        if self.routes == "found":
            yield "the plan has no routes: the simulation chose them"
        yield from self.notes or ()
        if self.estimated_nodes is not None:
            nodes_text = format_count(self.estimated_nodes, "node")
            yield f"{nodes_text} without a duration: estimated for a {self.device}"


_CIRCUIT_OPTIONS = ("controller", "hysteresis", "look_ahead", "wavelengths")
"""Options of moving circuits. `simulate` refuses them for other fabrics; `compare` applies them where they fit."""


@dataclass(frozen=True, kw_only=True)
class Simulate(SimulationCommand, Command[SimulationDocument]):
    """`testbed simulate`."""

    fabric: Annotated[str, option(", ".join(FABRICS) + ".", metavar="NAME")] = "direct"
    equal_cost: Annotated[
        bool,
        option("Give the Fat-tree the rate at which it costs as much as direct connect.", "--equal-cost"),
    ] = False
    checkpoint_every: Annotated[
        int,
        option("Write a checkpoint to storage hosts every N iterations; 0: never.", metavar="N", least=0),
    ] = 0
    storage_nodes: Annotated[
        int, option("Storage hosts besides the servers, with as many links.", metavar="N", least=1)
    ] = 1
    checkpoint_mode: Annotated[
        Literal["blocking", "overlapped"],
        option("When a checkpoint is written: after the iteration, or during it."),
    ] = "blocking"
    checkpoint_bytes: Annotated[
        int,
        option("Bytes of a checkpoint; 0: the parameters and optimiser state.", metavar="BYTES", least=0),
    ] = 0
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

    def validate(self) -> None:
        """Raise `WorkloadError` for checkpoint options without `--checkpoint-every`, and other fabrics' options."""
        super().validate()
        given_options = [name for name in _CIRCUIT_OPTIONS if getattr(self, name)]
        # `find_kind` imports numpy, so it is called only if needed.
        fabric_kind = find_kind(self.fabric) if given_options else None
        for name in given_options:
            if fabric_kind and name not in fabric_kind.option_names:
                raise WorkloadError(f"fabric {self.fabric!r} has no --{name.replace('_', '-')}: leave it out")
        is_default = (self.storage_nodes, self.checkpoint_mode, self.checkpoint_bytes) == (1, "blocking", 0)
        if not self.checkpoint_every and not is_default:
            raise WorkloadError(
                "--storage-nodes, --checkpoint-mode and --checkpoint-bytes need --checkpoint-every N: how often a "
                "checkpoint is written"
            )

    def run(self, context: CommandContext) -> SimulationDocument:
        """Simulate an iteration. Raises the errors of `open_job`, `TopologyError` and `WorkloadError`."""
        from testbed.design.evaluation.simulation import compute_figures, compute_link_traffic, simulate_on
        from testbed.design.sharing.checkpoints import add_checkpoint_graphs, run_checkpoint

        # An equal-cost Fat-tree costs as much as direct connect, so the options describe direct connect's links.
        has_one_link = is_switched(self.fabric) and not self.equal_cost
        setup = self.make_setting(
            1 if has_one_link else DIRECT_DEGREE,
            may_share=has_one_link,
            connects_gpus=has_gpu_nodes(self.fabric),
            shares_links=not is_switched(self.fabric),
            exchanges_by_pair=bool(self.export_chakra),
        )
        job, checkpoint, plain_job = setup.job, self._make_checkpoint(setup), setup.job
        if checkpoint:
            plain_job, job = add_checkpoint_graphs(job, checkpoint)
        fabric = plain_job.build_fabric(
            self.fabric, setup.degree, setup.rate_gbps, setup.options, equal_cost=self.equal_cost
        )
        simulate = partial(simulate_on, fabric, trace=bool(self.trace or self.timeline))
        checkpoint_times = None
        if checkpoint:
            checkpoint_run = run_checkpoint(setup.job, checkpoint, simulate)
            execution, execution_to_draw = checkpoint_run.baseline_execution, checkpoint_run.window_execution
            checkpoint_times = CheckpointTimes(
                bytes=sum(checkpoint.divide_bytes(setup.job)),
                every=checkpoint.iteration_interval,
                storage=checkpoint.storage.host_count,
                mode=checkpoint.mode,
                iteration_ms=checkpoint_run.longest_s * 1e3,
                plain_ms=checkpoint_run.baseline_execution.iteration_s * 1e3,
                mean_ms=checkpoint_run.mean_s * 1e3,
                write_ms=checkpoint_run.write_s * 1e3,
                simulated=checkpoint_run.iteration_count,
                extrapolated=checkpoint_run.is_extrapolated,
                links=tuple(
                    LinkTraffic(**row) for row in compute_link_traffic(checkpoint_run.window_execution)
                ),
            )
        else:
            execution = execution_to_draw = simulate(job.graph)
        self._write_files(job, execution_to_draw)
        document = SimulationDocument(
            **make_job_keys(setup, exchanges_by_pair=fabric.circuits is not None),
            **_make_fabric_keys(setup, fabric),
            **compute_figures(fabric, execution, job.arithmetic_s),
            checkpoint=checkpoint_times,
            links=tuple(LinkTraffic(**row) for row in compute_link_traffic(execution)),
        )
        context.say(*document.format_lines())
        return document

    def _make_checkpoint(self, setup: FabricSetting) -> Checkpoint | None:
        """Return the checkpoint that the options describe, or None. A storage host has the NICs of a server."""
        if not self.checkpoint_every:
            return None
        from testbed.design.sharing.checkpoints import Checkpoint
        from testbed.design.workloads.checkpoint import Storage

        storage = Storage(self.storage_nodes, max(setup.options.hb_domain, self.mig))
        return Checkpoint(self.checkpoint_every, storage, self.checkpoint_mode, self.checkpoint_bytes)

    def _write_files(self, job: Job, execution: Execution) -> None:
        from testbed.design.evaluation.simulation import draw_timeline, write_trace
        from testbed.design.workloads.imports.chakra_export import export_traces

        if self.trace:
            write_trace(execution, self.trace)
        if self.export_chakra:
            export_traces(job.graph, self.export_chakra, job.name)
        if self.timeline:
            iteration_ms = execution.iteration_s * 1e3
            draw_timeline(
                execution, self.timeline, f"SIMULATED: {job.name} on {self.fabric}, {iteration_ms:.2f} ms"
            )
        if self.heat_map:
            job.draw_heat_map(self.heat_map)


def _make_fabric_keys(setup: FabricSetting, fabric: ChosenFabric) -> dict[str, Any]:
    if is_switched(fabric.name):
        return {"fabric": fabric.name, "host_gbps": fabric.host_gbps}
    plan = setup.job.plan
    has_planned_routes = plan is not None and fabric.fabric.weights is not None
    return {
        "fabric": fabric.name,
        "routes": ("planned" if plan.routes else "found") if plan and has_planned_routes else None,
        "strides": tuple(fabric.topology.strides) if fabric.topology else None,
        "circuits": CircuitMoves.from_fabric(fabric),
    }
